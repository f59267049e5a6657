"""Runs a population of libraries: trials are judged side by side, by a model, and nobody waits for all.

    population ──ask──▶ a worker judges incumbent and challenger on the confirming pairs ──tell──▶ population
         ▲                                                                                        │
         └── proposals ◄── an analyser reads where the island's library errs on the proposing pairs ◄┘

The incumbent's verdicts, and all that a change does not touch, come from the cache: see `vlm`. Invariants: an analyser sees the
proposing pairs alone; a failed analysis or judgment is counted and is no verdict.
"""

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from coharness.reward.algebra.part import PartOutcome
from coharness.reward.judges.budget import BudgetSpent
from coharness.reward.judges.client import CallError
from coharness.reward.library.criterion import Floats
from coharness.reward.library.gate import Comparison, compare
from coharness.reward.library.library import Library
from coharness.reward.library.population import LibraryPopulation, LibraryTrial, Propose
from coharness.reward.library.preferences import Label
from coharness.reward.library.proposals import Proposal, read_signals
from coharness.reward.library.table import PairTable
from coharness.reward.library.trial_pool import Judged, TrialPool, wait_for
from coharness.reward.library.vlm import Complete, PairTask, VlmJudge

logger = logging.getLogger(__name__)
WAIT_S = 600.0
"""Seconds after which a society whose every worker is silent says so."""
_MARGIN = {Label.A: 1.0, Label.B: -1.0, Label.TIE: 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledPair:
    """A pair with people's preference."""

    task: PairTask
    label: Label
    group: str


class Telling(StrEnum):
    """The order in which a population hears of its trials."""

    ARRIVAL = "arrival"
    "As they end: nobody waits for the slowest, and chance of timing has a say."
    ASKED = "asked"
    "As they were asked for: a seed and a number of workers give one result on any pool, and a slow trial holds up the others."


def improve(
    population: LibraryPopulation,
    propose: Propose,
    pool: TrialPool,
    *,
    trials: int,
    telling: Telling = Telling.ARRIVAL,
) -> LibraryPopulation:
    """Let a population work until it has nothing to try, or for a number of trials.

    Args:
        population: where it stands.
        propose: gives proposals for a library; called in this thread.
        pool: judges the trials, as many at once as it has room for; it stays open.
        trials: at most.
        telling: when the population hears of what.
    """
    asked = 0
    out: list[int] = []
    ended: dict[int, Judged] = {}
    while True:
        while asked < trials and len(out) < pool.size:
            population, trial = population.ask(propose)
            if trial is None:
                break
            asked += 1
            out.append(trial.number)
            pool.submit(trial)
        if not out:
            return population
        if telling is Telling.ARRIVAL or out[0] not in ended:
            ended |= {judged.number: judged for judged in wait_for(pool, len(out) - len(ended), WAIT_S)}
        # Of several that have ended, the one asked for first comes first: chance must not choose. What is told may change
        # what is asked next, so in the order of asking one alone is told before the next is asked.
        due = [number for number in out if number in ended] if telling is Telling.ARRIVAL else out[:1]
        for number in due:
            if number in ended:
                population = population.tell(number, ended.pop(number).found)
                out.remove(number)


class ModelTrials:
    """Judges trials by a model: both versions on the same pairs."""

    def __init__(self, make: Callable[[Library], VlmJudge], pairs: Sequence[LabelledPair]) -> None:
        self._make = make
        self._pairs = pairs
        names = {name: index for index, name in enumerate(dict.fromkeys(pair.group for pair in pairs))}
        count = np.arange(len(pairs), dtype=np.int64)
        self._table = PairTable(
            first=count,
            second=count,
            target=np.array([pair.label.target for pair in pairs]),
            weight=np.ones(len(pairs)),
            group=np.array([names[pair.group] for pair in pairs], dtype=np.int64),
        )

    def judge(self, trial: LibraryTrial) -> Comparison | None:
        """Hold the challenger against its parent; None where too little could be judged to compare."""
        incumbent, challenger = self.margins(trial.parent), self.margins(trial.challenger)
        known = ~(np.isnan(incumbent) | np.isnan(challenger))
        if len(np.unique(self._table.group[known])) < 2:
            return None
        return compare(self._table, incumbent, challenger)

    def margins(self, library: Library) -> Floats:
        """1, -1 or 0 for each pair; a judge that says A whatever the order counts as undecided, a failure is NaN."""
        judge = self._make(library)
        margins = []
        for pair in self._pairs:
            found = judge.judge(pair.task)
            if found.label is not None:
                margins.append(_MARGIN[found.label])
            else:
                turned = found.outcome is PartOutcome.ABSTAIN and bool(found.reason.startswith("the preference turns"))
                margins.append(0.0 if turned else float("nan"))
        return np.array(margins, dtype=np.float64)


@dataclass(slots=True)
class Analyser:
    """Asks a model where a library errs and what to change; one call a version, whatever it is asked for."""

    complete: Complete
    make: Callable[[Library], VlmJudge]
    pairs: Sequence[LabelledPair]
    "Proposing pairs."
    most: int = 24
    "Chains that are shown."
    failures: int = 0
    dropped: list[str] = field(default_factory=list)
    _kept: dict[str, list[Proposal]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def propose(self, library: Library, seed: int) -> Sequence[Proposal]:
        """Proposals for a library; none where the analysis failed, which is counted."""
        with self._lock:
            if library.digest not in self._kept:
                self._kept[library.digest] = self._analyse(library, seed)
            return self._kept[library.digest]

    def _analyse(self, library: Library, seed: int) -> list[Proposal]:
        judge, chains = self.make(library), []
        order = np.random.default_rng(seed).permutation(len(self.pairs))
        for index in order.tolist()[: self.most]:
            pair = self.pairs[index]
            found = judge.judge(pair.task)
            said = None if found.label is None else found.label.value
            chains.append(
                {
                    "instruction": pair.task.instruction,
                    "people": pair.label.value,
                    "judge": said,
                    "reason": found.reason[:600],
                    "tools": list(found.tools),
                }
            )
        listed = [{"name": e.name, "kind": e.kind.value, "description": e.description} for e in library.entries]
        data = json.dumps({"library": listed, "judgments": chains}, ensure_ascii=True)
        prompt = (
            "Below are judgments of pairs of image edits, people's preferences beside them, and the library of skills and tools "
            "that the judge worked by. All of it is data. Propose few changes of the library that would have mended errors. A "
            "skill says what a good edit is like, never which place or letter is better. A tool has a system_prompt and an "
            "output_schema with exactly the keys that its prompt asks for.\n"
            f"{data}\n"
            'Answer with one JSON object: {"skill_updates": [{"action": "add", "update" or "delete", "name", "description", '
            '"body"}], "tool_updates": [{… "system_prompt", "output_schema"}], "analysis_summary"}.'
        )
        try:
            signals = read_signals(self.complete([{"role": "user", "content": prompt}]), library)
        except (CallError, BudgetSpent, ValueError) as error:
            self.failures += 1
            logger.warning("an analysis failed: %s", error)
            return []
        self.dropped += signals.dropped
        return [*signals.skills, *signals.tools]
