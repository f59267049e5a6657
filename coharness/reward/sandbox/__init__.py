"""Sandbox for Python that a model wrote: layers from an expression reader to namespaces, and grading in which nothing that
decides ever meets the code that is judged. `SANDBOX.md` beside this file says what each layer holds and what none does.
"""

from coharness.reward.sandbox.examination import CodeTest
from coharness.reward.sandbox.grade import CodeGrader, Grade
from coharness.reward.sandbox.ladder import Sandbox
from coharness.reward.sandbox.program import Call, Layer, Limits, Outcome, Program, Raised, Returned, Status, Usage

__all__ = [
    "Call",
    "CodeGrader",
    "CodeTest",
    "Grade",
    "Layer",
    "Limits",
    "Outcome",
    "Program",
    "Raised",
    "Returned",
    "Sandbox",
    "Status",
    "Usage",
]
