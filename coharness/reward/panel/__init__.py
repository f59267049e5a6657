"""What several judges say together, and how far that can be trusted: statistics on recorded verdicts, no model anywhere.

Verdicts are compared with *anchors*, items whose truth a person settled. Without anchors no reliability can be told from its
mirror image: a cohort of judges that share a bias agrees with itself best. So whatever weighs judges takes anchors or refuses;
the one exception, `dawid_skene`, says in its result that it is not identifiable.

`votes` holds verdicts; `log_odds` the anchored vote; `dawid_skene`, `davidson` the other models; `choice` lets held-out anchors
pick among them; `robust`, `disagreement`, `effective` describe a panel; `calibration`, `selective`, `estimation` say how sure.
"""
