"""Panels on made-up verdicts, against hand figures and other libraries' values recorded here."""

import math

import numpy as np
import pytest

from coharness.reward.panel.choice import choose_count
from coharness.reward.panel.davidson import Comparison, fit_davidson, outcome_probabilities
from coharness.reward.panel.dawid_skene import fit_dawid_skene
from coharness.reward.panel.disagreement import krippendorff_alpha, mean_tau, mutual_information, vote_entropy
from coharness.reward.panel.effective import effective_votes, kish
from coharness.reward.panel.log_odds import anchored_reliabilities, fit_vote
from coharness.reward.panel.robust import hodges_lehmann, mad, median, trimmed_mean
from coharness.reward.panel.votes import (
    Anchors,
    accuracy,
    anchors_of,
    majority,
    swap_inconsistency,
    symmetrised,
)


def simulated(accuracies: list[float], num_items: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.choice([-1.0, 1.0], size=num_items)
    right = rng.random((len(accuracies), num_items)) < np.asarray(accuracies)[:, None]
    return np.where(right, truth, -truth), truth


def biased_panel(num_items: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One good judge, and four that share a bias which is right in 3 of 10 items."""
    rng = np.random.default_rng(seed)
    truth = rng.choice([-1.0, 1.0], size=num_items)
    bias = np.where(rng.random(num_items) < 0.3, truth, -truth)
    flip = lambda base, p: np.where(rng.random(num_items) < p, base, -base)  # noqa: E731
    return np.stack([flip(truth, 0.9), *(flip(bias, 0.9) for _ in range(4))]), truth


# Robust scores and votes --------------------------------------------------------------------------------------------


def test_robust_scores_of_the_reference() -> None:
    scores = (0.9, 0.85, 0.8, 0.82, 0.1)
    assert np.mean(scores) == pytest.approx(0.694)
    assert trimmed_mean(scores) == pytest.approx(0.8233, abs=1e-4)
    assert median(scores) == 0.82
    assert mad(scores) == pytest.approx(0.03)
    assert hodges_lehmann((1.0, 2.0, 9.0)) == 3.5
    with pytest.raises(ValueError, match="share in"):
        trimmed_mean((0.5,), 0.5)


def test_two_orders_are_one_verdict() -> None:
    one, two = [[1, -1, 1, 0]], [[1, -1, -1, 1]]
    assert symmetrised(one, two).tolist() == [[1.0, -1.0, 0.0, 0.5]]
    assert swap_inconsistency(one, two).tolist() == [pytest.approx(1 / 3)]


@pytest.mark.parametrize("labels", [[1.0, 0.0], [1.0, 2.0]])
def test_anchors_are_settled(labels: list[float]) -> None:
    with pytest.raises(ValueError, match=r"other than \+1 and -1"):
        anchors_of([0, 1], labels)


def test_an_anchor_counts_once() -> None:
    with pytest.raises(ValueError, match="stands twice"):
        anchors_of([3, 3], [1.0, 1.0])


def test_without_anchors_a_vote_is_refused() -> None:
    verdicts, _ = simulated([0.9, 0.6], 10, 0)
    with pytest.raises(ValueError, match="cannot be told from the truth"):
        fit_vote(verdicts, anchors_of([], []))
    with pytest.raises(ValueError, match="agreement with its own cohort"):
        anchored_reliabilities(verdicts, anchors_of([], []))


def test_reliabilities_are_shrunk_shares() -> None:
    verdicts = [[1.0, 1.0, 1.0, 0.0]]
    few = anchored_reliabilities(verdicts, anchors_of([0, 1, 2, 3], [1, 1, -1, 1]))
    assert few.tolist() == [pytest.approx((2.5 + 4) / (4 + 8))]
    many = anchored_reliabilities(np.ones((1, 40)), anchors_of(range(40), [1.0] * 40))
    assert many.tolist() == [pytest.approx(41 / 42)]


def test_the_vote_leaves_out_judges_that_are_worse_than_a_coin_and_follows_the_good_one() -> None:
    verdicts, truth = biased_panel(400, 1)
    anchors = anchors_of(range(40), truth[:40])
    vote = fit_vote(verdicts, anchors)
    assert (vote.weights[1:] == 0).all()
    assert vote.weights[0] > 0
    assert accuracy(vote.log_odds(verdicts)[40:], truth[40:]) > 0.85
    assert accuracy(majority(verdicts)[40:], truth[40:]) < 0.5


def test_a_family_shares_one_vote() -> None:
    verdicts, truth = simulated([0.8, 0.8, 0.8], 200, 2)
    anchors = anchors_of(range(60), truth[:60])
    alone = fit_vote(verdicts, anchors)
    shared = fit_vote(verdicts, anchors, ["a", "b", "b"])
    best = int(np.argmax(alone.weights))
    assert shared.weights[0] >= alone.weights[0] * (0.99 if best == 0 else 1.0)
    assert shared.weights[1] < alone.weights[1]
    with pytest.raises(ValueError, match="2 families for 3 judges"):
        fit_vote(verdicts, anchors, ["a", "b"])


def test_effective_votes() -> None:
    assert kish(6, 0.415) == pytest.approx(1.95, abs=0.005)
    verdicts, truth = simulated([0.7], 500, 3)
    everything = anchors_of(range(500), truth)
    assert effective_votes(np.repeat(verdicts, 4, axis=0), everything) == pytest.approx(1.0)
    independent, truth = simulated([0.7] * 4, 5000, 4)
    assert effective_votes(independent, anchors_of(range(5000), truth)) == pytest.approx(4.0, abs=0.25)


# Dawid and Skene ----------------------------------------------------------------------------------------------------


def test_a_biased_cohort_is_taken_for_the_truth_and_the_fit_says_so() -> None:
    verdicts, truth = biased_panel(400, 5)
    free = fit_dawid_skene(verdicts, None)
    assert accuracy(free.probability - 0.5, truth) < 0.4
    assert not free.identifiable
    held = fit_dawid_skene(verdicts, anchors_of(range(60), truth[:60]))
    assert held.identifiable
    # It inverts the cohort, and then counts its four members as four witnesses: better than a coin, worse than the vote.
    reached = accuracy(held.probability[60:] - 0.5, truth[60:])
    assert (
        0.6
        < reached
        < accuracy(fit_vote(verdicts, anchors_of(range(60), truth[:60])).log_odds(verdicts)[60:], truth[60:])
    )
    few = fit_dawid_skene(verdicts, anchors_of(range(3), truth[:3]))
    assert not few.identifiable, "three anchors prove nothing"


def test_independent_judges_are_recovered() -> None:
    verdicts, truth = simulated([0.9, 0.75, 0.6, 0.55], 3000, 6)
    fitted = fit_dawid_skene(verdicts, anchors_of(range(50), truth[:50]), anchor_share=0.0)
    assert fitted.identifiable
    assert fitted.sensitivity.tolist() == pytest.approx([0.9, 0.75, 0.6, 0.55], abs=0.05)
    assert fitted.specificity.tolist() == pytest.approx([0.9, 0.75, 0.6, 0.55], abs=0.05)
    assert accuracy(fitted.probability - 0.5, truth) > 0.89
    assert (fitted.probability[:50] == (truth[:50] + 1) / 2).all()


def test_dawid_skene_agrees_with_crowd_kit() -> None:
    """P(class 1) by DawidSkene(n_iter=5000, tol=1e-14) of crowd-kit 1.4.2, which smooths its confusion matrices a little."""
    recorded = [0.995, 0.998, 0.962, 0.995, 0.984, 0.715, 0.998, 0.001, 0.001, 0.011, 0.001, 0.871, 0.959, 0.004]
    verdicts, _ = simulated([0.9, 0.8, 0.7, 0.75, 0.6], 300, 7)
    fitted = fit_dawid_skene(verdicts, None, prior_counts=(1e-9, 1e-9), class_count=0.0, max_iterations=5000)
    assert fitted.probability[:14].tolist() == pytest.approx(recorded, abs=0.004)


# Davidson -----------------------------------------------------------------------------------------------------------


def test_outcomes_at_the_reference_point() -> None:
    win, tie, loss = outcome_probabilities(math.log(2), 0.5)
    assert (win, tie, loss) == pytest.approx((0.5395, 0.1907, 0.2698), abs=1e-4)


def test_strengths_position_and_an_adversarial_judge_are_recovered() -> None:
    rng = np.random.default_rng(8)
    theta = np.array([1.0, 0.4, -0.2, -1.2])
    delta, beta = (0.5, 0.0, -0.1), (1.2, 1.0, -0.8)
    rows = []
    for _ in range(6000):
        judge = int(rng.integers(3))
        first, second = (int(i) for i in rng.choice(4, size=2, replace=False))
        p = outcome_probabilities(beta[judge] * (theta[first] - theta[second]) + delta[judge], 0.5)
        rows.append(Comparison(judge=judge, first=first, second=second, verdict=int(rng.choice([1, 0, -1], p=p))))
    fitted = fit_davidson(rows, 4, 3, fit_reliability=True)
    scale = fitted.reliabilities[1]
    assert (fitted.strengths * scale).tolist() == pytest.approx(theta.tolist(), abs=0.15)
    assert (fitted.reliabilities / scale).tolist() == pytest.approx(list(beta), abs=0.15)
    assert fitted.position_bias.tolist() == pytest.approx(list(delta), abs=0.12)
    assert fitted.tie == pytest.approx(0.5, abs=0.05)


def test_a_candidate_that_never_won_stays_finite() -> None:
    fitted = fit_davidson([Comparison(judge=0, first=0, second=1, verdict=1)] * 5, 2)
    assert np.isfinite(fitted.strengths).all()
    assert fitted.strengths[0] > fitted.strengths[1]
    with pytest.raises(ValueError, match=r"outside 0\.\.1"):
        fit_davidson([Comparison(judge=0, first=0, second=2, verdict=1)], 2)


# Disagreement -------------------------------------------------------------------------------------------------------


def test_entropy_and_information() -> None:
    assert vote_entropy([[1, 1, 1], [1, -1, 0]]).tolist() == [0.0, 1.0, 1.0]
    information = mutual_information([[0.5, 1.0, 0.9], [0.5, 0.0, 0.9]])
    assert information.tolist() == pytest.approx([0.0, 1.0, 0.0], abs=1e-9)


def test_ordinal_alpha_agrees_with_the_krippendorff_package() -> None:
    """krippendorff 0.9.0, level_of_measurement='ordinal', on Krippendorff's own example with missing ratings."""
    n = math.nan
    ratings = [
        [n, n, n, n, n, 3, 4, 1, 2, 1, 1, 3, 3, n, 3],
        [1, n, 2, 1, 3, 3, 4, 3, n, n, n, n, n, n, n],
        [n, n, 2, 1, 3, 4, 4, n, 2, 1, 1, 3, 3, n, 4],
    ]
    assert krippendorff_alpha(ratings) == pytest.approx(KRIPPENDORFF, abs=1e-9)
    assert krippendorff_alpha([[1, 2, 3], [1, 2, 3]]) == 1.0
    with pytest.raises(ValueError, match="no item has two ratings"):
        krippendorff_alpha([[1, n], [n, 2]])


KRIPPENDORFF = 0.8067214199413153


def test_mean_tau_leaves_out_judges_without_an_order() -> None:
    assert mean_tau([[1, 2, 3], [1, 2, 3], [5, 5, 5]]) == pytest.approx(1.0)
    assert mean_tau([[1, 2, 3], [3, 2, 1]]) == pytest.approx(-1.0)
    with pytest.raises(ValueError, match="no two judges"):
        mean_tau([[1, 1], [2, 2]])


# Choice -------------------------------------------------------------------------------------------------------------


def test_held_out_anchors_choose_and_say_why() -> None:
    verdicts, truth = simulated([0.85, 0.7, 0.65], 500, 9)
    chosen = choose_count(verdicts, anchors_of(range(60), truth[:60]), np.random.default_rng(0))
    assert set(chosen.held_out) == {"vote", "best", "dawid_skene"}
    assert accuracy(chosen.decisions[60:], truth[60:]) > 0.82
    with pytest.raises(ValueError, match="at least 4"):
        choose_count(verdicts, anchors_of([0, 1], truth[:2]), np.random.default_rng(0))


def test_a_subset_keeps_items_and_labels_together() -> None:
    anchors = anchors_of([5, 2, 9], [1, -1, 1])
    part: Anchors = anchors.subset(np.array([True, False, True]))
    assert (part.items.tolist(), part.labels.tolist()) == ([5, 9], [1.0, 1.0])
