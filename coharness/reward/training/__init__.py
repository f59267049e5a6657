"""Training a judge on settled examples, and the test that a change of judge must pass.

    examples ─► splits ─► episodes ─► fit (a Trainer, step by step) ─► published version ─► calibration ─► gate ─► judge.json
                  │                                                                            ▲           ▲
                  └────────────────────────────────────── calibration items ───────────────────┘           │
                  └────────────────────────────────────── frozen anchors, fresh samples ───────────────────┘

The verdict is read, not written: the log-odds of one token after the prompt, so that no answer can forge it and a pair is
antisymmetric by construction. Invariants: whole questions go to one split; a fresh sample is spent once; the gate sees settled
examples alone, never what a policy scores. Nothing here knows an engine or a backend: `coharness.loop.trained_judge` composes.
"""
