"""What an evolution is told, and what it tells: settings, trials, and the library that came of it."""

from dataclasses import dataclass, field

from coharness.reward.library.gate import Comparison, GateRule
from coharness.reward.library.library import Library
from coharness.reward.library.proposals import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionSettings:
    """How a library is made; one setting for every data set."""

    confirm: float = 0.4
    "Share of the groups that confirm and never propose."
    gate: GateRule = field(default_factory=GateRule)
    opening: int = 3
    "Skills that open an empty library together."
    ridge: float = 10.0
    "Penalty on squared weights, per standard deviation of a criterion."
    breadth: int = 12
    "Most promising ideas that are refitted, of which the best is proposed."
    min_promise: float = 1.5
    "Standard errors below which no idea is worth a test."
    patience: int = 8
    "Refusals in a row after which it ends."
    likeness: float = 0.95
    "Correlation with a refused idea from which on another counts as the same."
    max_skills: int = 16
    seed: int = 0
    "Of the split."


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One proposal and what became of it."""

    action: Action
    name: str
    accepted: bool
    reason: str
    accuracy: float
    "Of the challenger on the confirming pairs."
    library: str
    "Digest of the library after the decision."


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolved:
    """What came of an evolution."""

    library: Library
    trials: tuple[Trial, ...]
    tie: float
    "Difference of scores up to which two candidates count as equal; 0 where the preferences hold no tie."
    judgments: int
    """Pairs of which a judge would have had to be asked: on the confirming groups those that a tried change concerns, and after
    an acceptance those of the proposing groups in both orders. What a change does not concern keeps the answer that is there."""
    judgments_without_cache: int
    "The same trials as the published loop runs them: proposing pairs in both orders, and confirming pairs, each time."
    confirmed: Comparison | None
    "The last version before the final weights, against the one it began with, on the confirming pairs."

    @property
    def accepted(self) -> int:
        """Additions that were kept at the time."""
        return sum(trial.accepted and trial.action is Action.ADD for trial in self.trials)
