"""Rules of packing: several rows in one sequence give each what it gives alone."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.policy.bases import LoadedBase
from coharness.policy.rows import Rows, micro_batches, pad, rows_of, sft_rows, split_steps
from coharness.policy.training.forward import CausalModel
from coharness.policy.training.packing import Cut, cut
from coharness.testing.toy_training import random_base, toy_episodes


@pytest.fixture(scope="module")
def base() -> LoadedBase:
    return random_base()


def ragged_rows(lengths: list[int], unit: int = 1) -> Rows:
    num = sum(lengths)
    return Rows(
        token_ids=np.arange(num) + 1,
        offsets=np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        loss_mask=np.ones(num, dtype=bool),
        behaviour=np.zeros(num, dtype=np.float32),
        advantages=np.zeros(len(lengths), dtype=np.float32),
        temperatures=np.ones(len(lengths), dtype=np.float32),
        unit=unit,
    )


def toy_rows(base: LoadedBase) -> Rows:
    parts = [
        toy_episodes(base.codec, range(10 * n, 10 * n + 4), word_length=length) for n, length in enumerate((2, 17, 5))
    ]
    return sft_rows(pa.concat_tables(parts), parts[0].slice(0, 0), keep_solved=1.0, seed=0)


def losses(base: LoadedBase, rows: Rows, pieces: list[Cut]) -> tuple[dict[int, list[float]], dict[str, torch.Tensor]]:
    """Log-probabilities of each row, and the gradient of their sum in all weights."""
    model = random_base().model.requires_grad_(True)
    found: dict[int, list[float]] = {}
    for piece in pieces:
        padded = pad(rows, piece.indices)
        logprobs = CausalModel(model)(rows, padded, piece.indices, packing=piece.packing).logprobs
        logprobs.sum().backward()  # type: ignore[no-untyped-call]
        for place, row in enumerate(piece.indices.tolist()):
            learned = torch.from_numpy(padded.mask[place, 1:])
            found[row] = logprobs[place].detach()[learned].tolist()
    return found, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_packed_rows_have_the_losses_and_gradients_that_they_have_alone(base: LoadedBase) -> None:
    rows = toy_rows(base)
    indices = np.arange(rows.num_rows)
    packed = cut(rows, indices, 256, "always")
    assert all(piece.packing is not None for piece in packed)
    assert max(np.bincount(p.packing.sequence).max() for p in packed if p.packing is not None) >= 2  # it did pack
    alone, expected = losses(base, rows, [Cut(indices=indices[i : i + 1]) for i in indices])
    together, gradient = losses(base, rows, packed)
    assert together.keys() == alone.keys()
    for row, values in alone.items():
        np.testing.assert_allclose(together[row], values, atol=1e-5)
    for name, tensor in expected.items():
        torch.testing.assert_close(gradient[name], tensor, atol=1e-4, rtol=1e-4)


@settings(max_examples=60)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=12), st.integers(8, 64), st.sampled_from([1, 2]))
def test_every_row_is_packed_once_where_it_says_and_units_stay_together(
    lengths: list[int], budget: int, unit: int
) -> None:
    lengths = lengths if len(lengths) % unit == 0 else [*lengths, 1]
    rows = ragged_rows(lengths, unit)
    pieces = cut(rows, np.arange(rows.num_rows), budget, "always")
    assert sorted(np.concatenate([p.indices for p in pieces]).tolist()) == list(range(rows.num_rows))
    longest = max(sum(lengths[u * unit : (u + 1) * unit]) for u in range(rows.num_units))
    for piece in pieces:
        packing = piece.packing
        assert packing is not None
        assert packing.token_ids.shape[1] <= longest
        assert packing.token_ids.size <= max(budget, longest)
        assert np.array_equal(piece.indices[::unit] % unit, np.zeros(len(piece.indices) // unit))
        assert np.array_equal(piece.indices, rows_of(piece.indices[::unit] // unit, unit))
        used = 0
        for place, row in enumerate(piece.indices.tolist()):
            at = slice(int(packing.start[place]), int(packing.start[place]) + lengths[row])
            own = rows.token_ids[rows.offsets[row] : rows.offsets[row + 1]]
            assert packing.token_ids[packing.sequence[place], at].tolist() == own.tolist()
            assert packing.positions[packing.sequence[place], at].tolist() == list(range(lengths[row]))
            assert set(packing.segments[packing.sequence[place], at].tolist()) == {place + 1}
            used += lengths[row]
        assert (packing.segments > 0).sum() == used


def test_a_token_sees_its_own_row_up_to_itself_and_nothing_else() -> None:
    (piece,) = cut(ragged_rows([4, 3, 1, 2]), np.arange(4), 64, "always")
    assert piece.packing is not None
    sees = piece.packing.attention()[:, 0]
    segments = piece.packing.segments
    for s, q, k in np.ndindex(sees.shape):
        assert sees[s, q, k] == (segments[s, q] == segments[s, k] and k <= q)
    assert sees.any(axis=-1).all()  # a position that sees nothing would be NaN


def test_auto_packs_only_where_padding_costs_more() -> None:
    even, uneven = ragged_rows([8] * 16), ragged_rows([*range(4, 64)])
    for rows, packs in ((even, False), (uneven, True)):
        pieces = cut(rows, np.arange(rows.num_rows), 4096, "auto")
        assert [piece.packing is not None for piece in pieces] == [packs] * len(pieces)
        never = cut(rows, np.arange(rows.num_rows), 4096, "never")
        assert all(piece.packing is None for piece in never)


def test_no_rows_are_no_batches() -> None:
    assert cut(ragged_rows([3]), np.zeros(0, dtype=np.int64), 64, "always") == []


@given(st.integers(0, 40), st.integers(1, 5), st.integers(0, 99))
def test_pairs_stay_side_by_side_in_steps_and_micro_batches(num_pairs: int, num_steps: int, seed: int) -> None:
    steps = split_steps(2 * num_pairs, num_steps, seed, unit=2)
    assert sorted(np.concatenate(steps).tolist()) == list(range(2 * num_pairs))
    lengths = np.random.default_rng(seed).integers(1, 20, 2 * num_pairs)
    for step in steps:
        batches = micro_batches(lengths, step, 64, unit=2)
        assert sorted(np.concatenate([step[:0], *batches]).tolist()) == sorted(step.tolist())
        for batch in (step, *batches):
            assert np.array_equal(batch[1::2], batch[::2] + 1)
            assert not (batch[::2] % 2).any()
        for batch in batches:
            assert len(batch) == 2 or len(batch) * lengths[batch].max() <= 64
