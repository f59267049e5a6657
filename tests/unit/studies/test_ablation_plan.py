"""Arms and contrasts: what a contrast measures is checked on scores of a known model."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coharness.studies.ablation_plan import CONTROLS, FULL, Arm, ContrastKind, Design, Factor, Plan, make_plan


def switch(name: str) -> Factor:
    return Factor(name=name, levels={"with": (), "without": (f"{name}=0",)})


SWITCHES = [switch(name) for name in "abcde"]
RATE = Factor(name="rate", levels={"mid": (), "low": ("rate=1",), "high": ("rate=9",)})


def measured(plan: Plan, model: "dict[str, float]") -> dict[str, float]:
    """Contrasts on scores without noise."""
    return {c.name: sum(w * model[arm] for arm, w in c.weights.items()) for c in plan.contrasts}


def test_one_off_takes_each_level_out_alone_and_compares_with_full() -> None:
    plan = make_plan([switch("a"), RATE], Design.ONE_OFF)
    assert [arm.name for arm in plan.arms] == [FULL, "without a", "rate low", "rate high", *CONTROLS]
    assert plan.arm("without a").overrides == ("a=0",)
    assert [(c.name, dict(c.weights)) for c in plan.contrasts[:3]] == [
        ("a: with − without", {FULL: 1, "without a": -1}),
        ("rate: mid − low", {FULL: 1, "rate low": -1}),
        ("rate: mid − high", {FULL: 1, "rate high": -1}),
    ]
    assert [c.kind for c in plan.contrasts[3:]] == [ContrastKind.CONTROL] * 3


def test_a_factorial_recovers_effects_and_interactions_of_a_known_model() -> None:
    plan = make_plan([switch("a"), switch("b"), RATE], Design.FULL, controls=())
    assert len(plan.arms) == 12
    rate = {"mid": 0.0, "low": -0.3, "high": 0.5}

    def score(arm: Arm) -> float:
        a, b = (arm.levels[name] == "with" for name in "ab")
        return 0.1 * a + 0.2 * b + 0.4 * (a and b) + rate[arm.levels["rate"]]

    found = measured(plan, {arm.name: score(arm) for arm in plan.arms})
    # With b in half of the runs, a gives .1 + .4 / 2.
    assert found["a: with − without"] == pytest.approx(0.3)
    assert found["b: with − without"] == pytest.approx(0.4)
    assert found["rate: mid − low"] == pytest.approx(0.3)
    assert found["rate: mid − high"] == pytest.approx(-0.5)
    # Half of the difference between what a gives with b (.5) and without it (.1).
    assert found["a × b"] == pytest.approx(0.2)
    assert found["a × rate (without, low)"] == pytest.approx(0)


def test_a_fraction_of_resolution_five_recovers_main_effects_and_interactions_in_half_of_the_runs() -> None:
    plan = make_plan(SWITCHES, Design.FRACTION, resolution=5, controls=())
    assert (len(plan.arms), plan.resolution) == (16, 5)
    main = dict(zip("abcde", (0.1, 0.2, -0.3, 0.0, 0.5), strict=True))

    def score(arm: Arm) -> float:
        signs = {name: 1 if arm.levels[name] == "with" else -1 for name in "abcde"}
        return sum(main[n] * signs[n] / 2 for n in "abcde") + 0.07 * signs["b"] * signs["d"]

    found = measured(plan, {arm.name: score(arm) for arm in plan.arms})
    for name, value in main.items():
        assert found[f"{name}: with − without"] == pytest.approx(value)
    assert found["b × d"] == pytest.approx(0.14)
    assert found["a × c"] == pytest.approx(0)
    assert all(c.confused_with == () for c in plan.contrasts)


def test_a_fraction_says_what_it_cannot_tell_apart_and_tests_each_column_once() -> None:
    plan = make_plan(SWITCHES[:3], Design.FRACTION, resolution=3, controls=())
    assert [(c.name, c.confused_with) for c in plan.contrasts] == [
        ("a: with − without", ("b × c",)),
        ("b: with − without", ("a × c",)),
        ("c: with − without", ("a × b",)),
    ]


def test_overrides_of_what_is_left_out_come_last_so_that_they_win() -> None:
    first = Factor(name="a", levels={"with": ("x=1",), "without": ("x=0",)})
    second = Factor(name="b", levels={"with": ("x=2",), "without": ("y=0",)})
    arm = make_plan([first, second], Design.ONE_OFF, controls=()).arm("without a")
    assert arm.overrides == ("x=2", "x=0")


@given(
    design=st.sampled_from(list(Design)),
    num=st.integers(2, 5),
    controls=st.lists(st.sampled_from(list(CONTROLS)), unique=True),
)
def test_every_contrast_is_a_difference_of_means_over_arms_that_run(
    design: Design, num: int, controls: list[str]
) -> None:
    plan = make_plan(SWITCHES[:num], design, resolution=3, controls=controls)
    names = [arm.name for arm in plan.arms]
    assert len(set(names)) == len(names)
    assert names[0] == FULL
    assert len({c.name for c in plan.contrasts}) == len(plan.contrasts)
    assert set(controls) <= set(names)
    for contrast in plan.contrasts:
        weights = np.array(list(contrast.weights.values()))
        assert set(contrast.weights) <= set(names)
        assert weights[weights > 0].sum() == pytest.approx(1)
        assert weights.sum() == pytest.approx(0)


def test_the_scale_is_the_spread_of_independent_arms() -> None:
    rng = np.random.default_rng(0)
    plan = make_plan(SWITCHES[:3], Design.FULL, controls=["frozen"])
    draws = {arm.name: rng.normal(size=40_000) for arm in plan.arms}
    pair = np.std(draws[FULL] - draws["frozen"])
    for contrast in (plan.contrasts[0], plan.contrasts[3], plan.contrasts[-1]):
        spread = np.std(sum(w * draws[arm] for arm, w in contrast.weights.items()))
        assert spread / pair == pytest.approx(contrast.scale, rel=0.02)


@pytest.mark.parametrize(
    ("factors", "design", "controls", "words"),
    [
        ([], Design.ONE_OFF, (), "at least one factor"),
        ([Factor(name="a", levels={"only": ()})], Design.ONE_OFF, (), "factor a has 1 level"),
        ([switch("a"), switch("a")], Design.ONE_OFF, (), "repeat a name"),
        ([RATE, switch("a")], Design.FRACTION, (), "rate has more"),
        ([switch("a")], Design.ONE_OFF, ("stagewise",), "no control stagewise"),
        ([switch(f"f{i}") for i in range(10)], Design.FULL, (), "1024 arms"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    factors: list[Factor], design: Design, controls: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        make_plan(factors, design, controls=controls)


def test_a_factorial_has_every_combination_once() -> None:
    plan = make_plan([switch("a"), RATE], Design.FULL, controls=())
    found = [tuple(arm.levels.values()) for arm in plan.arms]
    assert sorted(found) == sorted(product(("with", "without"), ("mid", "low", "high")))
