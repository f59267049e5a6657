"""The bandit over operators: a pure function of counts that learns what wins and gives nothing up."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from coharness.evolution.merging import RULES
from coharness.evolution.operator_choice import MERGE_PRIOR, Tried, choose_operator

OPERATORS = ("task_arithmetic", "linear", "ties", "dare")


def shares(tried: dict[str, Tried], num: int = 2000) -> dict[str, float]:
    chosen = [choose_operator(OPERATORS, tried, seed) for seed in range(num)]
    return {operator: chosen.count(operator) / num for operator in OPERATORS}


counts = st.builds(Tried, accepted=st.integers(0, 30), rejected=st.integers(0, 30))


@settings(max_examples=50, deadline=None)
@given(tried=st.dictionaries(st.sampled_from(OPERATORS), counts), seed=st.integers(0, 2**63 - 1))
def test_the_choice_is_a_function_of_counts_and_seed_in_any_order(tried: dict[str, Tried], seed: int) -> None:
    chosen = choose_operator(OPERATORS, tried, seed)
    assert chosen in OPERATORS
    assert chosen == choose_operator(OPERATORS[::-1], dict(reversed(tried.items())), seed)


def test_before_any_race_the_prior_decides_and_everything_is_tried() -> None:
    found = shares({})
    assert max(found, key=lambda operator: found[operator]) == "task_arithmetic"
    assert min(found.values()) > 0.05


def test_what_wins_its_races_is_tried_most_and_what_loses_is_not_given_up() -> None:
    found = shares({"ties": Tried(accepted=8, rejected=2), "task_arithmetic": Tried(accepted=1, rejected=9)})
    assert found["ties"] > 0.6
    assert found["task_arithmetic"] < 0.1
    untried = shares({operator: Tried(rejected=20) for operator in OPERATORS[:3]})
    assert untried["dare"] > 0.6
    assert min(untried.values()) > 0


def test_each_is_chosen_as_often_as_it_is_the_best_of_the_posterior() -> None:
    tried = {"task_arithmetic": Tried(accepted=3, rejected=4), "linear": Tried(accepted=2, rejected=2)}
    rng = np.random.default_rng(0)
    draws = {
        o: rng.beta(4 * p + tried[o].accepted, 4 * (1 - p) + tried[o].rejected, size=200_000)
        for o, p in (("task_arithmetic", 0.5), ("linear", 0.35))
    }
    expected = float((draws["linear"] > draws["task_arithmetic"]).mean())
    chosen = [choose_operator(("task_arithmetic", "linear"), tried, seed) for seed in range(4000)]
    assert abs(chosen.count("linear") / 4000 - expected) < 5 * np.sqrt(0.25 / 4000)


def test_one_operator_is_no_choice_and_none_is_a_mistake() -> None:
    assert choose_operator(("linear",), {}, 3) == "linear"
    with pytest.raises(ValueError, match="at least one operator"):
        choose_operator((), {}, 3)
    with pytest.raises(ValueError, match="none twice"):
        choose_operator(("linear", "linear"), {}, 3)
    with pytest.raises(ValueError, match="counts of 0 or more"):
        Tried(accepted=-1)


def test_the_prior_names_rules_that_exist() -> None:
    assert set(MERGE_PRIOR) <= set(RULES)
