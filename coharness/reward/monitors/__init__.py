"""Is the reward being gamed? Detectors that read what training produces anyway, and what is done about an alarm.

    audited rollouts ─► conflict ──────────────────────────┐
    judge's mean, benchmark ─► divergence ─┐               ├─► alarm ─► response ladder
    rewards, texts, verdicts ─► shortcut ──┴─ both needed ─┘
    canaries, saturation, gap: findings beside them; a broken canary alarms alone

Invariants: every threshold follows from an average run length or a rate of false alarms that a person states, never from a
textbook constant; detectors are values, one observation makes the next; what could not be measured is no observation; a detector
never sees the answer to the question it asks (an oracle column, a known onset).
"""
