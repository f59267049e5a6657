"""Where runs happen: what a cluster of one machine is, the pinned environments, and a doctor that says what is missing.

Knows nothing of `actors`; whoever starts a run brings the two together.
"""
