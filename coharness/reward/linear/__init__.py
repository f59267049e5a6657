"""A light judge: one weight a feature of question and answer, fitted to verdicts and pairs in seconds, stored as JSON.

    attempts, pairs ─► fit ─► model ─► files (judges/<id>.json) ─► judge ─► parts of a reward

`features` says what it can see, `model` what it holds and how it scores, `fit` how it is trained, `files` how versions are kept.
Invariants: a version is named by its content and never overwritten; scoring is a pure function of version, question and answer;
nothing is read from disk that could run.
"""
