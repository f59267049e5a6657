"""Ray shells around the loop: a session, a fleet, and one thin actor a role; no decisions are taken here.

Nothing is imported from ray until a session begins, so that `import actors` stays light.
"""
