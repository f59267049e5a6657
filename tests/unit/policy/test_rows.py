"""Rules of training rows, against plain loops over the same episodes."""

import itertools
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.policy.rows import Advantage, Rows, grpo_rows, micro_batches, pad, sft_rows, split_steps
from coharness.records.episode import Episode, Score, StopReason, episodes_to_table
from coharness.records.ids import ItemId


def episode(item: int, sample: int = 0, **changes: Any) -> Episode:
    values: dict[str, Any] = {
        "prompt": [10 + item % 5, 11, 12],
        "written": [20, 21 + sample, 1],
        "reference": [30, 31 + item % 3, 32, 1],
        "score": float(sample % 2),
        "temperature": 0.9,
    } | changes
    prompt, written = values["prompt"], values["written"]
    return Episode(
        item=ItemId(item),
        sample=sample,
        policy="p0",
        step=0,
        harness="h",
        task="t",
        family="f",
        level=1,
        task_seed=0,
        format="plain",
        purpose="train",
        temperature=values["temperature"],
        token_ids=prompt + written,
        loss_mask=[False] * len(prompt) + [True] * len(written),
        logprobs=[0.0] * len(prompt) + [-0.25 * (i + 1) for i in range(len(written))],
        prompt_length=len(prompt),
        reference_ids=values["reference"],
        answer=None,
        stop_reason=StopReason.EOS,
        score=Score(value=values["score"], exact=values.get("exact", values["score"]), partial=0, format=0, length=0),
    )


def table(*episodes: Episode) -> pa.Table:
    return episodes_to_table(list(episodes))


def row_lists(rows: Rows) -> list[tuple[list[int], list[bool]]]:
    return [
        (rows.token_ids[a:b].tolist(), rows.loss_mask[a:b].tolist())
        for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True)
    ]


NONE = table(episode(0)).slice(0, 0)


@st.composite
def episode_sets(draw: st.DrawFn) -> list[Episode]:
    made = []
    for item in draw(st.lists(st.integers(0, 50), max_size=6, unique=True)):
        for sample in range(draw(st.integers(1, 4))):
            made.append(
                episode(
                    item,
                    sample,
                    prompt=draw(st.lists(st.integers(0, 9), min_size=0, max_size=4)),
                    written=draw(st.lists(st.integers(0, 9), min_size=0, max_size=4)),
                    reference=draw(st.lists(st.integers(0, 9), min_size=0, max_size=4)),
                    score=draw(st.sampled_from([0.0, 0.5, 1.0])),
                )
            )
    return made


def test_a_supervised_row_is_prompt_and_reference_with_the_loss_on_the_reference() -> None:
    rows = sft_rows(table(episode(0, prompt=[5, 6], reference=[7, 8, 1])), NONE, keep_solved=1.0, seed=0)
    assert row_lists(rows) == [([5, 6, 7, 8, 1], [False, False, True, True, True])]
    assert rows.temperatures.tolist() == [1.0]


@settings(max_examples=60)
@given(episode_sets(), st.integers(0, 2**62))
def test_supervised_rows_are_what_a_plain_loop_picks(episodes: list[Episode], seed: int) -> None:
    rows = sft_rows(episodes_to_table(episodes), NONE, keep_solved=0.0, seed=seed, max_tokens=6)
    groups: dict[int, list[Episode]] = defaultdict(list)
    for e in episodes:
        groups[e.item].append(e)
    expected = []
    for item in sorted(groups):
        first = min(groups[item], key=lambda e: e.sample)
        ids = first.token_ids[: first.prompt_length] + first.reference_ids
        if any(e.score.exact < 1 for e in groups[item]) and first.reference_ids and len(ids) <= 6:
            mask = [False] * first.prompt_length + [True] * len(first.reference_ids)
            expected.append((ids, [False, *mask[1:]]))
    assert row_lists(rows) == expected


