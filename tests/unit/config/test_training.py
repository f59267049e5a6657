"""Rules of the training section: what contradicts itself, what a name stands for, what follows what."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from coharness.config.objectives import TRAITS, VETTED_RATES, ObjectiveName
from coharness.config.training import TrainingSection

OBJECTIVES = get_args(ObjectiveName)


def section(**settings: Any) -> TrainingSection:
    return TrainingSection.model_validate({"group_size": 4, **settings})


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_rates_that_are_left_out_are_the_vetted_ones(objective: str) -> None:
    made = section(objective=objective)
    assert (*made.learning_rate, made.initial_learning_rate) == VETTED_RATES[objective]
    low, high, initial = VETTED_RATES[objective]
    assert 0 < low <= initial <= high


@pytest.mark.parametrize("objective", [name for name in OBJECTIVES if name not in ("sft", "kto", "ppo")])
def test_a_group_of_one_has_nothing_to_compare(objective: str) -> None:
    with pytest.raises(
        ValidationError, match=rf"training\.objective={objective}.* needs training.group_size >= 2".replace("+", r"\+")
    ):
        section(objective=objective, group_size=1)


@pytest.mark.parametrize("objective", ["sft", "kto", "ppo"])
def test_objectives_of_single_answers_take_groups_of_one(objective: str) -> None:
    assert section(objective=objective, group_size=1).group_size == 1


def test_a_phase_and_a_mix_are_held_to_the_group_size_as_well() -> None:
    with pytest.raises(ValidationError, match=r"training\.schedule\.1\.objective=dpo needs training.group_size >= 2"):
        section(group_size=1, schedule=[{"objective": "sft", "updates": 2}, {"objective": "dpo", "updates": 2}])
    with pytest.raises(ValidationError, match=r"training\.objective=sft needs training\.group_size >= 2"):
        section(group_size=1, mix={"grpo": 0.5})


def test_the_old_mix_is_a_mix() -> None:
    assert section(objective="sft+grpo", sft_mix=0.3).parts(0) == {"grpo": 1.0, "sft": 0.3}
    assert section(objective="grpo", mix={"sft": 0.3}).parts(0) == {"grpo": 1.0, "sft": 0.3}
    assert next(iter(section(objective="sft+grpo").parts(0))) == "grpo"


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
def test_a_weight_is_a_number_of_0_or_more(weight: float) -> None:
    with pytest.raises(ValidationError, match=r"training\.mix\.sft is a weight"):
        section(objective="grpo", mix={"sft": weight})


SCHEDULE = [{"objective": "sft", "updates": 3}, {"objective": "dpo", "updates": 2}]


def test_phases_follow_each_other_and_the_objective_comes_last() -> None:
    made = section(objective="grpo", schedule=SCHEDULE)
    assert [made.name_at(made.phase_of(n)) for n in range(7)] == ["sft"] * 3 + ["dpo"] * 2 + ["grpo"] * 2
    assert section().phase_of(99) == 0


@given(st.lists(st.integers(1, 5), max_size=4), st.integers(0, 30))
def test_a_phase_begins_when_those_before_it_are_over(lengths: list[int], updates: int) -> None:
    made = section(schedule=[{"objective": "sft", "updates": n} for n in lengths])
    phase = made.phase_of(updates)
    assert sum(lengths[:phase]) <= updates
    assert phase == len(lengths) or updates < sum(lengths[: phase + 1])


def test_a_phase_trains_at_its_own_vetted_rate() -> None:
    made = section(objective="grpo", schedule=[*SCHEDULE, {"objective": "kto", "updates": 1, "rate_scale": 0.5}])
    scales = [made.rate_scale(phase) for phase in range(4)]
    grpo = VETTED_RATES["grpo"][2]
    assert scales == [VETTED_RATES["sft"][2] / grpo, VETTED_RATES["dpo"][2] / grpo, 0.5, 1.0]


def test_policy_gradients_never_borrow_and_say_what_they_learn_from() -> None:
    made = section(objective="grpo", schedule=SCHEDULE)
    assert [made.borrows(phase) for phase in range(3)] == [True, True, False]
    assert [made.is_supervised(phase) for phase in range(3)] == [True, False, False]
    assert not made.is_supervised()
    assert section(objective="dpo", preference={"failed_groups": "reference"}).is_supervised()
    assert not any(traits.borrows for traits in TRAITS.values() if traits.is_gradient)


def test_only_ppo_brings_a_critic() -> None:
    assert section(objective="ppo").has_critic
    assert section(schedule=[{"objective": "ppo", "updates": 1}]).has_critic
    assert not any(section(objective=name).has_critic for name in OBJECTIVES if name != "ppo")


def test_a_gene_starts_at_its_configured_value() -> None:
    made = section(
        objective="grpo",
        mix={"sft": 0.1},
        entropy_coefficient=0.01,
        genes={"kl_coefficient": [0.005, 0.1], "entropy_coefficient": [0.001, 0.1], "mix": [0.1, 10]},
    )
    assert {gene: made.configured_gene(gene) for gene in made.genes} == {
        "kl_coefficient": 0.02, "entropy_coefficient": 0.01, "mix": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "sft", "genes": {"kl_coefficient": [0.01, 0.1]}}, "not hold 0.0, where training.objective=sft starts"),
        ({"objective": "grpo", "genes": {"beta": [0.01, 0.1]}}, "genes.beta"),
        ({"objective": "grpo", "genes": {"mix": [0.5, 2]}}, "genes.mix"),
        ({"objective": "grpo", "genes": {"kl_coefficient": [0.1, 0.2]}}, "does not hold 0.02"),
        ({"objective": "dpo", "genes": {"beta": [0.0, 0.2]}}, "0 < low <= high"),
        ({"importance": {"rule": "mask", "low": 2.0}}, "leaves no ratio below training.tis_cap=2.0"),
        ({"objective": "sfd"}, "sft"),
        ({"objective": "grpo", "mix": {"grpo": 0.5}}, r"mix\.grpo is in training\.objective=grpo already"),
        ({"objective": "sft+grpo", "mix": {"sft": 0.5}}, r"mix\.sft is in training\.objective=sft\+grpo already"),
        ({"objective": "dpo", "entropy_coefficient": 0.1}, r"training\.entropy_coefficient=0\.1 is of policy gradients"),
        ({"objective": "sft", "clip_high": 0.3}, r"training\.clip_high=0\.3 is of policy gradients"),
        ({"mix": {"sft+grpo": 1.0}}, "sft"),
    ],
)  # fmt: skip
def test_contradictions_name_both_sides(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        section(**settings)
