"""Judging edits of images with tools that look at the pixels, on a CPU, with no model.

    instruction ─► spec ─┐
    source, candidate ───┴─► tools (pure, versioned) ─► table of features ─► a library's criteria ─► score, preference

Invariants: a tool is a pure function of (source, candidate, spec); what it cannot tell is NaN, never a number that looks like
one; `synthetic`, which makes scenes with known answers, is imported by nothing that judges or evolves. Everything here but
`spec` and `colours` needs the extra `images` (see `extra`).
"""
