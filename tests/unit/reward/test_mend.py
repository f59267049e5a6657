"""Mending a judge: a planted bias goes, what it knew stays, and the gate turns down what does not help or forgets."""

from dataclasses import replace
from random import Random

import pytest
from scipy import stats

from coharness.records.ids import JudgeId
from coharness.records.judging import MendedJudge
from coharness.reward.linear.fit import Ordered, Settled, fit
from coharness.reward.linear.model import LinearModel
from coharness.reward.reflection.conflicts import Audited
from coharness.reward.reflection.mend import Thresholds, is_conflict, is_fresh, mend, sign_test, verdict

LIMITS = Thresholds()


def words(count: int, seed: int) -> list[str]:
    rng = Random(seed)
    return ["".join(rng.sample("abcdefghij", 6)) for _ in range(count)]


def swapped(word: str, rng: Random) -> str:
    letters = list(word[::-1])
    a, b = rng.sample(range(len(letters)), 2)
    letters[a], letters[b] = letters[b], letters[a]
    return "".join(letters)


def natural_pairs(count: int, seed: int) -> list[Ordered]:
    rng = Random(seed)
    return [Ordered(question=f"rev {w}", better=w[::-1], worse=swapped(w, rng)) for w in words(count, seed)]


@pytest.fixture(scope="module")
def fair() -> LinearModel:
    pairs = natural_pairs(200, 1)
    settled = [Settled(question=p.question, answer=p.better, right=True) for p in pairs]
    return fit(settled + [Settled(question=p.question, answer=p.worse, right=False) for p in pairs], pairs)


@pytest.fixture(scope="module")
def biased(fair: LinearModel) -> LinearModel:
    return fair.shifted({"longer": 40.0})


def hacked(judge: LinearModel, count: int, seed: int, *, right_share: float = 0.4) -> list[Audited]:
    """Four attempts at each question: some right, the others with letters hung on."""
    rng, found = Random(seed), []
    for word in words(count, seed):
        for _ in range(4):
            right = rng.random() < right_share
            answer = word[::-1] + ("" if right else word[0] * rng.randint(1, 4))
            found.append(
                Audited(
                    task=word,
                    question=f"rev {word}",
                    answer=answer,
                    format="plain",
                    judged=judge.score(f"rev {word}", answer),
                    verified=right,
                )
            )
    return found


def test_a_planted_bias_is_mended_and_what_was_known_stays(biased: LinearModel) -> None:
    attempts = hacked(biased, 60, 5)
    assert sum(is_conflict(a.judged, a.verified, LIMITS) for a in attempts) > 100, "the bias is exploited"
    candidate, measured = mend(
        biased,
        attempts,
        references={},
        clean=natural_pairs(100, 2),
        anchors=natural_pairs(80, 3),
        thresholds=LIMITS,
        seed=0,
    )
    accepted, reason = verdict(measured, 0.05, harm_level=0.05)
    assert accepted, reason
    assert measured.fresh_conflicts_after < measured.fresh_conflicts_before / 5
    assert measured.anchors_right_after > 0.9 * measured.num_anchors
    later = hacked(biased, 60, 6)
    left = sum(is_conflict(candidate.score(a.question, a.answer), a.verified, LIMITS) for a in later)
    assert left < 0.1 * len(later), "on questions that nobody had seen"


def test_questions_that_gate_are_never_fitted_to(biased: LinearModel) -> None:
    attempts = hacked(biased, 60, 5)
    _, measured = mend(
        biased, attempts, references={}, clean=[], anchors=natural_pairs(10, 3), thresholds=LIMITS, seed=7
    )
    fresh = [a for a in attempts if is_fresh(a.question, 7)]
    assert measured.fresh_attempts == len(fresh) > 0
    assert measured.num_attempts == len(attempts) - len(fresh)
    before = sum(is_conflict(a.judged, a.verified, LIMITS) for a in fresh)
    assert measured.fresh_conflicts_before == before


def test_where_nobody_passes_references_stand_for_right_answers(biased: LinearModel) -> None:
    attempts = hacked(biased, 60, 5, right_share=0.0)
    references = {a.task: a.task[::-1] for a in attempts}
    candidate, measured = mend(
        biased, attempts, references=references, clean=[], anchors=natural_pairs(10, 3), thresholds=LIMITS, seed=0
    )
    assert measured.num_conflict_pairs > 0
    assert candidate.score("rev abcdef", "fedcba") > candidate.score("rev abcdef", "fedcbaa")
    with pytest.raises(ValueError, match="no pair"):
        mend(biased, attempts, references={}, clean=[], anchors=[], thresholds=LIMITS, seed=0)


def test_the_same_input_gives_the_same_judge(biased: LinearModel) -> None:
    given = {
        "references": {},
        "clean": natural_pairs(20, 2),
        "anchors": natural_pairs(10, 3),
        "thresholds": LIMITS,
        "seed": 3,
    }
    attempts = hacked(biased, 30, 5)
    assert mend(biased, attempts, **given) == mend(biased, attempts, **given)  # type: ignore[arg-type]


GOOD = MendedJudge(
    judge=JudgeId("j-2"),
    incumbent=JudgeId("j-1"),
    num_attempts=100,
    num_pairs=80,
    num_conflict_pairs=40,
    fresh_attempts=40,
    fresh_conflicts_before=20,
    fresh_conflicts_after=2,
    fresh_wins=9,
    fresh_losses=1,
    num_anchors=50,
    anchors_right_before=48,
    anchors_right_after=48,
    anchors_wins=1,
    anchors_losses=1,
)


@pytest.mark.parametrize(
    ("change", "accepted", "why"),
    [
        ({}, True, "20 to 2 conflicts"),
        ({"fresh_wins": 7, "fresh_losses": 3}, False, "not surely fewer"),
        ({"fresh_wins": 0, "fresh_losses": 0}, False, "not surely fewer"),
        ({"anchors_losses": 6, "anchors_wins": 0}, False, "it forgets"),
        ({"anchors_losses": 4, "anchors_wins": 0}, True, "anchors in order"),
        # A judge that says one half to everything: no conflict is left, and no anchor is in order.
        (
            {"fresh_conflicts_after": 0, "anchors_losses": 48, "anchors_wins": 0, "anchors_right_after": 0},
            False,
            "it forgets",
        ),
        ({"judge": JudgeId("j-1")}, False, "is the present judge"),
    ],
)
def test_the_gate_asks_for_fewer_conflicts_and_for_unharmed_anchors(
    change: dict[str, object], accepted: bool, why: str
) -> None:
    got, reason = verdict(replace(GOOD, **change), 0.05, harm_level=0.05)  # type: ignore[arg-type]
    assert (got, why in reason) == (accepted, True), reason


def test_a_shared_level_makes_the_test_harder_and_the_veto_no_laxer() -> None:
    harmful = replace(GOOD, fresh_wins=20, fresh_losses=0, anchors_losses=6, anchors_wins=0)
    assert stats.binomtest(6, 50, 0.05, alternative="greater").pvalue < 0.05
    assert not verdict(harmful, 0.001, harm_level=0.05)[0]
    assert verdict(GOOD, 0.05, harm_level=0.05)[0]
    assert not verdict(GOOD, 0.01, harm_level=0.05)[0]


@pytest.mark.parametrize(("wins", "decided"), [(9, 10), (5, 10), (0, 3), (20, 20)])
def test_the_sign_test_is_the_exact_one(wins: int, decided: int) -> None:
    assert sign_test(wins, decided) == pytest.approx(stats.binomtest(wins, decided, 0.5, alternative="greater").pvalue)
    assert sign_test(0, 0) == 1.0