@settings(max_examples=60)
@given(episode_sets(), st.sampled_from(list(Advantage)))
def test_on_policy_rows_are_what_a_plain_loop_computes(episodes: list[Episode], advantage: Advantage) -> None:
    rows = grpo_rows(episodes_to_table(episodes), advantage=advantage)
    rewards: dict[int, list[float]] = defaultdict(list)
    for e in episodes:
        rewards[e.item].append(e.score.value)
    expected = []
    for e in episodes:
        group = rewards[e.item]
        mean = sum(group) / len(group)
        deviation = math.sqrt(sum((r - mean) ** 2 for r in group) / len(group))
        if max(group) > min(group):
            expected.append((e, (e.score.value - mean) / (deviation if advantage is Advantage.GRPO else 1)))
    assert [ids for ids, _ in row_lists(rows)] == [e.token_ids for e, _ in expected]
    assert rows.advantages.tolist() == pytest.approx([a for _, a in expected], abs=1e-5)
    assert rows.behaviour.tolist() == pytest.approx([x for e, _ in expected for x in e.logprobs])
    assert rows.counts["groups/zero_spread"] == sum(max(g) == min(g) for g in rewards.values())
    assert rows.temperatures.tolist() == pytest.approx([0.9] * len(expected))


def test_advantages_of_a_group_sum_to_zero_and_have_unit_variance() -> None:
    rows = grpo_rows(
        table(*(episode(1, i, score=s) for i, s in enumerate([0.0, 0.0, 0.2, 1.0]))), advantage=Advantage.GRPO
    )
    assert rows.advantages.sum() == pytest.approx(0, abs=1e-6)
    assert rows.advantages.std() == pytest.approx(1, abs=1e-5)


def test_a_group_whose_rewards_are_all_equal_is_dropped_and_counted() -> None:
    rows = grpo_rows(
        table(episode(1, 0, score=1.0), episode(1, 1, score=1.0), episode(2, 0), episode(2, 1)),
        advantage=Advantage.GRPO,
    )
    assert rows.num_rows == 2
    assert rows.counts["groups/zero_spread"] == 1
    assert rows.counts["score/mean"] == pytest.approx(0.75)


def test_failed_groups_are_kept_and_solved_ones_by_their_share() -> None:
    failed = [episode(i, 0, score=0.0) for i in range(200)]
    solved = [episode(i, 0, score=1.0) for i in range(200, 2_200)]
    rows = sft_rows(table(*failed, *solved), NONE, keep_solved=0.3, seed=5)
    assert 200 + 600 - 80 < rows.num_rows < 200 + 600 + 80
    assert rows.counts["groups/solved"] == 2_000
    everything = sft_rows(table(*failed, *solved), NONE, keep_solved=1.0, seed=5)
    assert everything.num_rows == 2_200


def test_one_failed_episode_makes_a_group_worth_supervising() -> None:
    mixed = table(episode(1, 0, score=1.0), episode(1, 1, score=0.0))
    assert sft_rows(mixed, NONE, keep_solved=0.0, seed=0).num_rows == 1


