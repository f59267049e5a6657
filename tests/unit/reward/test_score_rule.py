"""Training scores under a rule: today's score where there is none, a named failure where a reward cannot be had."""

from typing import Any

import pytest

from coharness.records.errors import BoundaryError, ConfigError
from coharness.records.harness import Harness, RewardGenes, harness_from_json
from coharness.records.protocols import Check
from coharness.reward.algebra import Part, PartOutcome
from coharness.reward.algebra.book import MultiplierBook
from coharness.reward.score import CODE_PARTS, Attempted, needs_judge, rule_of, score_episode, score_group

RIGHT, WRONG = Check(correct=True, partial=1.0), Check(correct=False, partial=0.25, feedback="off by one")


def genes(rule: Any = None, **weights: float) -> RewardGenes:
    return RewardGenes(**weights, rule=rule or {})


def attempt(check: Check | None, used: int = 8, **judged: float | PartOutcome) -> Attempted:
    parts = tuple(
        Part.failed(f"judge/{n}", v, "why") if isinstance(v, PartOutcome) else Part.ok(f"judge/{n}", v)
        for n, v in judged.items()
    )
    return Attempted(check=check, tokens_used=used, max_tokens=16, judged=parts)


GROUP = [attempt(RIGHT), attempt(WRONG, 4), attempt(None, 16)]


def test_without_a_rule_each_attempt_has_the_plain_weighted_sum() -> None:
    weights = genes(exact=2.0, format=0.5, length=1.0, partial=0.1)
    expected = [score_episode(a.check, a.check is not None, a.tokens_used, a.max_tokens, weights) for a in GROUP]
    assert score_group(GROUP, weights) == expected


def test_a_rule_changes_the_value_and_keeps_the_parts() -> None:
    rule = {"value": {"sum": {"of": {"exact": 1, "length": 0.5}}}}
    plain, ruled = score_group(GROUP, genes()), score_group(GROUP, genes(rule))
    assert [s.value for s in ruled] == pytest.approx([1.0 + 0.25, 0.375, 0.0])
    for a, b in zip(plain, ruled, strict=True):
        assert (a.exact, a.partial, a.format, a.length, a.feedback) == (
            b.exact,
            b.partial,
            b.format,
            b.length,
            b.feedback,
        )


@pytest.mark.parametrize("part", ["exact", "partial", "format", "length", "overlong", "brevity"])
def test_silence_earns_nothing_whatever_is_rewarded(part: str) -> None:
    assert score_group(GROUP, genes({"value": part}))[2].value == 0.0


def test_what_the_sandbox_saw_can_be_rewarded_and_no_answer_earns_none_of_it() -> None:
    saw = dict.fromkeys(CODE_PARTS, 0.5)
    group = [attempt(Check(correct=False, partial=0.0, parts=saw)), attempt(None)]
    assert [s.value for s in score_group(group, genes({"value": "code/time"}))] == [0.5, 0.0]


def test_terms_of_length() -> None:
    group = [attempt(RIGHT, 12), attempt(RIGHT, 14), attempt(RIGHT, 4)]
    assert [s.value for s in score_group(group, genes({"value": "overlong"}))] == [1.0, 0.5, 1.0]
    assert [s.value for s in score_group(group, genes({"value": "brevity"}))] == pytest.approx([0.2, 0.0, 1.0])


def test_an_attempt_without_a_reward_fails_its_group_by_name() -> None:
    rule = {"value": {"mean": {"of": {"exact": 1, "judge/score": 3}}}}
    with pytest.raises(
        BoundaryError, match=r"attempt 1 has no reward, the outcome is infra; missing: judge/score \(infra: why\)"
    ):
        score_group([attempt(RIGHT, score=0.9), attempt(RIGHT, score=PartOutcome.INFRA)], genes(rule))


def test_a_violation_has_its_floor_and_says_so() -> None:
    rule = {"value": "exact", "floors": [{"part": "judge/safe", "at_least": 0.5}], "floor_value": -1.0}
    safe, unsafe = score_group([attempt(WRONG, safe=1.0), attempt(RIGHT, safe=0.0)], genes(rule))
    assert (safe.value, unsafe.value) == (0.0, -1.0)
    assert unsafe.feedback == "violated judge/safe"
    assert unsafe.exact == 1.0


def test_rules_are_read_once_and_wrong_ones_are_named() -> None:
    made = genes({"value": {"mean": {"of": {"judge/*": 1}}}})
    rule = rule_of(made)
    assert rule is not None
    assert rule_of(genes({"value": {"mean": {"of": {"judge/*": 1}}}})) is rule
    assert needs_judge(rule)
    assert rule_of(genes()) is None
    with pytest.raises(ConfigError, match="did you mean mean"):
        rule_of(genes({"value": {"maen": {"of": {"exact": 1}}}}))


def test_a_genome_without_a_rule_keeps_its_name_and_one_with_a_rule_has_another() -> None:
    plain, ruled = Harness(tasks=()), Harness(tasks=(), reward=genes({"value": "exact"}))
    assert "rule" not in plain.to_json()["reward"]
    assert plain.id != ruled.id
    assert harness_from_json(ruled.to_json()) == ruled
    assert harness_from_json(plain.to_json()) == plain


def test_a_soft_constraint_tightens_while_it_is_broken_and_each_book_is_its_own() -> None:
    rule = {
        "value": "exact",
        "penalties": [{"part": "judge/verbose", "weight": 0.5, "limit": 0.1, "ki": 0.5}],
    }
    book, values = MultiplierBook(), []
    for cost in (0.3, 0.2, 0.05, 0.05):
        (score,) = score_group([attempt(RIGHT, verbose=cost)], genes(rule), book)
        values.append((1.0 - score.value) / cost)
    assert values == pytest.approx([0.5, 0.60, 0.65, 0.625]), "each group is scored before it moves the multiplier"
    assert score_group([attempt(RIGHT, verbose=0.3)], genes(rule))[0].value == pytest.approx(1.0 - 0.5 * 0.3)
    read = rule_of(genes(rule))
    assert read is not None
    assert MultiplierBook().of(read) == {"judge/verbose": 0.5}


def test_what_was_not_measured_moves_no_multiplier() -> None:
    rule = {"value": "exact", "penalties": [{"part": "judge/verbose", "weight": 0.5, "limit": 0.1, "ki": 0.5}]}
    book = MultiplierBook()
    with pytest.raises(BoundaryError):
        score_group([attempt(RIGHT, verbose=PartOutcome.INFRA)], genes(rule), book)
    read = rule_of(genes(rule))
    assert read is not None
    assert book.of(read) == {"judge/verbose": 0.5}
