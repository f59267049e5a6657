import os
import random
import sys
from typing import Any

import pytest

from coharness.config.schema import ReasoningGymTasks
from coharness.records.errors import TaskError
from coharness.records.task import VerifierKind
from coharness.tasks.reasoning_gym import ReasoningGymSource


def source(*families: str, **settings: Any) -> ReasoningGymSource:
    return ReasoningGymSource(ReasoningGymTasks(type="reasoning_gym", families=families, **settings))


def test_levels_follow_the_curriculum_of_a_family() -> None:
    made = source("chain_sum", max_level=4)
    assert made.families[0].num_levels == 4
    lengths = [sum(len(made.make("chain_sum", level, seed).question) for seed in range(40)) for level in range(1, 5)]
    assert lengths == sorted(lengths)
    assert lengths[3] > 1.1 * lengths[0]


def test_a_family_without_a_curriculum_has_one_level_and_one_that_breaks_ends_before() -> None:
    assert source("gsm_symbolic", max_level=5).families[0].num_levels == 1
    assert source("caesar_cipher", max_level=5).families[0].num_levels == 2


def test_params_stand_over_the_levels() -> None:
    settings: dict[str, Any] = {"params": {"chain_sum": {"min_digits": 6, "max_digits": 6}}}
    question = source("chain_sum", **settings).make("chain_sum", 1, 3).question
    assert max(len(word) for word in question.split() if word.isdigit()) == 6
    with pytest.raises(TaskError, match=r"chain_sum, level 1, params .*max_digit"):
        source("chain_sum", params={"chain_sum": {"max_digit": 6}})


def test_a_task_does_not_depend_on_what_ran_before() -> None:
    made = source("decimal_chain_sum", "decimal_arithmetic", "prime_factorization")
    first = [made.make("decimal_chain_sum", 3, seed) for seed in range(20)]
    for seed in range(20):
        made.make("decimal_arithmetic", 1, seed)
    random.seed(1)
    assert [made.make("decimal_chain_sum", 3, seed) for seed in range(20)] == first


def test_only_with_partial_credit_does_a_task_name_the_packages_scorer() -> None:
    exact = source("prime_factorization").make("prime_factorization", 1, 5)
    assert exact.verifier.kind is VerifierKind.EXACT
    scored = source("prime_factorization", partial_credit=True).make("prime_factorization", 1, 5)
    assert scored.verifier.kind is VerifierKind.REASONING_GYM
    assert scored.id == exact.id
    assert scored.metadata["source_dataset"] == "prime_factorization"


def test_a_cell_with_few_tasks_is_finite_and_not_sealed() -> None:
    made = source("coin_flip", "basic_arithmetic", partial_credit=True)
    coins, arithmetic = made.families
    assert coins.num_tasks[0] == 1_000
    assert not coins.may_seal(1)
    assert made.make("coin_flip", 1, 7).id == made.make("coin_flip", 1, 1_007).id
    assert arithmetic.may_seal(2)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("prime_factorisation", "did you mean prime_factorization"),
        ("propositional_logic", "no reference answer"),
        ("codeio", "global generator"),
        ("knight_swap", "min_nodes must be"),
        ("composite", "composite"),
    ],
)
def test_a_family_that_is_unknown_or_unfit_is_refused(
    family: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    with pytest.raises(TaskError, match=message):
        source(family)


def test_a_family_that_depends_on_the_hash_seed_needs_a_fixed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with pytest.raises(TaskError, match="set PYTHONHASHSEED=0"):
        source("ransom_note")
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    assert source("ransom_note").families[0].num_levels == 3
    assert os.environ["PYTHONHASHSEED"] == "0"


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym.factory", None)
    with pytest.raises(TaskError, match=r"install coharness-evolution\[run\]"):
        source("chain_sum")


def test_what_is_asked_for_must_fit_together() -> None:
    with pytest.raises(TaskError, match=r"params names \['sort'\]"):
        source("chain_sum", params={"sort": {}})
    with pytest.raises(TaskError, match=r"families are \[\]"):
        source()
    with pytest.raises(TaskError, match=r"on offer: chain_sum \(levels 1 to 3\)"):
        source("chain_sum").make("chain_sum", 4, 0)


@pytest.mark.parametrize(("max_value", "may_seal"), [(200, False), (10**6, True)])
def test_settings_that_leave_few_tasks_make_the_family_finite(max_value: int, may_seal: bool) -> None:
    params = {"prime_factorization": {"min_value": 2, "max_value": max_value}}
    assert source("prime_factorization", params=params).families[0].may_seal(1) is may_seal
