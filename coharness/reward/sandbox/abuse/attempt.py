"""What an attempt at abuse is: programs, and how a host can tell that one got what it wanted.

Each program defines `attack(host)`; `host` is a dict of what an attacker outside would aim at (`bait.Bait.told`). The programs
are our own and report honestly, so that what they return counts as evidence here, as it never would in a grade.
"""

from dataclasses import dataclass
from enum import StrEnum

from coharness.reward.sandbox.program import Status


class Verdict(StrEnum):
    """What became of an attempt."""

    CONTAINED = "contained"
    "It ran, or began to, and got nothing."
    UNSUPPORTED = "unsupported"
    "The layer cannot even run it; the next layer decides."
    NOT_CONTAINED = "not contained"
    "It got what it wanted."


class Goal(StrEnum):
    """How to tell that an attempt got what it wanted."""

    REACH = "reach"
    "`attack` returns a text that is not empty."
    END = "end"
    "It does not end as it should: within its time, as one of `statuses`."
    GRADE = "grade"
    "`attack`, graded as a candidate of a small task that it does not solve, is found right."
    TEXT = "text"
    "What is kept of its output holds characters that a terminal or a page would obey."
    CLOCK = "clock"
    "It took a while and the host believes that it did not."


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One kind of abuse. The host also looks, after each, for processes, files and shared memory left behind."""

    number: int
    name: str
    goal: Goal
    programs: tuple[str, ...]
    "Variants; the worst verdict counts. A program of one line without `def` is an expression."
    statuses: frozenset[Status] = frozenset()
    "For END: the honest ones."
