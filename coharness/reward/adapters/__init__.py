"""Judges as rewards of other trainers, in the shapes that those call.

Each adapter keeps a failure apart in the way that its trainer has for it, and where there is none, raises: none of them makes a
number up. `scorer` says what all of them need; `RubricJudge` and `RewardClient` are scorers.
"""