def test_which_solved_groups_are_kept_depends_on_seed_and_item_alone() -> None:
    episodes = [episode(i, 0, score=1.0, prompt=[i % 60, i // 60]) for i in range(300)]
    forwards = row_lists(sft_rows(table(*episodes), NONE, keep_solved=0.4, seed=9))
    backwards = row_lists(sft_rows(table(*reversed(episodes)), NONE, keep_solved=0.4, seed=9))
    split = row_lists(sft_rows(table(*episodes[:100]), table(*episodes[100:]), keep_solved=0.4, seed=9))
    assert forwards == backwards == split
    assert forwards != row_lists(sft_rows(table(*episodes), NONE, keep_solved=0.4, seed=10))


def test_borrowed_groups_are_selected_by_the_same_rule_and_counted() -> None:
    rows = sft_rows(
        table(episode(1, score=0.0)), table(episode(2, score=0.0), episode(3, score=1.0)), keep_solved=0, seed=0
    )
    assert rows.num_rows == 2
    assert rows.counts["rows/borrowed"] == 1


def test_tables_that_are_slices_or_in_chunks_read_alike() -> None:
    episodes = [episode(i, s) for i in range(6) for s in range(2)]
    whole = table(*episodes)
    chunked = pa.concat_tables([table(*episodes[:5]), table(*episodes[5:])])
    sliced = table(episode(99), *episodes, episode(98)).slice(1, len(episodes))
    expected = row_lists(grpo_rows(whole, advantage=Advantage.GRPO))
    assert expected
    assert row_lists(grpo_rows(chunked, advantage=Advantage.GRPO)) == expected
    assert row_lists(grpo_rows(sliced, advantage=Advantage.GRPO)) == expected
    assert row_lists(sft_rows(sliced, NONE, keep_solved=1, seed=0)) == row_lists(
        sft_rows(whole, NONE, keep_solved=1, seed=0)
    )


def test_no_episodes_give_no_rows() -> None:
    assert sft_rows(NONE, NONE, keep_solved=1, seed=0).num_rows == 0
    assert grpo_rows(NONE, advantage=Advantage.GRPO).num_rows == 0


def test_rows_beyond_the_context_and_without_reference_are_dropped_and_counted() -> None:
    rows = sft_rows(
        table(episode(1, score=0.0), episode(2, score=0.0, prompt=[1] * 50), episode(3, score=0.0, reference=[])),
        NONE,
        keep_solved=0,
        seed=0,
        max_tokens=20,
    )
    assert rows.num_rows == 1
    assert (rows.counts["rows/too_long"], rows.counts["rows/no_reference"]) == (1, 1)


@pytest.mark.parametrize("changes", [{"score": math.nan}, {"score": math.inf}, {"temperature": 0.0}])
def test_what_no_advantage_can_be_taken_of_is_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"non-finite value in score|temperature 0"):
        grpo_rows(table(episode(1, 0), episode(1, 1, **changes)), advantage=Advantage.GRPO)


@given(st.lists(st.integers(1, 80), max_size=40), st.integers(1, 200), st.integers(0, 2**32), st.integers(1, 5))
def test_steps_and_micro_batches_hold_every_row_once_within_the_budget(
    lengths: list[int], row_tokens: int, seed: int, num_steps: int
) -> None:
    steps = split_steps(len(lengths), num_steps, seed)
    assert sorted(r for step in steps for r in step.tolist()) == list(range(len(lengths)))
    assert max(len(s) for s in steps) - min(len(s) for s in steps) <= 1
    array = np.array(lengths, dtype=np.int64)
    for step in steps:
        batches = micro_batches(array, step, row_tokens)
        assert sorted(r for batch in batches for r in batch.tolist()) == sorted(step.tolist())
        for batch in batches:
            assert len(batch) == 1 or len(batch) * int(array[batch].max()) <= row_tokens
        again = micro_batches(array, step[::-1], row_tokens)
        assert [b.tolist() for b in again] == [b.tolist() for b in batches]


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=7),
    st.integers(1, 40),
    st.integers(0, 20),
    st.sampled_from([1, 2]),
)
def test_no_other_cut_of_sorted_rows_costs_less(sizes: list[int], row_tokens: int, overhead: int, unit: int) -> None:
    lengths = np.repeat(np.array(sizes, dtype=np.int64), unit)
    batches = micro_batches(lengths, np.arange(len(lengths)), row_tokens, unit, overhead=overhead)

    def cost(parts: list[list[int]]) -> float:
        prices = [len(part) * max(part) * unit for part in parts]
        if any(len(part) > 1 and price > row_tokens for part, price in zip(parts, prices, strict=True)):
            return math.inf
        return sum(prices) + overhead * len(parts)

    ordered = sorted(sizes, reverse=True)
    cuts = itertools.chain.from_iterable(
        itertools.combinations(range(1, len(sizes)), count) for count in range(len(sizes))
    )
    costs = [cost([ordered[a:b] for a, b in itertools.pairwise([0, *inner, len(sizes)])]) for inner in cuts]
    assert cost([lengths[batch][::unit].tolist() for batch in batches]) == min(costs)


def test_padding_keeps_rows_and_says_where_each_token_came_from() -> None:
    rows = sft_rows(
        table(
            episode(1, score=0.0, prompt=[4], reference=[5, 1]),
            episode(2, score=0.0, prompt=[6, 7], reference=[8, 9, 1]),
        ),
        NONE,
        keep_solved=0,
        seed=0,
    )
    padded = pad(rows, np.array([1, 0]))
    assert padded.token_ids.tolist() == [[6, 7, 8, 9, 1], [4, 5, 1, 0, 0]]
    assert padded.mask.tolist() == [[False, False, True, True, True], [False, True, True, False, False]]
    assert rows.token_ids[padded.flat[padded.mask]].tolist() == [8, 9, 1, 5, 1]


def test_a_row_that_was_written_from_nothing_learns_from_its_second_token_on() -> None:
    rows = grpo_rows(table(episode(1, 0, prompt=[]), episode(1, 1, prompt=[])), advantage=Advantage.GRPO)
    assert [mask for _, mask in row_lists(rows)] == [[False, True, True], [False, True, True]]
    assert rows.trained_lengths.tolist() == [2, 2]
