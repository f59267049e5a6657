"""Rules: what they make of parts, what they never do, how they are spelled."""

from typing import Any

import numpy as np
import pytest

from coharness.records.errors import ConfigError
from coharness.reward.algebra import Part, PartOutcome, Rule, rule_from_json
from coharness.reward.algebra.group import feasible_advantages, group_scores, mid_ranks, standardised
from coharness.reward.algebra.mutate import mutate_rule

FULL: dict[str, Any] = {
    "value": {
        "verifier_first": {
            "check": "exact",
            "partial": "partial",
            "cap": 0.8,
            "judge": {"power": {"exponent": -4, "of": {"judge/*": 1, "format": 0.5}}},
        }
    },
    "floors": [{"part": "safe", "at_least": 0.5}],
    "penalties": [{"part": "cost", "weight": 0.25, "limit": 0.1, "ki": 0.5}],
    "floor_value": -1.0,
    "group": "rank",
}


def rule(value: Any, **others: Any) -> Rule:
    return rule_from_json({"value": value, **others})


def parts(**values: float | PartOutcome) -> list[Part]:
    return [
        Part.failed(name, value, "why") if isinstance(value, PartOutcome) else Part.ok(name, value)
        for name, value in values.items()
    ]


def test_a_rule_comes_back_from_its_own_spelling() -> None:
    for data in (
        FULL,
        {"value": "exact"},
        {"value": {"sum": {"of": {"exact": 1, "length": -0.5}}}, "group": "gdpo"},
        {
            "value": {
                "soft_min": {"temperature": 0.1, "of": [{"value": {"not": "bad"}, "weight": 2}, {"value": "good"}]}
            }
        },
        {"value": {"lexicographic": {"of": ["safe", {"min": {"of": {"step/*": 1}}}, "good"], "levels": [2, 4]}}},
    ):
        made = rule_from_json(data)
        assert rule_from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"value": {"maen": {"of": {"a": 1}}}}, "did you mean mean"),
        ({"value": {"mean": {"off": {"a": 1}}}}, "did you mean of"),
        ({"value": {"mean": {"of": {}}}}, "is empty"),
        ({"value": {"mean": {"of": {"a": 0}}}}, "weight 0"),
        ({"value": {"mean": {"of": {"a": float("nan")}}}}, "expected a finite number"),
        ({"value": {"mean": {"of": {"a": True}}}}, "expected a finite number"),
        ({"value": {"mean": {"of": [{"value": {"sum": {"of": {"a": 1}}}}]}}}, "may stand at the top alone"),
        ({"value": {"verifier_first": {"check": "a", "judge": "b", "cap": 1.0}}}, "could tie"),
        ({"value": {"verifier_first": {"check": "judge/*", "judge": "b"}}}, "the name of one part"),
        ({"value": {"lexicographic": {"of": ["a", "b"], "levels": [1]}}}, "whole numbers of 2"),
        ({"value": "a", "grop": "none"}, "did you mean group"),
        ({"value": "a", "group": "gdp"}, "did you mean gdpo"),
        ({"value": "a", "penalties": [{"part": "c", "ki": 0.5}]}, "has no limit"),
        ({"value": "a", "floors": {"part": "c"}}, "expected a list"),
        ({"valu": "a"}, "did you mean value"),
        ({}, "lacks value"),
        ([], "expected a mapping"),
    ],
)
def test_a_mistake_is_named_with_its_fix(data: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rule_from_json(data)


def test_a_tree_cannot_be_bottomless() -> None:
    node: Any = "a"
    for _ in range(20):
        node = {"mean": {"of": [{"value": node}]}}
    with pytest.raises(ConfigError, match="nested deeper"):
        rule_from_json({"value": node})


@pytest.mark.parametrize("outcome", [PartOutcome.ABSTAIN, PartOutcome.PARSE, PartOutcome.INFRA])
def test_a_missing_part_drops_out_with_its_weight(outcome: PartOutcome) -> None:
    for kind in ("mean", "sum"):
        made = rule({kind: {"of": {"a": 1, "b": 1, "c": 2}}})
        reward = made.evaluate(parts(a=0.2, b=outcome, c=0.8))
        whole = made.evaluate(parts(a=0.2, b=0.6, c=0.8))
        assert reward.value == pytest.approx(whole.value)
        assert reward.missing == ("b",)


def test_below_the_quorum_there_is_no_reward_and_the_gravest_failure_names_it() -> None:
    made = rule({"mean": {"of": {"a": 1, "b": 1, "c": 1}, "quorum": 0.5}})
    reward = made.evaluate(parts(a=1.0, b=PartOutcome.PARSE, c=PartOutcome.INFRA))
    assert (reward.value, reward.outcome) == (None, PartOutcome.INFRA)
    assert set(reward.missing) == {"b", "c"}


def test_a_part_that_was_never_given_abstains() -> None:
    reward = rule("a").evaluate([])
    assert (reward.value, reward.outcome, reward.missing) == (None, PartOutcome.ABSTAIN, ("a",))


def test_a_pattern_stands_for_each_part_that_matches() -> None:
    made = rule({"mean": {"of": {"judge/*": 1, "exact": 2}}})
    reward = made.evaluate([Part.ok("judge/a", 1.0), Part.ok("judge/b", 0.0), Part.ok("exact", 0.5)])
    assert reward.value == pytest.approx((1 + 0 + 2 * 0.5) / 4)


def test_a_pattern_without_a_match_counts_as_missing() -> None:
    made = rule({"mean": {"of": {"judge/*": 1, "exact": 1}, "quorum": 0.6}})
    assert made.evaluate(parts(exact=1.0)).value is None


@pytest.mark.parametrize("broken", [[Part.ok("safe", 0.4)], [Part.failed("other", PartOutcome.VIOLATED, "injection")]])
def test_a_broken_floor_is_never_averaged(broken: list[Part]) -> None:
    made = rule({"mean": {"of": {"a": 1}}}, floors=[{"part": "safe", "at_least": 0.5}], floor_value=-0.5)
    reward = made.evaluate([Part.ok("a", 1.0), *broken, *([] if broken[0].name == "safe" else [Part.ok("safe", 1.0)])])
    assert (reward.value, reward.outcome) == (-0.5, PartOutcome.VIOLATED)
    assert reward.violated == (broken[0].name,)


def test_breaking_the_instrument_does_not_pay() -> None:
    made = rule("a", floors=[{"part": "safe", "at_least": 0.5}], penalties=[{"part": "cost", "weight": 1.0}])
    for missing in ({"safe": PartOutcome.INFRA, "cost": 0.0}, {"safe": 1.0, "cost": PartOutcome.PARSE}):
        reward = made.evaluate(parts(a=1.0, **missing))
        assert reward.value is None
        assert reward.outcome in (PartOutcome.INFRA, PartOutcome.PARSE)


def test_penalties_take_off_weight_times_cost_and_a_controller_may_move_the_weight() -> None:
    made = rule("a", penalties=[{"part": "cost", "weight": 0.5, "limit": 0.1}])
    given = parts(a=0.9, cost=0.4)
    assert made.evaluate(given).value == pytest.approx(0.7)
    assert made.evaluate(given, {"cost": 1.0}).value == pytest.approx(0.5)
    multiplier = made.penalties[0].multiplier
    assert multiplier is not None
    assert multiplier.value == 0.5


def test_no_penalty_makes_an_attempt_worse_than_a_violation() -> None:
    made = rule(
        {"mean": {"of": {"a": 1}}},
        floors=[{"part": "safe", "at_least": 0.5}],
        penalties=[{"part": "cost", "weight": 9.0}],
        floor_value=-2.0,
    )
    violated = made.evaluate(parts(a=1.0, safe=0.0, cost=0.0)).value
    costly, dear = (made.evaluate(parts(a=0.5, safe=1.0, cost=c)).value for c in (0.2, 1.0))
    assert (violated, costly, dear) == (-2.0, pytest.approx(-1.3), -2.0)


def test_without_the_check_no_judge_speaks() -> None:
    made = rule({"verifier_first": {"check": "exact", "judge": "j", "without_judge": "lower_end"}})
    assert made.evaluate(parts(exact=PartOutcome.INFRA, j=1.0)).outcome is PartOutcome.INFRA
    assert made.evaluate(parts(exact=1.0, j=PartOutcome.PARSE)).value == 0.5
    strict = rule({"verifier_first": {"check": "exact", "judge": "j"}})
    assert strict.evaluate(parts(exact=1.0, j=PartOutcome.PARSE)).outcome is PartOutcome.PARSE


# Groups -------------------------------------------------------------------------------------------------------------


def rewards_of(made: Rule, rows: list[dict[str, Any]]) -> Any:
    return [made.evaluate(parts(**row)) for row in rows]


def test_gdpo_keeps_apart_what_a_joint_sum_merges() -> None:
    rows: list[dict[str, Any]] = [
        {"a": 0.0, "b": 1.0},
        {"a": 1.0, "b": 0.0},
        {"a": 1.0, "b": 1.0},
        {"a": 1.0, "b": 0.0},
    ]
    made = rule({"sum": {"of": {"a": 1, "b": 1}}}, group="gdpo")
    joint = [0.0 + r["a"] + r["b"] for r in rows]
    assert joint[0] == joint[1]
    values = group_scores(made, rewards_of(made, rows)).values
    z = lambda x: (np.asarray(x) - np.mean(x)) / np.std(x)  # noqa: E731
    assert values == pytest.approx((z([r["a"] for r in rows]) + z([r["b"] for r in rows])).tolist())
    assert values[0] != values[1]


def test_gdpo_counts_components_without_spread() -> None:
    made = rule({"sum": {"of": {"a": 1, "b": 3}}}, group="gdpo")
    scores = group_scores(made, rewards_of(made, [{"a": 0.0, "b": 0.5}, {"a": 1.0, "b": 0.5}]))
    assert scores.collapsed == ("b",)
    assert scores.values == pytest.approx([-1.0, 1.0])


@pytest.mark.parametrize("group", ["none", "gdpo", "rank", "pareto"])
def test_attempts_without_a_reward_stay_out_and_violated_ones_are_last(group: str) -> None:
    made = rule({"mean": {"of": {"a": 1, "b": 1}, "quorum": 0.9}}, group=group, floor_value=0.0,
                floors=[{"part": "safe", "at_least": 0.5}])  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"a": 0.5, "b": 0.4, "safe": 1.0},
        {"a": PartOutcome.INFRA, "b": 0.9, "safe": 1.0},
        {"a": 1.0, "b": 1.0, "safe": 0.0},
        {"a": 0.7, "b": 0.8, "safe": 1.0},
    ]
    values = group_scores(made, rewards_of(made, rows)).values
    assert values[1] is None
    first, third, fourth = values[0], values[2], values[3]
    assert first is not None
    assert third is not None
    assert fourth is not None
    assert third < first < fourth


