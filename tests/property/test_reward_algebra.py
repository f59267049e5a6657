"""Identities that hold for every rule and every set of parts."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.reward.algebra import Part, PartOutcome, rule_from_json
from coharness.reward.algebra.combine import power_mean, soft_min, weighted_mean
from coharness.reward.algebra.group import group_scores, mid_ranks, standardised
from coharness.reward.algebra.precedence import verifier_first
from coharness.reward.algebra.shaping import discounted, least_step, shaping_terms

units = st.floats(0, 1)
weights = st.floats(0.01, 100)
weighted = st.lists(st.tuples(units, weights), min_size=1, max_size=6)
NAMES = ("exact", "partial", "format", "judge/a", "judge/b")
outcomes = st.one_of(units, st.sampled_from([o for o in PartOutcome if o is not PartOutcome.OK]))
attempts = st.fixed_dictionaries(dict.fromkeys(NAMES, outcomes))


def nodes() -> st.SearchStrategy[Any]:
    names = st.sampled_from(NAMES)
    leaf = st.one_of(names, names.map(lambda n: {"not": n}))

    def grow(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        terms = st.lists(st.fixed_dictionaries({"value": children, "weight": weights}), min_size=1, max_size=3)
        return st.one_of(
            terms.map(lambda of: {"mean": {"of": of}}),
            terms.map(lambda of: {"min": {"of": of}}),
            st.tuples(terms, st.floats(-8, 1)).map(lambda p: {"power": {"of": p[0], "exponent": p[1]}}),
            st.tuples(terms, st.floats(0.01, 2)).map(lambda p: {"soft_min": {"of": p[0], "temperature": p[1]}}),
            st.tuples(names, children).map(lambda p: {"verifier_first": {"check": p[0], "judge": p[1]}}),
            st.lists(children, min_size=2, max_size=3).map(lambda of: {"lexicographic": {"of": of}}),
        )

    return st.recursive(leaf, grow, max_leaves=6)


def parts_of(row: dict[str, Any]) -> list[Part]:
    return [Part.failed(n, v, "x") if isinstance(v, PartOutcome) else Part.ok(n, v) for n, v in row.items()]


@settings(deadline=None)
@given(node=nodes(), row=attempts)
def test_a_reward_is_a_number_in_the_unit_interval_or_a_named_failure(node: Any, row: dict[str, Any]) -> None:
    reward = rule_from_json({"value": node}).evaluate(parts_of(row))
    if PartOutcome.VIOLATED in row.values():
        assert (reward.value, reward.outcome) == (0.0, PartOutcome.VIOLATED)
    elif reward.value is None:
        assert reward.outcome in (PartOutcome.ABSTAIN, PartOutcome.PARSE, PartOutcome.INFRA)
        assert reward.missing
    else:
        assert -1e-12 <= reward.value <= 1 + 1e-12


@settings(deadline=None)
@given(node=nodes())
def test_every_rule_survives_its_own_spelling(node: Any) -> None:
    made = rule_from_json({"value": node})
    assert rule_from_json(made.to_json()) == made


@given(judges=st.tuples(units, units), partial=st.one_of(st.none(), units), cap=st.floats(0.01, 0.99))
def test_no_judge_lifts_a_failed_attempt_above_a_passed_one(
    judges: tuple[float, float], partial: float | None, cap: float
) -> None:
    passed = verifier_first(True, judges[0], partial=partial, cap=cap)
    failed = verifier_first(False, judges[1], partial=partial, cap=cap)
    assert failed < 0.5 <= passed <= 1.0


@given(row=weighted, exponent=st.floats(-50, 50))
def test_every_mean_lies_between_its_extremes_and_does_not_care_for_scale_or_order(
    row: list[tuple[float, float]], exponent: float
) -> None:
    values, shares = [v for v, _ in row], [w for _, w in row]
    for mean in (weighted_mean, lambda v, w: power_mean(v, w, exponent), lambda v, w: soft_min(v, w, 0.1)):
        value = mean(values, shares)
        assert min(values) - 1e-3 <= value <= max(max(values), 1e-3) + 1e-9
        assert mean(values, [3 * w for w in shares]) == pytest.approx(value, abs=1e-9)
        assert mean(values[::-1], shares[::-1]) == pytest.approx(value, abs=1e-9)


@given(row=weighted, a=st.floats(-50, 50), b=st.floats(-50, 50))
def test_a_steeper_exponent_never_raises_a_power_mean(row: list[tuple[float, float]], a: float, b: float) -> None:
    values, shares = [v for v, _ in row], [w for _, w in row]
    low, high = sorted((a, b))
    assert power_mean(values, shares, low, 1e-3) <= power_mean([max(v, 1e-3) for v in values], shares, high) + 1e-9


@given(potentials=st.lists(st.floats(-10, 10), min_size=2, max_size=8), discount=st.floats(0.1, 1.0))
def test_shaping_depends_on_the_ends_alone(potentials: list[float], discount: float) -> None:
    total = discounted(shaping_terms(potentials, discount), discount)
    assert total == pytest.approx(discount ** (len(potentials) - 1) * potentials[-1] - potentials[0], abs=1e-6)


@given(steps=st.lists(units, min_size=1, max_size=6), extra=st.lists(units, max_size=3))
def test_appending_steps_never_raises_a_process_reward(steps: list[float], extra: list[float]) -> None:
    assert least_step([*steps, *extra]) <= least_step(steps)


@given(potentials=st.lists(st.floats(0, 1), min_size=2, max_size=6), discount=st.floats(0.1, 0.99))
def test_waiting_in_a_state_never_raises_a_shaped_return(potentials: list[float], discount: float) -> None:
    waits = [*potentials[:-1], potentials[-2], 0.0]
    direct = [*potentials[:-1], 0.0]
    gain = discounted(shaping_terms(waits, discount), discount) - discounted(shaping_terms(direct, discount), discount)
    assert gain <= 1e-9


@settings(deadline=None)
@given(
    rows=st.lists(attempts, min_size=2, max_size=6),
    mode=st.sampled_from(["none", "gdpo", "rank", "pareto"]),
    data=st.data(),
)
def test_group_scores_follow_their_attempts_under_every_order(rows: list[dict[str, Any]], mode: str, data: Any) -> None:
    made = rule_from_json({"value": {"mean": {"of": {"exact": 1, "judge/*": 0.5}}}, "group": mode})
    order = data.draw(st.permutations(range(len(rows))))
    rewards = [made.evaluate(parts_of(row)) for row in rows]
    straight = group_scores(made, rewards).values
    shuffled = group_scores(made, [rewards[i] for i in order]).values
    assert shuffled == [straight[i] if straight[i] is None else pytest.approx(straight[i], abs=1e-9) for i in order]
    assert [v is None for v in straight][: len(rows)] == [r.value is None for r in rewards] or mode == "pareto"


@given(values=st.lists(st.one_of(st.none(), st.floats(-100, 100)), min_size=1, max_size=8), shift=st.floats(-5, 5))
def test_ranks_and_standard_scores_do_not_see_a_shift(values: list[float | None], shift: float) -> None:
    moved = [None if v is None else v + shift for v in values]
    known = [v for v in values if v is not None]
    assert [v is None for v in standardised(moved)] == [v is None for v in values]
    if len(known) > 1 and max(known) - min(known) > 1e-3:
        for a, b in zip(standardised(values), standardised(moved), strict=True):
            assert a is b is None or a == pytest.approx(b, abs=1e-6)
    assert all(v is None or 0 <= v <= 1 for v in mid_ranks(values))
