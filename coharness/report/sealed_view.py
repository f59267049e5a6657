"""Owns what a run may claim from its sealed tasks: intervals of each arm, differences, the four cells, and the words.

Reads `sealed.json`, which `coharness.loop.sealed` writes once after the run. Invariants: rows of all arms stand in the same
task order, so every difference is paired by task; intervals are bootstraps over tasks stratified by family and level
with a seed derived from the run, so the same file always prints the same numbers. The claim rule: one run holds no
control schedule, so it never says that evolving both together is better than evolving one; it says how the champion
compares with the untouched base and with a majority vote of it.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coharness.records.errors import CoharnessError, ConfigError
from coharness.records.ids import derive_seed
from coharness.report.wording import percent, points
from coharness.stats.bootstrap import interaction_interval, stratified_difference_interval, stratified_mean_interval
from coharness.stats.interval import Interval

SEALED_SCHEMA = 1
BASE, WEIGHTS_ONLY, HARNESS_ONLY, CHAMPION = "theta0_h0", "theta_h0", "theta0_h", "theta_h"
CELLS: Mapping[str, str] = {
    BASE: "untouched base, initial harness",
    WEIGHTS_ONLY: "evolved weights, initial harness",
    HARNESS_ONLY: "untouched base, evolved harness",
    CHAMPION: "evolved weights, evolved harness",
}
"""The four cells of a swap at inference, in the order they are shown."""
VOTES: Mapping[str, str] = {
    "vote_equal_rollouts": "as many as the run's rollouts pay for",
    "vote_equal_tokens": "as many as the champion's tokens a task pay for",
}
Values = npt.NDArray[np.float64]
Strata = dict[tuple[str, int], Values]


class SealedError(CoharnessError):
    """`sealed.json` cannot be read: newer schema, or arms that do not hold the same tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One serving pairing on all sealed tasks."""

    name: str
    serving: str
    k: int
    "Samples a task: 1 is greedy."
    correct: Values
    "0 or 1 [num_tasks]."
    tokens: Values
    "Tokens of each task, prompt and answer, over all samples [num_tasks]."
    oracle: Values | None
    "For votes: whether any of the k samples was correct [num_tasks]."


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone:
    """The champion of one moment, measured after the run."""

    rollouts: int
    tokens: int
    cpu_s: float
    arm: Arm


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """The champion's greedy answers to some tasks, taken a second time in other batches; they must not differ."""

    num_pairs: int
    num_discordant: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """All sealed readings of a run."""

    run_id: str
    seed: int
    families: tuple[str, ...]
    strata: tuple[tuple[str, int], ...]
    "Stratum of each task [num_tasks]: family and level, or coarser where one would hold a single task."
    arms: Mapping[str, Arm]
    milestones: tuple[Milestone, ...]
    twin: Twin | None
    "None where the file holds no such check."

    @property
    def num_tasks(self) -> int:
        """Tasks of each arm."""
        return len(self.families)

    def _strata(self, values: Values) -> Strata:
        rows: dict[tuple[str, int], list[int]] = {}
        for i, key in enumerate(self.strata):
            rows.setdefault(key, []).append(i)
        return {key: values[index] for key, index in sorted(rows.items())}

    def _rng(self, figure: str) -> np.random.Generator:
        return np.random.default_rng(derive_seed(self.run_id, self.seed, "report", figure))

    def success(self, arm: Arm) -> Interval:
        """J of an arm: the mean of the strata's success rates."""
        return stratified_mean_interval(self._strata(arm.correct), rng=self._rng(f"success {arm.name}"))

    def oracle(self, arm: Arm) -> Interval | None:
        """Share of tasks that any of k samples solves; no control, a bound."""
        if arm.oracle is None:
            return None
        return stratified_mean_interval(self._strata(arm.oracle), rng=self._rng(f"oracle {arm.name}"))

    def difference(self, first: str, second: str) -> Interval:
        """J(first) - J(second), paired by task."""
        return stratified_difference_interval(
            self._strata(self.arms[first].correct),
            self._strata(self.arms[second].correct),
            rng=self._rng(f"difference {first} {second}"),
        )

    def interaction(self) -> Interval:
        """J(theta, h) - J(theta, h0) - J(theta0, h) + J(theta0, h0), paired by task."""
        j00, j10, j01, j11 = (self._strata(self.arms[name].correct) for name in CELLS)
        return interaction_interval(j00, j10, j01, j11, rng=self._rng("interaction"))

    def by_family(self, arm: Arm) -> dict[str, tuple[int, int]]:
        """Family -> (tasks solved, tasks)."""
        index = {family: np.array([f == family for f in self.families]) for family in sorted(set(self.families))}
        return {family: (int(arm.correct[rows].sum()), int(rows.sum())) for family, rows in index.items()}

    def votes(self) -> list[Arm]:
        """The majority votes that were measured."""
        return [self.arms[name] for name in VOTES if name in self.arms]

    def _tokens(self, name: str) -> str:
        return f"{self.arms[name].tokens.mean():.1f}"

    def claims(self) -> list[str]:
        """What this run shows, a sentence each."""
        champion, base = self.success(self.arms[CHAMPION]), self.success(self.arms[BASE])
        gain = self.difference(CHAMPION, BASE)
        sentences = [
            f"On {self.num_tasks:,} sealed tasks the champion {self.arms[CHAMPION].serving} solves {percent(champion.value)} "
            f"at {self._tokens(CHAMPION)} tokens a task and the untouched base {percent(base.value)} at {self._tokens(BASE)}: "
            f"a difference of {points(gain)}.",
            "The champion is better than the untouched base on these tasks."
            if gain.low > 0
            else "The champion is worse than the untouched base on these tasks."
            if gain.high < 0
            else "The interval holds zero: this run does not show that the champion differs from the untouched base.",
        ]
        for vote in self.votes():
            row = self.success(vote)
            exceeds = "lies above" if champion.low > row.value else "does not exceed"
            sentences.append(
                f"The champion's lower bound, {percent(champion.low)}, {exceeds} the {percent(row.value)} of a majority vote "
                f"of {vote.k} samples of the base ({VOTES[vote.name]}), at {self._tokens(vote.name)} tokens a task."
            )
        if not self.votes():
            sentences.append("No majority vote of the base was measured, so more samples alone may explain the gain.")
        return sentences


