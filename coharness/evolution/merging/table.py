"""The table of merge rules: what each is called, needs and comes from.

A new rule is a new file and a new entry below; nothing registers itself.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from torch import Tensor

from coharness.evolution.merging.breadcrumbs import breadcrumbs
from coharness.evolution.merging.consensus import Election
from coharness.evolution.merging.dare import Rescale, dare
from coharness.evolution.merging.della import della
from coharness.evolution.merging.fisher import fisher
from coharness.evolution.merging.layer_swap import layer_of, layer_swap
from coharness.evolution.merging.linear import linear
from coharness.evolution.merging.maps import DEFAULT_CHUNK_BYTES, TensorMap
from coharness.evolution.merging.model_stock import model_stock
from coharness.evolution.merging.preflight import normalized
from coharness.evolution.merging.ram import ram
from coharness.evolution.merging.regmean import regmean
from coharness.evolution.merging.sce import sce
from coharness.evolution.merging.soup import uniform_soup
from coharness.evolution.merging.spherical import karcher, multislerp, slerp, warp
from coharness.evolution.merging.task_arithmetic import extrapolation, task_arithmetic
from coharness.evolution.merging.ties import ties

_NOT_SETTINGS: Final = frozenset({"tensors", "weights", "base", "chunk_bytes", "statistics"})


class BaseUse(StrEnum):
    """What a rule does with a base."""

    REQUIRED = "required"
    "It merges changes from it."
    OPTIONAL = "optional"
    "It merges changes from it where it is given, else the weights themselves."
    REFUSED = "refused"
    "It merges the weights themselves."


class Statistics(StrEnum):
    """What a rule has to know of the parents besides their weights."""

    NONE = "no"
    "Nothing."
    FISHER = "fisher"
    "Of each parent the diagonal of its Fisher information, under the parent's names."
    INNER_PRODUCTS = "inner product"
    "Of each parent, for its linear layers, X^T X of their inputs [in, in]."


class MergeFunction(Protocol):
    """What every rule can be called with; a rule's own settings are keyword-only and have defaults."""

    def __call__(
        self,
        tensors: Sequence[TensorMap],
        weights: Sequence[float],
        base: TensorMap | None = None,
        *,
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    ) -> dict[str, Tensor]:
        """The merged map, in the parents' names, shapes and dtypes; ValueError if preflight refuses the inputs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRule:
    """One way to merge name -> tensor maps, as listed in `RULES`."""

    name: str
    base: BaseUse
    merge: MergeFunction
    description: str
    source: str
    "Author and year of the method."
    statistics: Statistics = Statistics.NONE
    least_parents: int = 1
    most_parents: int | None = None
    is_rotation_invariant: bool = False
    "The rule sees angles and lengths alone, or copies: the same in any orthonormal basis."
    linear_scale: Callable[[Mapping[str, Any]], float] | None = None
    "For rules that are linear in the changes with normalised weights: settings -> the factor on them. None for all others."

    @property
    def needs_base(self) -> bool:
        """Whether it cannot do without a base."""
        return self.base is BaseUse.REQUIRED

    @property
    def takes_base(self) -> bool:
        """Whether a base may be given."""
        return self.base is not BaseUse.REFUSED

    @property
    def is_random(self) -> bool:
        """Whether it takes a seed."""
        return "seed" in self.settings

    @property
    def settings(self) -> dict[str, Any]:
        """Its own settings by name, with their defaults."""
        found = inspect.signature(self.merge).parameters
        return {name: parameter.default for name, parameter in found.items() if name not in _NOT_SETTINGS}

    def configured(self, settings: Mapping[str, Any]) -> MergeFunction:
        """The rule with settings of its own, statistics among them, in place of their defaults."""
        return functools.partial(self.merge, **settings)

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Refuse settings that the rule does not have.

        Raises:
            ValueError: naming the first, and those there are.
        """
        if unknown := sorted(set(settings) - set(self.settings)):
            known = ", ".join(f"{name}={value}" for name, value in self.settings.items()) or "none"
            raise ValueError(f"{self.name} has no setting {unknown[0]!r}; its settings are: {known}")

    def check_count(self, num_parents: int) -> None:
        """Refuse a number of parents that the rule cannot merge.

        Raises:
            ValueError: naming the rule and the number it takes.
        """
        most = self.most_parents
        if num_parents < self.least_parents or (most is not None and num_parents > most):
            expected = f"{self.least_parents}" if most == self.least_parents else f"at least {self.least_parents}"
            raise ValueError(f"{self.name} got {num_parents} parents; expected {expected}")

    def coefficients(self, weights: Sequence[float], settings: Mapping[str, Any]) -> list[float] | None:
        """What each parent's change is multiplied by, where the rule is linear in them; None where it is not."""
        if self.linear_scale is None:
            return None
        values = {**self.settings, **settings}
        if self.name == "uniform_soup":
            used = [1.0 / len(weights)] * len(weights)
        else:
            used = normalized(weights) if values.get("normalize", True) else list(weights)
        factor = self.linear_scale(values)
        return [factor * weight for weight in used]

    def unit_of(self, name: str) -> str:
        """What a tensor is merged together with: tensors of one unit are handed over together, others need not be."""
        return layer_of(name) if self.name == "layer_swap" else name