def test_ranks_share_their_middle() -> None:
    assert mid_ranks([0.3, None, 0.1, 0.3]) == [0.75, None, 0.0, 0.75]
    assert mid_ranks([0.3]) == [0.5]
    assert standardised([2.0, 2.0, None]) == [0.0, 0.0, None]


def test_a_crowd_of_cheats_is_no_baseline() -> None:
    values = [0.4, 0.6, 1.0, 1.0, 1.0, 1.0]
    feasible = [True, True, False, False, False, False]
    gated = feasible_advantages(values, feasible)
    plain = standardised(values)
    assert plain[1] is not None
    assert plain[1] < 0
    assert gated[:2] == pytest.approx([-1.0, 1.0])
    assert all(v == 0.0 for v in gated[2:])
    assert feasible_advantages(values, [True, *[False] * 5]) == plain


# Evolution ----------------------------------------------------------------------------------------------------------


def test_mutation_moves_one_weight_and_never_a_floor_cap_or_order() -> None:
    normal = rule_from_json(FULL).to_json()
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(60):
        child = mutate_rule(normal, rng)
        assert child is not None
        before, after = flat(normal), flat(child)
        changed = {key for key in before if before[key] != after[key]}
        assert len(changed) == 1
        seen |= changed
    assert not any("cap" in key or "floor" in key or "at_least" in key or "limit" in key for key in seen)
    assert any("exponent" in key for key in seen)
    assert any("penalties" in key for key in seen)
    assert mutate_rule(rule_from_json({"value": "exact"}).to_json(), rng) is None


def flat(data: Any, path: str = "") -> dict[str, Any]:
    if isinstance(data, dict):
        return {k: v for key, value in data.items() for k, v in flat(value, f"{path}.{key}").items()}
    if isinstance(data, list):
        return {k: v for i, value in enumerate(data) for k, v in flat(value, f"{path}[{i}]").items()}
    return {path: data}
