"""From preferences to a library: fits, gates, promises, pruning, and what labels without meaning give."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from coharness.reward.library.chain import credits_of, promise
from coharness.reward.library.criterion import Fn, Transform
from coharness.reward.library.evolution import EvolutionSettings
from coharness.reward.library.evolve import evolve
from coharness.reward.library.executor import score
from coharness.reward.library.fit import fit_weights, half_right, log_losses
from coharness.reward.library.gate import GateRule, Ledger, compare
from coharness.reward.library.ideas import pool_of
from coharness.reward.library.library import Library
from coharness.reward.library.preferences import Label
from coharness.reward.library.proposals import Action
from coharness.reward.library.table import PairTable, split_groups
from coharness.stats.sequential import BettingProcess
from tests.unit.reward.library.making import counting, drawn, skill

EMPTY = Library.of("evolved")


def accuracy(library: Library, seed: int) -> float:
    table, _, pairs = drawn(seed, num_groups=200)
    return float(half_right(score(table, library).margin(pairs.first, pairs.second), pairs.target).mean())


def coins(pairs: PairTable, seed: int) -> PairTable:
    return pairs.with_targets((np.random.default_rng(seed).random(len(pairs)) < 0.5).astype(np.float64))


# Fit and execution --------------------------------------------------------------------------------------------------


def test_weights_are_those_of_a_general_optimiser() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3)) * (1.0, 5.0, 0.2)
    target = (rng.random(80) < special.expit(x @ (1.0, -0.2, 3.0))).astype(float)
    target[:9] = 0.5
    weight, ridge = rng.uniform(0.5, 2.0, size=80), 2.0
    scale = np.sqrt((x**2).mean(axis=0))

    def penalised(w: np.ndarray) -> float:
        return float((weight * log_losses(x @ w, target)).sum() + ridge / 2 * ((w * scale) ** 2).sum())

    best = optimize.minimize(penalised, np.zeros(3), method="BFGS", options={"gtol": 1e-9}).x
    assert fit_weights(x, target, weight, ridge) == pytest.approx(best, rel=1e-4)
    assert fit_weights(-x, 1.0 - target, weight, ridge) == pytest.approx(fit_weights(x, target, weight, ridge))


def test_separable_preferences_have_finite_weights_and_no_ridge_is_refused() -> None:
    x = np.ones((50, 1))
    assert 0 < fit_weights(x, np.ones(50), np.ones(50), 1.0)[0] < 10
    with pytest.raises(ValueError, match="expected a number above 0"):
        fit_weights(x, np.ones(50), np.ones(50), 0.0)


@given(st.integers(0, 2**31), st.sampled_from(list(Fn)))
@settings(max_examples=40, deadline=None)
def test_a_swapped_pair_gets_the_opposite_verdict_and_k_verdicts_are_transitive(seed: int, fn: Fn) -> None:
    table, _, pairs = drawn(seed, num_groups=6)
    values = table.values.copy()
    values[np.random.default_rng(seed).random(values.shape) < 0.2] = np.nan
    table = type(table)(
        features=table.features, values=values, group=table.group, names=table.names, contexts=table.contexts
    )
    library = Library.of(
        "x", [skill("one", criterion=counting("a@1/x", 1.0, fn=fn)), skill("two", criterion=counting("b@1/x", -2.0))]
    )
    scores = score(table, library)
    there, back = scores.margin(pairs.first, pairs.second), scores.margin(pairs.second, pairs.first)
    assert np.array_equal(there, -back, equal_nan=True)
    for group in range(6):
        rows = np.flatnonzero(table.group == group)
        order = scores.order([int(row) for row in rows if scores.judged[row]])
        said = [scores.verdict(a, b) for a, b in itertools.pairwise(order)]
        assert Label.B not in said


def test_a_candidate_that_no_criterion_can_tell_anything_of_is_not_judged() -> None:
    table, _, _ = drawn(0, num_groups=4)
    library = Library.of("x", [skill("moves", criterion=counting("a@1/x", 1.0, contexts=("move",)))])
    scores = score(table, library)
    assert scores.verdict(0, 1) is None  # the first task is to add
    assert scores.verdict(4, 5) in (Label.A, Label.B)
    with pytest.raises(KeyError, match="no feature 'z@1/z'"):
        score(table, Library.of("x", [skill("z", criterion=counting("z@1/z", 1.0))]))


@pytest.mark.parametrize("fn", list(Fn))
def test_transforms_are_finite_for_anything_and_keep_what_is_missing(fn: Fn) -> None:
    values = np.array([-1e300, -1.0, 0.0, 1.0, 1e300, np.nan])
    done = Transform(fn=fn, offset=0.5, scale=1e-3)(values)
    assert np.isfinite(done[:5]).all()
    assert np.isnan(done[5])


# Promise and gate ---------------------------------------------------------------------------------------------------


def test_promise_is_the_slope_of_the_likelihood_over_its_clustered_error() -> None:
    table, _, pairs = drawn(3, num_groups=30)
    differences = table.values[pairs.first] - table.values[pairs.second]
    margin = 0.3 * differences[:, 0]
    found = promise(differences, margin, pairs)
    for j in (0, 1, 5):
        slopes = []
        for group in np.unique(pairs.group):
            mine = pairs.group == group

            def loss(w: float, mine: np.ndarray = mine, j: int = j) -> float:
                return float(log_losses(margin[mine] + w * differences[mine, j], pairs.target[mine]).sum())

            slopes.append(-(loss(1e-5) - loss(-1e-5)) / 2e-5)
        assert found[j] == pytest.approx(sum(slopes) / math.sqrt(sum(s * s for s in slopes)), rel=1e-4)
    assert found[1] < -3 < 3 < found[0]


def test_a_comparison_counts_pairs_and_bets_on_groups() -> None:
    _table, worth, pairs = drawn(1, num_groups=10)
    truth = worth[pairs.first] - worth[pairs.second]
    found = compare(pairs, np.zeros(len(pairs)), truth)
    assert (found.incumbent, found.challenger, found.num_groups) == (0.5, 1.0, 10)
    assert (found.counts.wins, found.counts.losses) == (len(pairs), 0)
    process = BettingProcess.start(0.0).observed(-1.0, 10)
    assert found.log_evalue == pytest.approx(process.log_evalue)
    same = compare(pairs, truth, truth)
    assert (same.gain.value, same.counts.ties) == (0.0, len(pairs))


def test_failures_are_no_votes_and_too_many_decide_nothing() -> None:
    _table, worth, pairs = drawn(1, num_groups=10)
    truth = worth[pairs.first] - worth[pairs.second]
    broken = truth.copy()
    broken[: len(pairs) // 10] = np.nan
    found = compare(pairs, np.zeros(len(pairs)), broken)
    assert (found.challenger, found.failures) == (1.0, len(pairs) // 10)
    for decision in (GateRule().open(found, Ledger())[0], GateRule().add(found), GateRule().delete(found)):
        assert not decision.accept
        assert "judgments failed" in decision.reason


def test_openings_cost_more_the_later_they_are() -> None:
    _table, worth, pairs = drawn(1, num_groups=12)
    found = compare(pairs, np.zeros(len(pairs)), worth[pairs.first] - worth[pairs.second])
    first, ledger = GateRule().open(found, Ledger())
    late, _ = GateRule().open(found, Ledger(tests=200))
    assert first.accept
    assert ledger.is_open
    assert not late.accept


# Evolution ----------------------------------------------------------------------------------------------------------


def test_the_features_that_matter_are_found_and_the_library_judges_fresh_tasks() -> None:
    table, _, pairs = drawn(0)
    found = evolve(table, pairs, EvolutionSettings(), start=EMPTY)
    counted = {criterion.feature for _, criterion in found.library.criteria}
    assert {"a@1/x", "b@1/x", "c@1/x"} <= counted
    assert accuracy(found.library, 99) > 0.9
    assert found.confirmed is not None
    assert found.confirmed.gain.low > 0.2
    assert evolve(table, pairs, EvolutionSettings(), start=EMPTY) == found


def test_labels_without_meaning_open_nothing() -> None:
    table, _, pairs = drawn(0)
    pool = pool_of(table)
    accepted = [
        evolve(table, coins(pairs, seed), EvolutionSettings(seed=seed), start=EMPTY, pool=pool).accepted
        for seed in range(20)
    ]
    assert sum(accepted) <= 10  # half a skill on average


def test_what_proposes_never_confirms() -> None:
    table, _, pairs = drawn(0)
    confirming = split_groups(table.names, 0.4, 0)
    assert int(confirming.sum()) == 24
    # Labels that mean something in the proposing half alone are seen through.
    half = confirming[pairs.group]
    mixed = pairs.with_targets(np.where(half, coins(pairs, 5).target, pairs.target))
    assert evolve(table, mixed, EvolutionSettings(), start=EMPTY).accepted == 0


def test_two_skills_that_make_up_for_each_other_are_not_both_deleted() -> None:
    table, _, pairs = drawn(0)
    twins = Library.of(
        "twins",
        [skill("one", criterion=counting("a@1/x", 1.0)), skill("two", criterion=counting("a@1/x", 1.01))],
    )
    found = evolve(table, pairs, EvolutionSettings(max_skills=2), start=twins)
    deleted = [trial.name for trial in found.trials if trial.action is Action.DELETE and trial.accepted]
    assert len(deleted) == 1
    assert {criterion.feature for _, criterion in found.library.criteria} == {"a@1/x"}


def test_entries_without_a_criterion_are_left_alone() -> None:
    table, _, pairs = drawn(0)
    start = Library.of("start", [skill("for-a-model")])
    assert evolve(table, pairs, EvolutionSettings(), start=start).library.get("for-a-model") == skill("for-a-model")


def test_answers_that_are_kept_make_it_cheaper_than_judging_everything_again() -> None:
    table, _, pairs = drawn(0)
    found = evolve(table, pairs, EvolutionSettings(), start=EMPTY)
    assert 0 < found.judgments < found.judgments_without_cache / 2


def test_ties_place_a_zone_of_ties() -> None:
    table, worth, pairs = drawn(0)
    near = np.abs(worth[pairs.first] - worth[pairs.second]) < 0.4
    with_ties = pairs.with_targets(np.where(near, 0.5, pairs.target))
    found = evolve(table, with_ties, EvolutionSettings(), start=EMPTY)
    assert found.tie > 0.0
    scores = score(table, found.library, tie=found.tie)
    said = [scores.verdict(int(a), int(b)) is Label.TIE for a, b in zip(pairs.first, pairs.second, strict=True)]
    assert np.mean(said) == pytest.approx(near.mean(), abs=0.02)


def test_too_few_groups_are_an_error() -> None:
    table, _, pairs = drawn(0, num_groups=3)
    with pytest.raises(ValueError, match="expected 4 or more"):
        evolve(table, pairs, EvolutionSettings(), start=EMPTY)


def test_credit_says_which_skill_saved_and_spoiled_a_pair() -> None:
    _, _, pairs = drawn(0, num_groups=2)
    three = pairs.where(np.arange(len(pairs)) < 3).with_targets(np.ones(3))
    contributions = np.array([[2.0, -1.0], [1.0, -3.0], [0.0, 1.0]])
    one, two = credits_of(("one", "two"), contributions, three)
    assert (one.used, one.right, one.pivotal_right, one.pivotal_wrong) == (2, 2, 1, 0)
    assert (two.used, two.right, two.pivotal_right, two.pivotal_wrong) == (3, 1, 1, 1)
