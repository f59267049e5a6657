"""Learning from a judge's mistakes: where it contradicts the verifier, what pairs that makes, which criterion is to blame.

    audited rollouts ─► conflicts ─► pairs for training a judge
                             └─────► concentration ─► proposed edit of one criterion

Invariants: verdicts come from verifiers and people, never from the judge that is to be mended; nothing here changes a judge, it
proposes; what is proposed is settled on anchors that it was not made from.
"""
