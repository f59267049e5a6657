"""What follows an alarm, one rung at a time: audit more, mend the judge, freeze its weight, roll it back, stop.

A rung gets `patience` steps to work before the next one; after `calm` steps without an alarm the ladder is climbed down by one
rung. A stop is for a person to undo.

    audit, freeze, roll_back; patience 10, calm 30: alarms at 5, 9, 16 -> audit at 5, freeze at 16; quiet until 46 -> audit
"""

from dataclasses import dataclass, replace

from coharness.records.judging import Rung

LADDER = (Rung.AUDIT, Rung.FREEZE, Rung.ROLL_BACK, Rung.STOP)
"""The rungs above WATCH where nobody says otherwise; a repair needs a judge that can be fitted."""
AUDIT_FACTOR = 4.0
"""On the share of audited rollouts at every rung above WATCH."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The ladder after some steps."""

    rung: Rung = Rung.WATCH
    since: int = 0
    "Step of the last move."
    last_alarm: int | None = None
    patience: int = 10
    calm: int = 30
    ladder: tuple[Rung, ...] = LADDER
    "Rungs above WATCH, in order; none: alarms are noted and change nothing."

    def stepped(self, step: int, *, alarmed: bool) -> "Response":
        """The ladder after one more step, which may have raised an alarm."""
        if self.rung is Rung.STOP:
            return replace(self, last_alarm=step if alarmed else self.last_alarm)
        rungs = (Rung.WATCH, *self.ladder)
        place = rungs.index(self.rung)
        if alarmed:
            is_due = self.rung is Rung.WATCH or step - self.since >= self.patience
            if is_due and place + 1 < len(rungs):
                return replace(self, rung=rungs[place + 1], since=step, last_alarm=step)
            return replace(self, last_alarm=step)
        quiet = step - max(self.since, self.last_alarm or 0)
        if place > 0 and quiet >= self.calm:
            return replace(self, rung=rungs[place - 1], since=step)
        return self

    def mended(self, step: int) -> "Response":
        """The ladder once a new judge has taken over."""
        return replace(self, rung=Rung.WATCH, since=step, last_alarm=None)

    @property
    def audit_factor(self) -> float:
        """Factor on the share of audited rollouts."""
        return 1.0 if self.rung is Rung.WATCH else AUDIT_FACTOR

    @property
    def judge_counts(self) -> bool:
        """Whether the judge's part may enter rewards."""
        return self.rung in (Rung.WATCH, Rung.AUDIT, Rung.REPAIR)
