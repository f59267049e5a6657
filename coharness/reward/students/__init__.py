"""A fast judge that imitates a slow one, answers where it is sure, and hands the rest up.

    item ─► features ─► student ─┬─ sure, not novel ──► its answer ──(a share, unseen)──► teacher beside it ─► drift detector
                                 └─ unsure or novel ──► teacher                                                   │
                                                          ▲───────────── all of it, once the detector alarms ─────┘

`features` and `student` are the model, `escalation` the judge that both make, `shadow` the comparison on live traffic,
`promotion` the test before it serves at all. Invariants: a student's threshold comes from settled anchors with a bound on its
risk; it never answers where the bound does not hold; nothing is pickled, a student is numbers and their names.
"""
