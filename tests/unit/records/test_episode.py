"""Episodes: aligned lists of tokens, one Arrow row each, the same on the way back."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.records.episode import (
    EPISODE_SCHEMA,
    Episode,
    Score,
    StopReason,
    episodes_from_table,
    episodes_to_table,
)
from coharness.records.ids import ItemId

halves = st.floats(-100, 100, width=32)
scores = st.builds(
    Score, value=halves, exact=halves, partial=halves, format=halves, length=halves, feedback=st.text(max_size=8)
)


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    length = draw(st.integers(0, 6))
    token_ids = draw(st.lists(st.integers(0, 2**31 - 1), min_size=length, max_size=length))
    loss_mask = draw(st.lists(st.booleans(), min_size=length, max_size=length))
    logprobs = draw(st.lists(halves, min_size=length, max_size=length))
    return Episode(
        item=ItemId(draw(st.integers(0, 2**62))), sample=draw(st.integers(0, 63)), policy="p0", step=draw(st.integers(0, 99)),
        harness="h-1", task="t", family="count", level=2, task_seed=draw(st.integers(0, 2**63 - 1)), format="plain",
        purpose="train", temperature=draw(halves), token_ids=token_ids, loss_mask=loss_mask, logprobs=logprobs,
        prompt_length=length, reference_ids=draw(st.lists(st.integers(0, 300), max_size=3)),
        answer=draw(st.none() | st.text(max_size=8)), stop_reason=draw(st.sampled_from(list(StopReason))),
        score=draw(scores),
    )  # fmt: skip


def episode(token_ids: list[int], loss_mask: list[bool], logprobs: list[float]) -> Episode:
    return Episode(
        item=ItemId(1), sample=0, policy="p0", step=0, harness="h-1", task="t", family="count", level=1, task_seed=0,
        format="plain", purpose="train", temperature=1.0, token_ids=token_ids, loss_mask=loss_mask, logprobs=logprobs,
        prompt_length=0, reference_ids=[], answer=None, stop_reason=StopReason.EOS,
        score=Score(value=0.0, exact=0.0, partial=0.0, format=0.0, length=0.0),
    )  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(st.lists(episodes(), max_size=4))
def test_episodes_come_back_from_arrow_in_order(made: list[Episode]) -> None:
    table = episodes_to_table(made)
    assert table.schema.equals(EPISODE_SCHEMA, check_metadata=True)
    assert episodes_from_table(table) == made


@pytest.mark.parametrize(
    "lists", [([1], [True, False], [0.0]), ([1, 2], [True], [0.0, 0.0]), ([1, 2], [True, False], [0.0])]
)
def test_lists_that_are_not_aligned_are_refused_with_their_lengths(
    lists: tuple[list[int], list[bool], list[float]],
) -> None:
    got = ", ".join(str(len(part)) for part in lists)
    with pytest.raises(ValueError, match=f"must be aligned, got lengths {got}"):
        episode(*lists)


def test_the_schema_says_which_version_it_is_and_an_answer_alone_may_be_missing() -> None:
    assert EPISODE_SCHEMA.metadata == {b"coharness.schema": b"episode/2"}
    assert [field.name for field in EPISODE_SCHEMA if field.nullable] == ["answer"]
    assert EPISODE_SCHEMA.field("item").type == pa.int64()
