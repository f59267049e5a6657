"""Rules of what preferences are made of: pairs, hard positives and negatives, own successes; against loops over episodes."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.policy.objectives.episodes import Episodes
from coharness.policy.objectives.preference_rows import ContrastRule, PairRule, contrast_rows, pair_rows
from coharness.policy.objectives.sft import success_rows
from coharness.policy.rows import Rows
from coharness.records.episode import Episode, Score, StopReason, episodes_to_table
from coharness.records.ids import ItemId

LONG = 1_000
REFERENCE = [90, 91, 1]


def episode(item: int, sample: int, score: float, confidence: float = -1.0, **changes: Any) -> Episode:
    """An answer of two tokens that says who wrote it, each with the log-probability `confidence`."""
    prompt: list[int] = changes.get("prompt", [10 + item, 11])
    written: list[int] = changes.get("written", [20 + item, 40 + sample])
    return Episode(
        item=ItemId(item), sample=sample, policy="p0", step=0, harness="h", task="t", family="f", level=1, task_seed=0,
        format="plain", purpose="train", temperature=0.7, token_ids=prompt + written,
        loss_mask=changes.get("mask", [False] * len(prompt) + [True] * len(written)),
        logprobs=[0.0] * len(prompt) + [confidence] * len(written), prompt_length=len(prompt),
        reference_ids=changes.get("reference", REFERENCE), answer=None, stop_reason=StopReason.EOS,
        score=Score(value=score, exact=changes.get("exact", float(score >= 1)), partial=0.0, format=0.0, length=0.0),
    )  # fmt: skip


def table(*episodes: Episode) -> pa.Table:
    return episodes_to_table(list(episodes))


NONE = table(episode(0, 0, 0.0)).slice(0, 0)


def answers(rows: Rows) -> list[list[int]]:
    """What is learned in each row."""
    return [
        rows.token_ids[a:b][rows.loss_mask[a:b]].tolist()
        for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True)
    ]


def answer(item: int, sample: int) -> list[int]:
    return [20 + item, 40 + sample]


def test_a_pair_is_the_best_against_the_worst_of_a_group() -> None:
    own = table(episode(1, 0, 0.5), episode(1, 1, 1.0), episode(1, 2, 0.0), episode(2, 0, 1.0), episode(2, 1, 0.0))
    rows = pair_rows(own, NONE, PairRule(), max_tokens=LONG)
    assert answers(rows) == [answer(1, 1), answer(1, 2), answer(2, 0), answer(2, 1)]
    assert rows.advantages.tolist() == [1.0, -1.0, 1.0, -1.0]
    assert (rows.unit, rows.num_units) == (2, 2)
    assert set(rows.temperatures.tolist()) == {1.0}


def test_ties_give_no_pair_and_are_counted() -> None:
    own = table(episode(1, 0, 1.0), episode(1, 1, 1.0), episode(2, 0, 0.0), episode(2, 1, 0.0), episode(3, 0, 1.0))
    rows = pair_rows(own, NONE, PairRule(), max_tokens=LONG)
    assert rows.num_rows == 0
    assert rows.counts["groups/tied"] == 3


def test_of_equally_good_and_bad_answers_the_most_confident_are_paired() -> None:
    own = table(episode(1, 0, 1.0, -2.0), episode(1, 1, 1.0, -0.5), episode(1, 2, 0.0, -3.0), episode(1, 3, 0.0, -0.1))
    assert answers(pair_rows(own, NONE, PairRule(), max_tokens=LONG)) == [answer(1, 1), answer(1, 3)]


def test_a_failed_group_is_skipped_or_its_reference_stands_against_its_most_confident_mistake() -> None:
    own = table(episode(1, 0, 0.0, -2.0), episode(1, 1, 0.0, -0.5), episode(2, 0, 1.0), episode(2, 1, 0.0))
    skipped = pair_rows(own, NONE, PairRule(), max_tokens=LONG)
    taught = pair_rows(own, NONE, PairRule(failed_groups="reference"), max_tokens=LONG)
    assert answers(skipped) == [answer(2, 0), answer(2, 1)]
    assert answers(taught) == [REFERENCE, answer(1, 1), answer(2, 0), answer(2, 1)]
    first = taught.token_ids[: taught.offsets[1]].tolist()
    assert first == [11, 11, *REFERENCE]
    assert taught.counts["pairs/reference"] == 1


def test_a_failed_group_without_a_reference_gives_no_such_pair() -> None:
    own = table(episode(1, 0, 0.0, reference=[]), episode(1, 1, 0.0, reference=[]))
    assert pair_rows(own, NONE, PairRule(failed_groups="reference"), max_tokens=LONG).num_rows == 0


def test_pairs_go_by_the_part_of_the_score_that_is_named() -> None:
    own = table(episode(1, 0, 0.9, exact=0.0), episode(1, 1, 0.2, exact=1.0))
    assert answers(pair_rows(own, NONE, PairRule(column="exact"), max_tokens=LONG)) == [answer(1, 1), answer(1, 0)]
    assert answers(pair_rows(own, NONE, PairRule(), max_tokens=LONG)) == [answer(1, 0), answer(1, 1)]


def test_borrowed_groups_give_pairs_of_their_own() -> None:
    own, lent = table(episode(1, 0, 1.0), episode(1, 1, 0.0)), table(episode(2, 0, 1.0), episode(2, 1, 0.0))
    rows = pair_rows(own, lent, PairRule(), max_tokens=LONG)
    assert answers(rows) == [answer(1, 0), answer(1, 1), answer(2, 0), answer(2, 1)]
    assert rows.counts["pairs/borrowed"] == 1


def test_what_is_too_long_is_in_no_pair() -> None:
    own = table(episode(1, 0, 1.0, written=[7] * 9), episode(1, 1, 0.5), episode(1, 2, 0.0))
    assert answers(pair_rows(own, NONE, PairRule(), max_tokens=4)) == [answer(1, 1), answer(1, 2)]
    assert pair_rows(own, NONE, PairRule(), max_tokens=4).counts["rows/too_long"] == 1


def test_hard_positives_are_the_least_confident_and_hard_negatives_the_most() -> None:
    own = table(episode(1, 0, 1.0, -0.1), episode(1, 1, 1.0, -3.0), episode(1, 2, 0.0, -0.2), episode(1, 3, 0.0, -4.0))
    rows = contrast_rows(own, NONE, ContrastRule(per_task=1), max_tokens=LONG)
    assert answers(rows) == [answer(1, 1), answer(1, 2)]
    assert rows.advantages.tolist() == [1.0, -1.0]
    assert rows.unit == 1


def test_a_failed_group_may_lend_its_reference_as_a_right_answer() -> None:
    own = table(episode(1, 0, 0.0), episode(2, 0, 1.0), episode(2, 1, 0.0))
    rows = contrast_rows(own, NONE, ContrastRule(per_task=4, failed_groups="reference"), max_tokens=LONG)
    assert answers(rows) == [answer(2, 0), REFERENCE, answer(1, 0), answer(2, 1)]
    assert rows.advantages.tolist() == [1.0, 1.0, -1.0, -1.0]


def test_successes_stand_in_for_references_where_there_are_any() -> None:
    own = table(
        episode(1, 0, 1.0, -2.0), episode(1, 1, 1.0, -0.5), episode(1, 2, 0.0), episode(2, 0, 0.0), episode(3, 0, 1.0)
    )
    kept = success_rows(own, NONE, keep_solved=1.0, seed=0, max_tokens=LONG)
    assert answers(kept) == [answer(1, 1), REFERENCE, answer(3, 0)]
    # Group 3 has no failure, so at 0 it goes; the others have something to learn.
    assert answers(success_rows(own, NONE, keep_solved=0.0, seed=0, max_tokens=LONG)) == [answer(1, 1), REFERENCE]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Episode], list[int]]:
    made = [
        episode(
            item,
            sample,
            draw(st.sampled_from([0.0, 0.5, 1.0])),
            draw(st.sampled_from([-0.5, -1.0, -2.0])),
            written=[20 + item] * draw(st.integers(0, 3)) + [40 + sample],
        )
        for item in draw(st.lists(st.integers(0, 9), max_size=5, unique=True))
        for sample in range(draw(st.integers(1, 4)))
    ]
    return made, draw(st.permutations(range(len(made))))


@settings(max_examples=40)
@given(tables(), st.sampled_from(["skip", "reference"]))
def test_what_is_picked_does_not_depend_on_the_order_of_rows(
    made: tuple[list[Episode], list[int]], failed: Any
) -> None:
    episodes, order = made
    first, again = (
        [
            answers(pair_rows(t, NONE, PairRule(failed_groups=failed), max_tokens=5)),
            answers(contrast_rows(t, NONE, ContrastRule(per_task=2, failed_groups=failed), max_tokens=5)),
            answers(success_rows(t, NONE, keep_solved=0.5, seed=3, max_tokens=5)),
        ]
        for t in (table(*episodes), table(*[episodes[i] for i in order]))
    )
    assert first == again


@settings(max_examples=40)
@given(tables())
def test_pairs_are_what_a_loop_over_groups_finds(made: tuple[list[Episode], list[int]]) -> None:
    episodes = made[0]
    expected = []
    for item in sorted({e.item for e in episodes}):
        group = [e for e in episodes if e.item == item]
        scores = [e.score.value for e in group]
        if max(scores) == min(scores):
            continue
        confident = {id(e): sum(e.logprobs) / sum(e.loss_mask) for e in group}
        for end in (max(scores), min(scores)):
            best = max((e for e in group if e.score.value == end), key=lambda e: (confident[id(e)], -e.sample))
            expected.append(best.token_ids[best.prompt_length :])
    assert answers(pair_rows(table(*episodes), NONE, PairRule(), max_tokens=LONG)) == expected


def test_prompts_that_differ_inside_a_group_are_refused() -> None:
    for other in ([10, 12], [11, 11, 11]):
        own = table(episode(1, 0, 1.0, prompt=[11, 11]), episode(1, 1, 0.0, prompt=other))
        with pytest.raises(ValueError, match="item 1 begin with different prompts"):
            Episodes.of(own, max_tokens=LONG)


def test_a_prompt_that_is_learned_from_is_refused() -> None:
    with pytest.raises(ValueError, match="item 4 learns from its own prompt of 2 tokens"):
        Episodes.of(table(episode(4, 0, 1.0, mask=[False, True, True, True])), max_tokens=LONG)


def test_what_a_harness_says_between_two_turns_is_kept_and_not_learned_from() -> None:
    mask = [False, False, True, False, True]
    own = table(
        episode(1, 0, 1.0, written=[20, 21, 22], mask=mask), episode(1, 1, 0.0, written=[30, 31, 32], mask=mask)
    )
    rows = pair_rows(own, NONE, PairRule(), max_tokens=LONG)
    assert answers(rows) == [[20, 22], [30, 32]]
    assert rows.token_ids.tolist() == [11, 11, 20, 21, 22, 11, 11, 30, 31, 32]


def test_a_score_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="non-finite value in score"):
        Episodes.of(table(episode(1, 0, float("nan"))), max_tokens=LONG)


def test_empty_tables_give_no_rows() -> None:
    for rows in (
        pair_rows(NONE, NONE, PairRule(failed_groups="reference"), max_tokens=LONG),
        contrast_rows(NONE, NONE, ContrastRule(per_task=1, failed_groups="reference"), max_tokens=LONG),
        success_rows(NONE, NONE, keep_solved=1.0, seed=0, max_tokens=LONG),
    ):
        assert rows.num_rows == 0
        assert len(rows.token_ids) == 0
        assert np.array_equal(rows.offsets, [0])
