"""What follows an alarm, one rung at a time: audit more, freeze weights, roll back the judge, stop.

A rung gets `patience` steps to work before the next one; after `calm` steps without an alarm the ladder is climbed down by one
rung. A stop is for a person to undo.

    patience 10, calm 30: alarms at 5, 9, 16 -> audit at 5, freeze at 16; quiet until 46 -> audit
"""

from dataclasses import dataclass, replace
from enum import StrEnum


class Rung(StrEnum):
    """How far the response has gone."""

    WATCH = "watch"
    "Nothing is wrong."
    AUDIT = "audit"
    "A larger share of rollouts is verified and put before people."
    FREEZE = "freeze"
    "The judge's weight in the reward falls to zero; the verifier alone trains."
    ROLL_BACK = "roll_back"
    "The last judge whose anchors held replaces the present one."
    STOP = "stop"
    "Training stops until a person looks."


LADDER = tuple(Rung)
AUDIT_SHARES = {Rung.WATCH: 1.0, Rung.AUDIT: 4.0, Rung.FREEZE: 4.0, Rung.ROLL_BACK: 4.0, Rung.STOP: 4.0}
"""Rung -> factor on the share of audited rollouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The ladder after some steps."""

    rung: Rung = Rung.WATCH
    since: int = 0
    "Step of the last move."
    last_alarm: int | None = None
    patience: int = 10
    calm: int = 30

    def stepped(self, step: int, *, alarmed: bool) -> "Response":
        """The ladder after one more step, which may have raised an alarm."""
        if self.rung is Rung.STOP:
            return replace(self, last_alarm=step if alarmed else self.last_alarm)
        place = LADDER.index(self.rung)
        if alarmed:
            if self.rung is Rung.WATCH or step - self.since >= self.patience:
                return replace(self, rung=LADDER[place + 1], since=step, last_alarm=step)
            return replace(self, last_alarm=step)
        quiet = step - max(self.since, self.last_alarm or 0)
        if place > 0 and quiet >= self.calm:
            return replace(self, rung=LADDER[place - 1], since=step)
        return self

    @property
    def audit_factor(self) -> float:
        """Factor on the share of audited rollouts."""
        return AUDIT_SHARES[self.rung]

    @property
    def judge_counts(self) -> bool:
        """Whether the judge's part may enter rewards."""
        return self.rung in (Rung.WATCH, Rung.AUDIT)
