"""A library of skills and tools that judges work by, read and written as files, and improved from about a hundred preferences.

    preferences ─► chain analysis ─► proposals (add, update, delete) ─► linter ─► gate on fresh pairs ─► next version
                        ▲                                                            │
                        └──────────── executor: tools without a model, or a model over an endpoint ◄──┘

After RewardHarness (arXiv 2605.08703), whose files it reads and writes. Invariants: a version never changes once it has a name,
which is the hash of its content; a proposal is tried on pairs that it was not made from; a judgment that failed is no vote; and
nothing here knows what the features mean or where they come from.
"""
