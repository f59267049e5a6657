"""When the detectors together call it hacking: conflict alone, divergence with a shortcut to explain it, or broken canaries."""

from dataclasses import dataclass
from enum import StrEnum


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


def raise_alarm(
    step: int,
    *,
    conflict: bool,
    divergence: bool,
    shortcut: str | None,
    canary: bool = False,
    onset: int | None = None,
) -> Alarm | None:
    """An alarm where the rule says so, else None. Divergence without a shortcut is a finding, not an alarm."""
    causes = []
    if conflict:
        causes.append(Cause.CONFLICT)
    if divergence and shortcut is not None:
        causes.append(Cause.DIVERGENCE)
    if canary:
        causes.append(Cause.CANARY)
    if not causes:
        return None
    return Alarm(step=step, causes=tuple(causes), onset=step if onset is None else onset, shortcut=shortcut)
