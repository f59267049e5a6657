"""Population-based search: a user's own trainable, evolved by the selection rules, with a durable journal.

    config ──▶ core (pure: state, report ──▶ decision) ──▶ journal ──▶ orders ──▶ pool of workers ──▶ reports ──┐
                 ▲                                                                                             │
                 └─────────────────────────────────────────────────────────────────────────────────────────────┘

`trainable` is what the user writes, `core` decides, `engine` drives, `pool` and `inline` carry out (actors.tune on Ray),
`schedule` turns a member's path through clones and merges into one clean run and checks that it matches. `api` is the way
in from Python.
"""
