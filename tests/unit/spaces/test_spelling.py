"""A space is written in a config as it is meant, and a mistake in it is told by its place."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from coharness.config.yaml_text import read_mapping
from coharness.spaces.discrete import Choice, Ordinal, Simplex
from coharness.spaces.domain import Domain
from coharness.spaces.ranges import Prior, Real, Whole
from coharness.spaces.space import Scale
from coharness.spaces.spelling import SpaceSections, build_tree, spell_tree
from coharness.spaces.tree import Tree, When
from tests.unit.spaces.kinds import TREE, domains

TEXT = """
rate: {type: float, low: 1.0e-5, high: 1.0e-2, scale: log, prior: {center: 1.0e-3, spread: 2}}
keep: {type: float, low: 0.8, high: 0.999, scale: logit}
layers: {type: int, low: 1, high: 8}
size: {type: ordinal, levels: [s, m, l]}
optimizer: {type: choice, options: [sgd, adam], weights: [1, 3]}
momentum: {type: when, field: optimizer, is_in: [sgd], space: {type: float, low: 0, high: 0.99}}
inner: {type: tree, fields: {mix: {type: simplex, parts: 3}}}
"""


def read(fields: Any) -> Tree:
    return build_tree(SpaceSections.model_validate({"fields": fields}).fields)


def test_every_kind_can_be_written() -> None:
    assert read(read_mapping(TEXT, "a test")) == Tree(
        fields={
            "rate": Real(low=1e-5, high=1e-2, scale=Scale.LOG, prior=Prior(center=1e-3, spread=2)),
            "keep": Real(low=0.8, high=0.999, scale=Scale.LOGIT),
            "layers": Whole(low=1, high=8),
            "size": Ordinal(levels=("s", "m", "l")),
            "optimizer": Choice(options=("sgd", "adam"), weights=(1, 3)),
            "momentum": When(field="optimizer", is_in=("sgd",), domain=Real(low=0, high=0.99)),
            "inner": Tree(fields={"mix": Simplex(parts=3)}),
        }
    )


@given(st.lists(domains(), min_size=1, max_size=3))
def test_whatever_can_be_spelled_is_read_back_the_same(found: list[Domain]) -> None:
    tree = Tree(fields={f"f{place}": domain for place, domain in enumerate(found)})
    assert read(spell_tree(tree)) == tree
    assert read(spell_tree(TREE)) == TREE


def test_a_dump_is_read_back_to_the_same_space() -> None:
    sections = SpaceSections.model_validate({"fields": read_mapping(TEXT, "a test")})
    again = SpaceSections.model_validate(sections.model_dump(mode="json"))
    assert build_tree(again.fields) == build_tree(sections.fields)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"a": {"type": "float", "low": 0, "high": 1, "scale": "log"}}, "a: a log range lies above 0"),
        ({"a": {"type": "float", "low": 0, "high": 1, "step": 1}}, "Extra inputs"),
        (
            {"a": {"type": "when", "field": "b", "is_in": [1], "space": {"type": "int", "low": 0, "high": 1}}},
            "stands before it",
        ),
        ({"a": {"type": "tree", "fields": {"b": {"type": "int", "low": 2, "high": 1}}}}, "a: b: a range goes"),
        ({"a": {"type": "tree", "fields": {}}}, "at least one field"),
    ],
)
def test_a_mistake_names_its_field(fields: Any, match: str) -> None:
    with pytest.raises(ValidationError, match=match):
        read(fields)
