"""How much each criterion counts, by phase of training and by what settled anchors say; always beside a fixed-weight control.

    simplex      weights that sum to 1, and how far they may move at once
    phases       a schedule that was written beforehand: data, not learning
    bandit       Exp3 and Thompson sampling over a few presets, paid by gain of the benchmark for its cost
    bilevel      weights that follow the gradient of the anchors' likelihood, exact or by two evaluations
    apply        a rubric with other weights, which is another rubric

Invariants: pure functions of what is handed in, randomness included; weights are on the simplex after every step; what a
policy's reward was never decides about weights, since the reward is made of them. Who drives them measures: anchors, audits,
the benchmark.
"""