def _one(settings: Mapping[str, Any]) -> float:
    return 1.0


def _scale(settings: Mapping[str, Any]) -> float:
    return float(settings["scale"])


def _beyond(settings: Mapping[str, Any]) -> float:
    return 1.0 + float(settings["step"])


_RULES: Final = (
    MergeRule(
        name="linear",
        base=BaseUse.REFUSED,
        merge=linear,
        description="Weighted average of the parents' weights.",
        source="Wortsman et al., 2022 (model soups)",
        is_rotation_invariant=True,
        linear_scale=_one,
    ),
    MergeRule(
        name="uniform_soup",
        base=BaseUse.REFUSED,
        merge=uniform_soup,
        description="Plain average, whatever the weights (`soup.greedy_soup` is the one that picks its parents).",
        source="Wortsman et al., 2022 (model soups)",
        is_rotation_invariant=True,
        linear_scale=_one,
    ),
    MergeRule(
        name="task_arithmetic",
        base=BaseUse.REQUIRED,
        merge=task_arithmetic,
        description="The base plus a scaled, weighted sum of the parents' changes to it.",
        source="Ilharco et al., 2023",
        is_rotation_invariant=True,
        linear_scale=_scale,
    ),
    MergeRule(
        name="extrapolation",
        base=BaseUse.REQUIRED,
        merge=extrapolation,
        description="From the base through the parents' mean, and beyond it.",
        source="Zheng et al., 2024 (ExPO)",
        is_rotation_invariant=True,
        linear_scale=_beyond,
    ),
    MergeRule(
        name="slerp",
        base=BaseUse.OPTIONAL,
        merge=slerp,
        description="Spherical interpolation of two parents.",
        source="Shoemake, 1985",
        least_parents=2,
        most_parents=2,
        is_rotation_invariant=True,
    ),
    MergeRule(
        name="multislerp",
        base=BaseUse.OPTIONAL,
        merge=multislerp,
        description="One step towards the parents' mean on the sphere.",
        source="Goddard, 2025",
        is_rotation_invariant=True,
    ),
    MergeRule(
        name="karcher",
        base=BaseUse.OPTIONAL,
        merge=karcher,
        description="The parents' mean on the sphere, iterated until their tangents cancel.",
        source="Karcher, 1977",
        is_rotation_invariant=True,
    ),
    MergeRule(
        name="warp",
        base=BaseUse.REQUIRED,
        merge=warp,
        description="Spherical interpolation of the changes, then part of the way back to the anchor they started from.",
        source="Ramé et al., 2024 (WARP)",
        is_rotation_invariant=True,
    ),
    MergeRule(
        name="model_stock",
        base=BaseUse.REQUIRED,
        merge=model_stock,
        description="As far from the base to the mean as the angles between the changes say.",
        source="Jang et al., 2024",
        least_parents=2,
        is_rotation_invariant=True,
    ),
    MergeRule(
        name="ties",
        base=BaseUse.REQUIRED,
        merge=ties,
        description="Largest changes, sign elected by weighted sum, divided by the weight that has the sign.",
        source="Yadav et al., 2023 (with weights as in mergekit)",
    ),
    MergeRule(
        name="ties_count",
        base=BaseUse.REQUIRED,
        merge=functools.partial(ties, election=Election.COUNT),
        description="Largest changes, sign elected by plain sum, divided by the number of parents that have the sign.",
        source="Yadav et al., 2023 (with weights as in PEFT)",
    ),
    MergeRule(
        name="dare",
        base=BaseUse.REQUIRED,
        merge=dare,
        description="Changes thinned at random and divided by the density, summed.",
        source="Yu et al., 2024",
    ),
    MergeRule(
        name="dare_l1",
        base=BaseUse.REQUIRED,
        merge=functools.partial(dare, rescale=Rescale.L1),
        description="Changes thinned at random and brought back to their sum of magnitudes, summed.",
        source="Yu et al., 2024 (rescaled as in mergekit)",
    ),
    MergeRule(
        name="dare_ties",
        base=BaseUse.REQUIRED,
        merge=functools.partial(dare, elect=True),
        description="Changes thinned at random and divided by the density, signs elected as in ties.",
        source="Yu et al., 2024, with Yadav et al., 2023",
    ),
    MergeRule(
        name="della",
        base=BaseUse.REQUIRED,
        merge=della,
        description="Changes thinned at random, small ones more, signs elected as in ties.",
        source="Deep, Bhardwaj and Poria, 2024",
    ),
    MergeRule(
        name="della_linear",
        base=BaseUse.REQUIRED,
        merge=functools.partial(della, elect=False),
        description="Changes thinned at random, small ones more, summed.",
        source="Deep, Bhardwaj and Poria, 2024",
    ),
    MergeRule(
        name="breadcrumbs",
        base=BaseUse.REQUIRED,
        merge=breadcrumbs,
        description="Changes without outliers and without small entries, summed.",
        source="Davari and Belilovsky, 2024",
    ),
    MergeRule(
        name="breadcrumbs_ties",
        base=BaseUse.REQUIRED,
        merge=functools.partial(breadcrumbs, elect=True),
        description="Changes without outliers and without small entries, signs elected as in ties.",
        source="Davari and Belilovsky, 2024, with Yadav et al., 2023",
    ),
    MergeRule(
        name="sce",
        base=BaseUse.REQUIRED,
        merge=sce,
        description="Entries that vary most, parents weighed by their energy there, minority signs erased.",
        source="Wan et al., 2024",
    ),
    MergeRule(
        name="ram",
        base=BaseUse.REQUIRED,
        merge=ram,
        description="What one parent alone changed whole, what several changed averaged.",
        source="Reinforced Agent Merging, arXiv 2601.13572, 2026",
    ),
    MergeRule(
        name="ram_plus",
        base=BaseUse.REQUIRED,
        merge=functools.partial(ram, boost=0.1),
        description="As ram, with what is unique boosted by how much a parent shares.",
        source="Reinforced Agent Merging, arXiv 2601.13572, 2026",
    ),
    MergeRule(
        name="layer_swap",
        base=BaseUse.REFUSED,
        merge=layer_swap,
        description="Each layer a copy of one parent's.",
        source="Jung et al., 2022",
        is_rotation_invariant=True,
    ),
    MergeRule(
        name="fisher",
        base=BaseUse.REFUSED,
        merge=fisher,
        description="Entries averaged by their Fisher information.",
        source="Matena and Raffel, 2022",
        statistics=Statistics.FISHER,
    ),
    MergeRule(
        name="regmean",
        base=BaseUse.REFUSED,
        merge=regmean,
        description="Linear layers solved for the outputs of all parents on their own inputs.",
        source="Jin et al., 2023",
        statistics=Statistics.INNER_PRODUCTS,
    ),
)
RULES: Final[dict[str, MergeRule]] = {rule.name: rule for rule in _RULES}
