"""Selection rules as a config spells them, one section a rule, told apart by `type`."""

from typing import Annotated, Literal

from pydantic import Field

from coharness.config.schema import Section
from coharness.evolution.selection.archive import Grid
from coharness.evolution.selection.contract import Genes, Selector
from coharness.evolution.selection.controls import MutationOnly, NoSelection, RandomSearch, SelectionOnly
from coharness.evolution.selection.lexicase import Lexicase
from coharness.evolution.selection.map_elites import MapElites
from coharness.evolution.selection.niches import Niches
from coharness.evolution.selection.nsga2 import Nsga2
from coharness.evolution.selection.pb2 import PB2
from coharness.evolution.selection.posterior import PosteriorExploit
from coharness.evolution.selection.slope import SlopeExploit
from coharness.evolution.selection.tournament import Duel, Tournament
from coharness.evolution.selection.truncation import Truncation
from coharness.spaces.tree import Tree


class TruncationRule(Section):
    """The lowest quantile copies the highest."""

    type: Literal["truncation"] = "truncation"
    quantile: float = Field(default=0.25, gt=0, le=0.5)
    bound: float = Field(default=0.25, gt=0, le=0.5)
    "Posterior quantile that donors are read at, losers at one minus it; 0.5 reads the means."


class PosteriorRule(Section):
    """Copy who is better with enough posterior probability."""

    type: Literal["posterior"]
    threshold: float = Field(default=0.9, gt=0.5, lt=1)


class TournamentRule(Section):
    """Meet a random opponent and copy it where it wins."""

    type: Literal["tournament"]
    duel: Literal["score", "welch"] = "score"
    level: float = Field(default=0.05, gt=0, lt=1)
    window: int = Field(default=10, ge=2)


class SlopeRule(Section):
    """Copy who improves fastest."""

    type: Literal["slope"]
    window: int = Field(default=8, ge=3)
    behind: float = Field(default=0.1, ge=0, le=1)


class PB2Rule(Section):
    """Truncation, with settings from a bandit."""

    type: Literal["pb2"]
    quantile: float = Field(default=0.25, gt=0, le=0.5)
    bound: float = Field(default=0.25, gt=0, le=0.5)
    max_rows: int = Field(default=500, ge=8, le=2000)


class Nsga2Rule(Section):
    """Several objectives; `score.objectives` names them."""

    type: Literal["nsga2"]
    z: float = Field(default=1.64, ge=0)


class LexicaseRule(Section):
    """Cases in random order; `score.cases` names them."""

    type: Literal["lexicase"]
    z: float = Field(default=1.0, ge=0)
    orders: int = Field(default=64, ge=1)
    "Random orders of the cases that a member has a chance to survive by."


class NichesRule(Section):
    """Shared resources; `score.cases` names the cases, with scores of 0 or more."""

    type: Literal["niches"]
    alpha: float = Field(default=1.0, ge=0)
    merge: bool = False
    "Whether children have two parents; the trainable must be able to merge."


class MapElitesRule(Section):
    """The best of each cell of behaviour; `score.descriptor` names the metrics that span the grid."""

    type: Literal["map_elites"]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    bins: tuple[int, ...]
    certainty: float = Field(default=0.6, ge=0.5, lt=1)
    retest: float = Field(default=0.1, ge=0, le=1)


class RandomSearchRule(Section):
    """Control: trials of a fixed length with fresh draws."""

    type: Literal["random"]
    trial_intervals: int = Field(ge=1)


class MutationOnlyRule(Section):
    """Control: settings move, nobody is copied."""

    type: Literal["mutation"]


class NoRule(Section):
    """Control: nothing changes."""

    type: Literal["none"]


RuleSection = Annotated[
    TruncationRule
    | PosteriorRule
    | TournamentRule
    | SlopeRule
    | PB2Rule
    | Nsga2Rule
    | LexicaseRule
    | NichesRule
    | MapElitesRule
    | RandomSearchRule
    | MutationOnlyRule
    | NoRule,
    Field(discriminator="type"),
]


def build_rule(section: RuleSection, space: Tree, interval: int, genes: str) -> Selector:
    """The selector of a section.

    Args:
        section: which rule, with its settings.
        space: where settings live.
        interval: steps between two reports.
        genes: `move`, or for the control "selection alone" `keep` or `own`; see `TuneConfig.genes`.

    Raises:
        ValueError: a grid makes no sense.
    """
    rule = _rule(section, space, interval)
    return rule if genes == "move" else SelectionOnly(inner=rule, genes=Genes(genes))


def _rule(section: RuleSection, space: Tree, interval: int) -> Selector:
    match section:
        case TruncationRule():
            return Truncation(quantile=section.quantile, bound=section.bound)
        case PosteriorRule():
            return PosteriorExploit(threshold=section.threshold)
        case TournamentRule():
            return Tournament(duel=Duel(section.duel), level=section.level, window=section.window)
        case SlopeRule():
            return SlopeExploit(window=section.window, behind=section.behind)
        case PB2Rule():
            inner = Truncation(quantile=section.quantile, bound=section.bound)
            return PB2(inner=inner, space=space, max_rows=section.max_rows)
        case Nsga2Rule():
            return Nsga2(z=section.z)
        case LexicaseRule():
            return Lexicase(z=section.z, orders=section.orders)
        case NichesRule():
            return Niches(alpha=section.alpha, merge=section.merge)
        case MapElitesRule():
            grid = Grid(lows=section.lows, highs=section.highs, bins=section.bins)
            return MapElites(grid=grid, certainty=section.certainty, retest=section.retest)
        case RandomSearchRule():
            return RandomSearch(trial_work=float(section.trial_intervals * interval))
        case MutationOnlyRule():
            return MutationOnly()
        case NoRule():
            return NoSelection()
