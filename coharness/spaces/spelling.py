"""How a space is written in a config: one section a kind, told apart by `type`.

    space:
      learning_rate: {type: float, low: 1.0e-5, high: 1.0e-2, scale: log}
      layers: {type: int, low: 1, high: 8}
      optimizer: {type: choice, options: [sgd, adam]}
      momentum: {type: when, field: optimizer, is_in: [sgd], space: {type: float, low: 0.0, high: 0.99}}

pydantic stands at this edge alone; `build_tree` gives the domains, whose own checks speak when a range makes no sense.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from coharness.config.schema import Section
from coharness.spaces.discrete import Choice, Ordinal, Simplex
from coharness.spaces.domain import Domain
from coharness.spaces.ranges import Prior, Real, Whole
from coharness.spaces.space import Scale
from coharness.spaces.tree import Tree, When


class PriorSection(Section):
    """A normal prior in the transformed space, cut off at the range's bounds."""

    center: float
    spread: float = Field(gt=0)
    "In units: natural logarithms or log-odds, or in a linear range the range itself."


class FloatSpace(Section):
    """A range of real numbers."""

    type: Literal["float"] = "float"
    low: float
    high: float
    scale: Literal["linear", "log", "logit"] = "linear"
    prior: PriorSection | None = None


class IntSpace(Section):
    """A range of whole numbers, both ends included."""

    type: Literal["int"]
    low: int
    high: int
    scale: Literal["linear", "log"] = "linear"
    prior: PriorSection | None = None


class OrdinalSpace(Section):
    """Levels in their order."""

    type: Literal["ordinal"]
    levels: tuple[Any, ...]


class ChoiceSpace(Section):
    """Options without order."""

    type: Literal["choice"]
    options: tuple[Any, ...]
    weights: tuple[float, ...] | None = None
    "Prior probabilities up to a factor; equal where left out."


class SimplexSpace(Section):
    """Shares that sum to 1."""

    type: Literal["simplex"]
    parts: int = Field(ge=2)


class WhenSpace(Section):
    """A space that is there while a field before it has one of some values."""

    type: Literal["when"]
    field: str
    is_in: tuple[Any, ...]
    space: "PlainSpace"


class TreeSpace(Section):
    """Nested fields."""

    type: Literal["tree"]
    fields: dict[str, "SpaceSection"]


PlainSpace = Annotated[
    FloatSpace | IntSpace | OrdinalSpace | ChoiceSpace | SimplexSpace | TreeSpace, Field(discriminator="type")
]
SpaceSection = Annotated[
    FloatSpace | IntSpace | OrdinalSpace | ChoiceSpace | SimplexSpace | TreeSpace | WhenSpace,
    Field(discriminator="type"),
]
WhenSpace.model_rebuild()
TreeSpace.model_rebuild()


class SpaceSections(Section):
    """All fields of a search space."""

    fields: dict[str, SpaceSection]

    @model_validator(mode="after")
    def _makes_sense(self) -> "SpaceSections":
        build_tree(self.fields)
        return self


def build_tree(sections: Mapping[str, SpaceSection]) -> Tree:
    """The tree that a config's sections spell.

    Raises:
        ValueError: a range, a list of options or a condition makes no sense; the message names the field.
    """
    fields: dict[str, Domain | When] = {}
    for name, section in sections.items():
        try:
            fields[name] = _entry(section)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return Tree(fields=fields)


def _entry(section: SpaceSection) -> Domain | When:
    if isinstance(section, WhenSpace):
        return When(field=section.field, is_in=section.is_in, domain=_domain(section.space))
    return _domain(section)


def _domain(section: SpaceSection) -> Domain:
    match section:
        case FloatSpace():
            return Real(low=section.low, high=section.high, scale=Scale(section.scale), prior=_prior(section.prior))
        case IntSpace():
            return Whole(low=section.low, high=section.high, scale=Scale(section.scale), prior=_prior(section.prior))
        case OrdinalSpace():
            return Ordinal(levels=section.levels)
        case ChoiceSpace():
            return Choice(options=section.options, weights=section.weights)
        case SimplexSpace():
            return Simplex(parts=section.parts)
        case TreeSpace():
            return build_tree(section.fields)
        case WhenSpace():
            raise ValueError("a condition stands on a field, not inside another condition")


def _prior(section: PriorSection | None) -> Prior | None:
    return None if section is None else Prior(center=section.center, spread=section.spread)


def spell_tree(tree: Tree) -> dict[str, Any]:
    """The inverse of `build_tree`, as plain values that a config file can hold."""
    return {name: _spell(entry) for name, entry in tree.fields.items()}


def _spell(entry: Domain | When) -> dict[str, Any]:
    match entry:
        case When():
            return {"type": "when", "field": entry.field, "is_in": list(entry.is_in), "space": _spell(entry.domain)}
        case Real() | Whole():
            kind = "float" if isinstance(entry, Real) else "int"
            spelled: dict[str, Any] = {"type": kind, "low": entry.low, "high": entry.high, "scale": entry.scale.value}
            if entry.prior is not None:
                spelled["prior"] = {"center": entry.prior.center, "spread": entry.prior.spread}
            return spelled
        case Ordinal():
            return {"type": "ordinal", "levels": list(entry.levels)}
        case Choice():
            weights = {} if entry.weights is None else {"weights": list(entry.weights)}
            return {"type": "choice", "options": list(entry.options), **weights}
        case Simplex():
            return {"type": "simplex", "parts": entry.parts}
        case Tree():
            return {"type": "tree", "fields": spell_tree(entry)}
        case _:
            raise ValueError(
                f"a {type(entry).__name__} has no spelling in a config; use the domains of coharness.spaces"
            )