NOT_CLAIMED = (
    "One run cannot say whether evolving weights and harness together is better than evolving one of them: that needs "
    "the control schedules of a study over several seeds.",
    "The four cells are a swap at inference. Weights that were trained under the evolved curriculum carry that curriculum "
    "with them, so the cells do not split what training-time genes gave.",
    "Intervals are over sealed tasks of this one run; another seed may end elsewhere.",
)
"""What no page of a single run claims."""


def read_sealed(path: Path) -> Sealed | None:
    """The sealed readings of a run, None where they have not been taken.

    Raises:
        SealedError: newer schema, fewer than 2 tasks, or arms whose rows are not the same tasks in the same order.
        ConfigError: the file is not JSON.
    """
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not JSON ({error}); delete it and measure the sealed tasks again") from error
    return parse_sealed(data)


def parse_sealed(data: Mapping[str, Any]) -> Sealed:
    """The sealed readings from JSON values; see `read_sealed` for the errors."""
    if data.get("schema") != SEALED_SCHEMA:
        raise SealedError(f"sealed.json has schema {data.get('schema')!r}, this code reads {SEALED_SCHEMA}")
    missing = [name for name in CELLS if name not in data["arms"]]
    if missing:
        raise SealedError(f"sealed.json lacks the arms {', '.join(missing)}; measure the sealed tasks again")
    tasks = [tuple(row[:3]) for row in data["arms"][BASE]["rows"]]
    if len(tasks) < 2:
        raise SealedError(f"sealed.json holds {len(tasks)} tasks, an interval needs 2 or more")
    twin = data.get("twin")
    return Sealed(
        run_id=str(data["run"]),
        seed=int(data["seed"]),
        families=tuple(task[0] for task in tasks),
        strata=_strata_of([(str(task[0]), int(task[1])) for task in tasks]),
        twin=Twin(num_pairs=int(twin["pairs"]), num_discordant=int(twin["discordant"])) if twin else None,
        arms={name: _arm(name, arm, tasks) for name, arm in data["arms"].items()},
        milestones=tuple(
            Milestone(
                rollouts=int(m["rollouts"]),
                tokens=int(m["tokens"]),
                cpu_s=float(m["cpu_s"]),
                arm=_arm(f"milestone at {m['rollouts']}", {"serving": m["serving"], **m["arm"]}, tasks),
            )
            for m in data.get("milestones", ())
        ),
    )


def _strata_of(cells: list[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """The finest strata of at least two tasks each: by family and level, by family, or all tasks together."""
    for keys in (cells, [(family, 0) for family, _ in cells]):
        if min(Counter(keys).values()) >= 2:
            return tuple(keys)
    return (("all", 0),) * len(cells)


def _arm(name: str, data: Mapping[str, Any], tasks: list[tuple[Any, ...]]) -> Arm:
    rows = data["rows"]
    if [tuple(row[:3]) for row in rows] != tasks:
        raise SealedError(
            f"arm {name} of sealed.json holds other tasks than {BASE}, or in another order; measure them again"
        )
    oracle = data.get("oracle_correct")
    if oracle is not None and len(oracle) != len(tasks):
        raise SealedError(f"arm {name} of sealed.json has {len(oracle)} oracle rows for {len(tasks)} tasks")
    return Arm(
        name=name,
        serving=str(data["serving"]),
        k=int(data["k"]),
        correct=np.array([row[3] for row in rows], dtype=np.float64),
        tokens=np.array([row[4] for row in rows], dtype=np.float64),
        oracle=None if oracle is None else np.array(oracle, dtype=np.float64),
    )
