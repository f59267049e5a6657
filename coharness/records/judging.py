"""What a run says of its judge: alarms of the monitors, the rungs of the response, and what a repair measured."""

from dataclasses import dataclass
from enum import StrEnum

from coharness.records.ids import JudgeId


class Cause(StrEnum):
    """What raised an alarm."""

    CONFLICT = "conflict"
    "Judge and verifier contradict each other more often than in health."
    DIVERGENCE = "divergence"
    "The judge's opinion rises away from the benchmark, and a surface feature explains it."
    CANARY = "canary"
    "Known-bad items pass or known-good ones fail."


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """An alarm at one step."""

    step: int
    causes: tuple[Cause, ...]
    onset: int
    "Estimated step after which it began; the alarm's own where nothing dates it."
    shortcut: str | None = None
    "The feature that explains it, where one does."


class Rung(StrEnum):
    """How far the response to alarms has gone."""

    WATCH = "watch"
    "Nothing is wrong."
    AUDIT = "audit"
    "A larger share of rollouts is verified and put before people."
    REPAIR = "repair"
    "A judge that is fitted to what the monitors saw replaces the present one, if it passes its gate."
    FREEZE = "freeze"
    "The judge's weight in the reward falls to zero; the verifier alone trains."
    ROLL_BACK = "roll_back"
    "The last judge whose anchors held replaces the present one."
    STOP = "stop"
    "Training stops until a person looks."


@dataclass(frozen=True, slots=True, kw_only=True)
class MendedJudge:
    """A candidate that a repair made, and what it did beside the present judge; a test decides on these numbers alone."""

    judge: JudgeId
    incumbent: JudgeId
    num_attempts: int
    "Audited attempts that it was fitted to."
    num_pairs: int
    "Preference pairs, replayed ones included."
    num_conflict_pairs: int
    "Of those, pairs whose worse side the present judge rated high."
    fresh_attempts: int
    "Audited attempts of questions that it was not fitted to."
    fresh_conflicts_before: int
    "Conflicts among them under the present judge."
    fresh_conflicts_after: int
    "Conflicts under the candidate."
    fresh_wins: int
    "Fresh questions with fewer conflicts under the candidate."
    fresh_losses: int
    "Fresh questions with more."
    num_anchors: int
    anchors_right_before: int
    "Frozen pairs that the present judge orders rightly."
    anchors_right_after: int
    "Frozen pairs that the candidate orders rightly."
    anchors_wins: int
    "Frozen pairs that the candidate alone orders rightly."
    anchors_losses: int
    "Frozen pairs that the present judge alone orders rightly."
