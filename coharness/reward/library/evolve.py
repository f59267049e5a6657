"""A library from preferences: analyse, propose, gate on fresh groups, prune, and only then weigh on everything.

    groups ──split──▶ proposing ──▶ promise of ideas ──▶ best of the most promising, refitted ──▶ proposal
               └────▶ confirming ──────────────────────────────────────────────▶ gate ──accept──▶ next version
                                                                                  └──refuse──▶ next idea, unlike it

Structure is chosen on the proposing groups and decided on the confirming ones; weights follow by refitting at each step, and
once more on all preferences when the structure stands. Pure: the same table, preferences and settings give the same library.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from coharness.records.errors import ConfigError
from coharness.reward.library.chain import promise
from coharness.reward.library.criterion import Floats
from coharness.reward.library.entries import Entry
from coharness.reward.library.evolution import EvolutionSettings, Evolved, Trial
from coharness.reward.library.executor import design
from coharness.reward.library.fit import fit_weights, log_losses
from coharness.reward.library.gate import Comparison, Decision, Ledger, compare
from coharness.reward.library.ideas import FeatureNote, Pool, entry_of_criterion, pool_of
from coharness.reward.library.library import Library
from coharness.reward.library.proposals import Action, Proposal
from coharness.reward.library.table import FeatureTable, PairTable, split_groups

logger = logging.getLogger(__name__)


def evolve(
    table: FeatureTable,
    pairs: PairTable,
    settings: EvolutionSettings,
    *,
    start: Library,
    notes: Mapping[str, FeatureNote] | None = None,
    pool: Pool | None = None,
) -> Evolved:
    """Improve a library by preferences.

    Args:
        table: measurements of all candidates.
        pairs: preferences; ties may be among them.
        settings: the procedure.
        start: what to begin with; entries without a criterion stay as they are.
        notes: what the domain says of its features, for the texts of skills.
        pool: `pool_of(table)`, where several evolutions share a table.

    Raises:
        ValueError: fewer than two groups to propose or to confirm on.
        KeyError: the library counts a feature that was not measured.
    """
    search = _Search(table, pairs, settings, start, notes or {}, pool or pool_of(table))
    search.grow()
    search.prune()
    return search.finish()


@dataclass(slots=True)
class _Version:
    """A library with its margins on both halves."""

    library: Library
    propose: Floats
    confirm: Floats


@dataclass(slots=True)
class _Search:
    table: FeatureTable
    pairs: PairTable
    settings: EvolutionSettings
    start: Library
    notes: Mapping[str, FeatureNote]
    pool: Pool
    trials: list[Trial] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    judgments: int = 0
    uncached: int = 0
    proposing: PairTable = field(init=False)
    confirming: PairTable = field(init=False)
    origin: _Version = field(init=False)
    now: _Version = field(init=False)

    def __post_init__(self) -> None:
        with_pairs = np.unique(self.pairs.group)
        if len(with_pairs) < 4:
            raise ValueError(
                f"got preferences on {len(with_pairs)} groups, expected 4 or more to propose and to confirm on"
            )
        names = [self.table.names[index] for index in with_pairs]
        confirms = np.zeros(len(self.table.names), dtype=np.bool_)
        confirms[with_pairs[split_groups(names, self.settings.confirm, self.settings.seed)]] = True
        self.confirming = self.pairs.of_groups(confirms)
        self.proposing = self.pairs.of_groups(~confirms)
        self.now = self.origin = self._version(self.start, refit=False)
        if self.start.criteria:
            # Whoever brings a library has opened the gate by other evidence; what it gains is still tested.
            self.ledger = Ledger(tests=0, passed=1)

    # Growing ---------------------------------------------------------------------------------------------------------

    def grow(self) -> None:
        """Add skills until nothing promising is left, or too many were refused in a row.

        The gate is opened by a few skills at once: each alone may be too little to tell from a coin on few groups.
        """
        closed = np.zeros(len(self.pool.criteria), dtype=np.bool_)
        differences = self._differences(self.pool.columns, self.proposing)
        norms = np.maximum(np.sqrt((differences**2).sum(axis=0)), 1e-12)
        refused = 0
        while refused < self.settings.patience and len(self.now.library.criteria) < self.settings.max_skills:
            challenger, added = self.now, dict[str, int]()
            for _ in range(1 if self.ledger.is_open else self.settings.opening):
                option = self._best(challenger, differences, closed)
                if option is None:
                    break
                challenger, name, index = option
                added[name] = index
                closed[index] = True
            if not added:
                return
            found = compare(self.confirming, self.now.confirm, challenger.confirm)
            if self.ledger.is_open:
                decision = self.settings.gate.add(found)
            else:
                decision, self.ledger = self.settings.gate.open(found, self.ledger)
            self._decide(Action.ADD, tuple(added), challenger, found, decision)
            refused = 0 if decision.accept else refused + 1
            if not decision.accept:
                # Near twins of what was refused would be refused on the same pairs, or pass by chance.
                for index in added.values():
                    alike = differences.T @ differences[:, index] / (norms * norms[index])
                    closed |= np.abs(alike) >= self.settings.likeness

    def _best(
        self, version: "_Version", differences: Floats, closed: npt.NDArray[np.bool_]
    ) -> tuple["_Version", str, int] | None:
        """Of the most promising ideas the one that is best once refitted, its name and index; None where none is promising.

        Ideas that the linter refuses beside what is there are closed, and cost no test.
        """
        hopes = np.where(closed, 0.0, promise(differences, version.propose, self.proposing))
        ranked = np.argsort(-np.abs(hopes), kind="stable")[: self.settings.breadth]
        made = []
        for index in ranked[np.abs(hopes[ranked]) >= self.settings.min_promise].tolist():
            entry = self._entry(index, float(np.sign(hopes[index])), version.library)
            made.append((self._version(version.library.added(entry)), entry, index))
        for option, entry, index in sorted(made, key=lambda each: self._proposing_loss(each[0])):
            if not _is_unfit(entry, version.library):
                return option, entry.name, index
            closed[index] = True
        return None

    def _entry(self, index: int, sign: float, library: Library) -> Entry:
        criterion = replace(self.pool.criteria[index], weight=sign)
        note = self.notes.get(criterion.feature)
        criterion = criterion if note is None else replace(criterion, axis=note.axis)
        return entry_of_criterion(criterion, [entry.name for entry in library.entries], self.notes)

    # Pruning ---------------------------------------------------------------------------------------------------------

    def prune(self) -> None:
        """Delete, one by one, what the others make up for; each deletion is gated against what is left by then."""
        kept: set[str] = set()
        while len(self.now.library.criteria) > 1:
            options = [name for name, _ in self.now.library.criteria if name not in kept]
            versions = [(self._version(self.now.library.without(name)), name) for name in options]
            if not versions:
                return
            challenger, name = min(versions, key=lambda option: self._proposing_loss(option[0]))
            found = compare(self.confirming, self.now.confirm, challenger.confirm)
            decision = self.settings.gate.delete(found)
            self._decide(Action.DELETE, (name,), challenger, found, decision)
            kept.add(name)

    # Versions --------------------------------------------------------------------------------------------------------

    def finish(self) -> Evolved:
        """Weigh the structure that stands on all preferences, and place the zone of ties."""
        library = self.now.library
        confirmed = None
        tie = 0.0
        if library.criteria:
            confirmed = compare(self.confirming, self.origin.confirm, self.now.confirm)
            if library is not self.start:
                library = self._weighed(library, self.pairs)
            tie = self._tie(library)
        return Evolved(
            library=library, trials=tuple(self.trials), tie=tie, judgments=self.judgments,
            judgments_without_cache=self.uncached, confirmed=confirmed,
        )  # fmt: skip

    def _version(self, library: Library, *, refit: bool = True) -> _Version:
        if refit:
            library = self._weighed(library, self.proposing)
        criteria = [criterion for _, criterion in library.criteria]
        columns = np.nan_to_num(design(self.table, criteria), nan=0.0)
        values = columns @ np.array([criterion.weight for criterion in criteria], dtype=np.float64)
        return _Version(
            library=library,
            propose=values[self.proposing.first] - values[self.proposing.second],
            confirm=values[self.confirming.first] - values[self.confirming.second],
        )

    def _weighed(self, library: Library, pairs: PairTable) -> Library:
        criteria = [criterion for _, criterion in library.criteria]
        differences = self._differences(np.nan_to_num(design(self.table, criteria), nan=0.0), pairs)
        weights = fit_weights(differences, pairs.target, pairs.weight, self.settings.ridge)
        rounded = [float(f"{weight:.6g}") for weight in weights]
        return library.reweighted(dict(zip((name for name, _ in library.criteria), rounded, strict=True)))

    def _tie(self, library: Library) -> float:
        """The zone that makes as many ties as the preferences have, 0 where they have none."""
        share = float((self.pairs.target == 0.5).mean())
        if share == 0.0:
            return 0.0
        columns = np.nan_to_num(design(self.table, [criterion for _, criterion in library.criteria]), nan=0.0)
        values = columns @ np.array([criterion.weight for _, criterion in library.criteria], dtype=np.float64)
        return float(np.quantile(np.abs(values[self.pairs.first] - values[self.pairs.second]), share))

    def _proposing_loss(self, version: _Version) -> float:
        return float((self.proposing.weight * log_losses(version.propose, self.proposing.target)).mean())

    def _decide(
        self, action: Action, names: tuple[str, ...], challenger: "_Version", found: Comparison, decision: Decision
    ) -> None:
        library = (challenger if action is Action.ADD else self.now).library
        changed = [library.entry(name).criterion for name in names]
        concerned = np.zeros(len(self.table.group), dtype=np.bool_)
        for criterion in changed:
            concerned |= self.table.applies(() if criterion is None else criterion.contexts)
        self.judgments += int(concerned[self.confirming.first].sum())
        self.judgments += 2 * int(concerned[self.proposing.first].sum()) if decision.accept else 0
        self.uncached += 2 * len(self.proposing) + len(self.confirming)
        if decision.accept:
            self.now = challenger
        for name in names:
            self.trials.append(
                Trial(
                    action=action,
                    name=name,
                    accepted=decision.accept,
                    reason=decision.reason,
                    accuracy=found.challenger,
                    library=self.now.library.digest,
                )
            )

    @staticmethod
    def _differences(columns: Floats, pairs: PairTable) -> Floats:
        return np.asarray(columns[pairs.first] - columns[pairs.second])


def _is_unfit(entry: Entry, library: Library) -> bool:
    """Whether the linter refuses an entry beside those that are there."""
    try:
        Proposal(action=Action.ADD, name=entry.name, entry=entry).applied(library)
    except ConfigError as error:
        logger.info("an idea was dropped: %s", error)
        return True
    return False
