"""Judges: opinions about an attempt, with a reason before each verdict, typed failures, and nothing that a candidate can steer.

    candidate ─► prefilter ─► guard (data, never instruction) ─► cache ─► pool of endpoints ─► verdict ─► judgment

Invariants: a candidate's text reaches a model as a JSON string behind a boundary drawn anew for each call; a verdict counts only
in the exact shape that was asked for, with the boundary echoed; whatever else comes is a failure with a name, never a score.
"""
