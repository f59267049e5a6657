"""An asynchronous population of libraries: islands that each hold a version, improve it by trials, and send each other entries.

    ask ─► Trial(island, library) ─► whoever has time judges it ─► tell(result) ─► island keeps or drops it ─► ask …

Pure: time, processes and models are outside. Any number of trials may be out at once and come back in any order; nobody waits for
the slowest. Invariants: a result counts against the island's version at the time of telling, and only where the trial was made
from that very version (else it is stale and made anew from the new one); the same answers in the same order give the same state.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from coharness.records.errors import ConfigError
from coharness.records.ids import derive_seed, hash_unit
from coharness.reward.library.gate import Comparison, GateRule
from coharness.reward.library.library import Library
from coharness.reward.library.proposals import Action, Proposal

Propose = Callable[[Library, int], Sequence[Proposal]]
"""(library, seed) -> proposals in the order in which they should be tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryTrial:
    """One proposal to be judged against its island's version."""

    number: int
    island: int
    parent: Library
    challenger: Library
    proposal: Proposal
    immigrant_from: int | None = None
    "Island that the entry was taken from, where it was."


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """One lineage."""

    library: Library
    accepted: int = 0
    refused: tuple[str, ...] = ()
    "Digests of proposals that failed against the version as it is."
    accuracy: float = 0.5
    "On the confirming pairs of its last accepted trial."


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryPopulation:
    """The state; every operation gives another one."""

    islands: tuple[Island, ...]
    rule: GateRule
    migrate: float = 0.2
    "Share of trials that try an entry of another island instead of a new idea."
    seed: int = 0
    next_number: int = 0
    out: Mapping[int, LibraryTrial] = field(default_factory=dict)
    "Trials that are being judged."
    stale: int = 0
    "Results that came after their island had moved on."

    @classmethod
    def of(
        cls, starts: Sequence[Library], rule: GateRule, *, migrate: float = 0.2, seed: int = 0
    ) -> "LibraryPopulation":
        """A population of these libraries.

        Raises:
            ConfigError: there is none.
        """
        if not starts:
            raise ConfigError("a population of libraries needs at least one to begin with; an empty library is one")
        return cls(islands=tuple(Island(library=start) for start in starts), rule=rule, migrate=migrate, seed=seed)

    def ask(self, propose: Propose) -> tuple["LibraryPopulation", LibraryTrial | None]:
        """The next trial, for the island that has the fewest out; None where nobody has anything new to try."""
        waiting = {index: sum(t.island == index for t in self.out.values()) for index in range(len(self.islands))}
        for index in sorted(waiting, key=lambda i: (waiting[i], self.islands[i].accepted, i)):
            trial = self._trial(index, propose)
            if trial is not None:
                moved = replace(self, next_number=self.next_number + 1, out={**self.out, trial.number: trial})
                return moved, trial
        return self, None

    def tell(self, number: int, found: Comparison | None) -> "LibraryPopulation":
        """Take a result; None is a failed judgment, which says nothing about the proposal and may be tried again.

        Raises:
            KeyError: no such trial is out.
        """
        trial = self.out[number]
        rest = {key: other for key, other in self.out.items() if key != number}
        island = self.islands[trial.island]
        if island.library.digest != trial.parent.digest:
            return replace(self, out=rest, stale=self.stale + 1)
        if found is None:
            return replace(self, out=rest)
        decision = self.rule.delete(found) if trial.proposal.action is Action.DELETE else self.rule.add(found)
        if decision.accept:
            island = Island(library=trial.challenger, accepted=island.accepted + 1, accuracy=found.challenger)
        else:
            island = replace(island, refused=(*island.refused, trial.proposal.digest))
        islands = tuple(island if index == trial.island else one for index, one in enumerate(self.islands))
        return replace(self, islands=islands, out=rest)

    @property
    def best(self) -> Island:
        """The island with the highest confirmed accuracy; of equal ones, the one with fewer entries, then the first."""
        return max(self.islands, key=lambda island: (island.accuracy, -len(island.library.entries)))

    def _trial(self, index: int, propose: Propose) -> LibraryTrial | None:
        island = self.islands[index]
        tried = {*island.refused, *(t.proposal.digest for t in self.out.values() if t.island == index)}
        number = self.next_number
        options: list[tuple[Proposal, int | None]] = [
            (proposal, None) for proposal in propose(island.library, derive_seed(self.seed, index, island.accepted))
        ]
        if hash_unit(self.seed, "migrate", number) < self.migrate:
            options = [*self._immigrants(index), *options]
        for proposal, origin in options:
            if proposal.digest in tried:
                continue
            try:
                challenger = proposal.applied(island.library)
            except ConfigError:
                continue  # refused by the linter or by the library; costs no trial
            return LibraryTrial(
                number=number, island=index, parent=island.library, challenger=challenger, proposal=proposal,
                immigrant_from=origin,
            )  # fmt: skip
        return None

    def _immigrants(self, index: int) -> list[tuple[Proposal, int | None]]:
        own = {entry.digest for entry in self.islands[index].library.entries}
        names = {entry.name for entry in self.islands[index].library.entries}
        found: list[tuple[Proposal, int | None]] = []
        for other, island in enumerate(self.islands):
            for entry in island.library.entries:
                if other == index or entry.digest in own:
                    continue
                action = Action.UPDATE if entry.name in names else Action.ADD
                why = f"taken from island {other}"
                found.append((Proposal(action=action, name=entry.name, entry=entry, reason=why), other))
        return sorted(found, key=lambda pair: hash_unit(self.seed, self.next_number, pair[0].digest))
