"""The judge that a service has now, and how another takes its place: only after it has passed the canaries."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from coharness.reward.algebra.part import Part
from coharness.reward.judges.judgment import Judgment, Ranking, Versions
from coharness.reward.monitors.canary import Canary, CanaryReport, check_canaries


class ServedJudge(Protocol):
    """What a service needs of a judge; `RubricJudge` is one."""

    @property
    def versions(self) -> Versions:
        """What stands in its judgments."""
        ...

    def for_tenant(self, tenant: str) -> "ServedJudge":
        """The same judge with a tenant's own cache keys."""
        ...

    def score_all(self, items: Sequence[tuple[str, str]]) -> list[Judgment]:
        """Scores of (question, candidate) items."""
        ...

    def pair_all(self, items: Sequence[tuple[str, str, str]]) -> list[Judgment]:
        """Preferences of (question, first, second) items."""
        ...

    def rank(self, question: str, candidates: Sequence[str]) -> Ranking:
        """The order of candidates."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapReport:
    """What became of a new judge."""

    accepted: bool
    reason: str
    canaries: CanaryReport
    versions: Versions
    "Of the judge that serves now."


class JudgeSlot:
    """Holds the judge; safe in threads. Requests that began with one judge end with it."""

    def __init__(self, judge: ServedJudge, canaries: Sequence[Canary] = ()) -> None:
        self._judge = judge
        self._retired: list[ServedJudge] = []
        self._canaries = tuple(canaries)
        self._lock = threading.Lock()

    @property
    def judge(self) -> ServedJudge:
        """The judge that serves now."""
        with self._lock:
            return self._judge

    def swap(self, make: Callable[[], ServedJudge], *, max_unscored: float = 0.2) -> SwapReport:
        """Put another judge in place where it breaks no canary and could score most of them; else keep the present one."""
        candidate = make()
        judged = candidate.score_all([(c.question, c.answer) for c in self._canaries])
        scores = {
            canary.name: Part.ok("judge/score", j.value)
            if j.value is not None
            else Part.failed("judge/score", j.outcome, "")
            for canary, j in zip(self._canaries, judged, strict=True)
        }
        report = check_canaries(self._canaries, scores)
        problem = ""
        if not self._canaries:
            problem = "no canaries are known, so nothing could vouch for it"
        elif report.broken:
            problem = f"it breaks the canaries {', '.join(report.broken[:8])}"
        elif len(report.unscored) > max_unscored * len(self._canaries):
            problem = f"{len(report.unscored)} of {len(self._canaries)} canaries could not be scored"
        if problem:
            candidate.close()
            return SwapReport(accepted=False, reason=problem, canaries=report, versions=self.judge.versions)
        with self._lock:
            # The old one may still be answering: it is closed with the service.
            self._retired.append(self._judge)
            self._judge = candidate
        return SwapReport(accepted=True, reason="all canaries hold", canaries=report, versions=candidate.versions)

    def close(self) -> None:
        """Close all judges."""
        with self._lock:
            judges = [*self._retired, self._judge]
        for judge in judges:
            judge.close()
