"""The objectives that train a judge against plain float64 loops that share nothing with them: rows, value, gradient, edges."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from coharness.policy.objectives import BradleyTerry, Critique, Objective, ScoreRegression, TokenBatch
from coharness.policy.objectives.score_regression import HUBER_DELTA, Distance
from coharness.policy.objectives.terms import Mean, mean_weights
from coharness.policy.objectives.verdict_rows import readout, verdict_pairs, verdict_rows
from coharness.records.episode import Episode, Score, StopReason, episodes_to_table
from coharness.records.ids import ItemId


def batch_of(logprobs: list[list[float]], mask: list[list[bool]], scores: list[float]) -> TokenBatch:
    at = torch.tensor(mask)
    values = torch.tensor(logprobs, dtype=torch.float64)
    nothing = torch.zeros_like(values)
    return TokenBatch(
        logprobs=values.requires_grad_(),
        mask=at,
        weights=mean_weights(at, Mean.SEQUENCE, num_tokens=int(at.sum()), num_rows=int(at.any(1).sum())).double(),
        advantages=torch.tensor(scores),
        behaviour=nothing,
        proximal=nothing,
        reference=None,
        entropy=None,
    )


def one_verdict(rng: np.random.Generator, scores: list[float]) -> TokenBatch:
    mask = [[False, n % 2 == 0, n % 2 == 1] for n in range(len(scores))]
    logprobs = [[float("nan") if not m else float(-rng.exponential(1.0)) - 1e-3 for m in row] for row in mask]
    return batch_of(logprobs, mask, scores)


def logit(logp: float) -> float:
    return logp - math.log(-math.expm1(logp))


def log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x)) if x > 0 else x - math.log1p(math.exp(x))


def verdicts(batch: TokenBatch) -> list[float]:
    return [float(row[m].item()) for row, m in zip(batch.logprobs.detach(), batch.mask, strict=True)]


def bradley_terry_oracle(verdict: list[float], scores: list[float], margin: float) -> float:
    total = 0.0
    for n in range(0, len(verdict), 2):
        d, gap = logit(verdict[n]) - logit(verdict[n + 1]), scores[n] - scores[n + 1]
        total -= log_sigmoid(d - margin * gap) if gap else 0.5 * (log_sigmoid(d) + log_sigmoid(-d))
    return total / (len(verdict) / 2)


def regression_oracle(verdict: list[float], scores: list[float], distance: Distance) -> float:
    total = 0.0
    for logp, y in zip(verdict, scores, strict=True):
        p = math.exp(logp)
        e = abs(p - y)
        huber = e * e / 2 if e <= HUBER_DELTA else HUBER_DELTA * (e - HUBER_DELTA / 2)
        total += {
            Distance.CROSS_ENTROPY: -y * math.log(p) - (1 - y) * math.log(1 - p),
            Distance.SQUARED: e * e,
            Distance.HUBER: huber,
        }[distance]
    return total / len(verdict)


def check_against(objective: Objective, batch: TokenBatch, oracle: Any) -> None:
    """Value by the oracle, gradient by its central differences."""
    found = objective.loss(batch).loss
    found.backward()
    gradient = batch.logprobs.grad
    assert gradient is not None
    exact = verdicts(batch)
    assert found.item() == pytest.approx(oracle(exact), abs=1e-6)
    for n in range(len(exact)):
        step = 1e-6
        up, down = ([v + s * step * (i == n) for i, v in enumerate(exact)] for s in (1, -1))
        wanted = (oracle(up) - oracle(down)) / (2 * step)
        assert gradient[n][batch.mask[n]].item() == pytest.approx(wanted, rel=1e-4, abs=1e-6)
    assert not gradient[~batch.mask].any(), "a masked position gives nothing, NaN or not"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("margin", [0.0, 1.5])
def test_bradley_terry_is_its_formula_ties_included(seed: int, margin: float) -> None:
    scores = [1.0, 0.0, 0.75, 0.25, 0.5, 0.5]
    batch = one_verdict(np.random.default_rng(seed), scores)
    check_against(BradleyTerry(margin=margin), batch, lambda v: bradley_terry_oracle(v, scores, margin))


def test_bradley_terry_counts_what_stands_in_the_right_order() -> None:
    batch = batch_of(
        [[0, -0.1], [0, -2.0], [0, -2.0], [0, -0.1], [0, -1.0], [0, -1.0]], [[False, True]] * 6, [1, 0, 1, 0, 0.5, 0.5]
    )
    sums = BradleyTerry().loss(batch).sums
    assert sums["judge/accuracy"] == (1.0, 2.0), "one of two preferences; the tie has no order"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("distance", list(Distance))
def test_regression_is_its_formula(seed: int, distance: Distance) -> None:
    rng = np.random.default_rng(seed)
    scores = [float(s) for s in np.float32(rng.random(6))]
    batch = one_verdict(rng, scores)
    check_against(ScoreRegression(distance=distance), batch, lambda v: regression_oracle(v, scores, distance))


def test_the_least_of_each_regression_is_at_the_score() -> None:
    for distance in Distance:
        batch = batch_of([[0.0, math.log(0.3)]], [[False, True]], [0.3])
        ScoreRegression(distance=distance).loss(batch).loss.backward()
        assert batch.logprobs.grad is not None
        assert batch.logprobs.grad.abs().max().item() < 1e-6


def test_a_critique_weighs_reasons_and_verdicts_by_row() -> None:
    logprobs = [[-1.0, -2.0, -3.0, -0.5, -0.1], [float("nan"), float("nan"), -4.0, -0.3, -0.2]]
    mask = [[True] * 5, [False, False, False, True, True]]
    batch = batch_of(logprobs, mask, [1.0, 0.0])
    found = Critique(verdict_tokens=2, reason_weight=0.2).loss(batch)
    first = (0.5 + 0.1) / 2 + 0.2 * (1 + 2 + 3) / 3
    second = (0.3 + 0.2) / 2
    assert found.loss.item() == pytest.approx((first + second) / 2)
    assert found.sums["loss/reason"] == (pytest.approx(2.0), 1.0)
    found.loss.backward()
    wanted = [[-0.2 / 6, -0.2 / 6, -0.2 / 6, -0.25, -0.25], [0, 0, 0, -0.25, -0.25]]
    torch.testing.assert_close(batch.logprobs.grad, torch.tensor(wanted, dtype=torch.float64))


@pytest.mark.parametrize("logp", [0.0, -1e-9, -1e-5, -0.6931, -0.6932, -50.0, -5000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_readout_is_finite_wherever_the_verdict_stands(logp: float, dtype: torch.dtype) -> None:
    x = torch.tensor([[logp]], dtype=dtype, requires_grad=True)
    read = readout(x, torch.tensor([[True]]))
    read.sum().backward()
    assert torch.isfinite(read).all()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
    if -700 < logp < -1e-5:
        assert read.item() == pytest.approx(logit(logp), rel=1e-4, abs=1e-6)


def episode(item: int, sample: int, ids: list[int], num_learned: int, score: float) -> Episode:
    n = len(ids) - num_learned
    return Episode(
        item=ItemId(item), sample=sample, policy="judge", step=0, harness="judge", task="t", family="judge", level=1,
        task_seed=0, format="verdict", purpose="train", temperature=1.0, token_ids=ids,
        loss_mask=[False] * n + [True] * num_learned, logprobs=[0.0] * len(ids), prompt_length=n, reference_ids=[],
        answer=None, stop_reason=StopReason.EOS,
        score=Score(value=score, exact=score, partial=score, format=1.0, length=0.0),
    )  # fmt: skip


def table(*episodes: Episode) -> pa.Table:
    return episodes_to_table(list(episodes))


def test_pairs_stand_side_by_side_the_better_first_whatever_the_order_of_rows() -> None:
    rows = [
        episode(7, 0, [1, 2, 9], 1, 0.0),
        episode(7, 1, [3, 4, 5, 9], 1, 1.0),
        episode(3, 0, [6, 9], 1, 0.5),
        episode(3, 1, [7, 9], 1, 0.5),
    ]
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        found = verdict_pairs(table(*[rows[i] for i in order]), max_tokens=10)
        assert found.unit == 2
        cut = [found.token_ids[a:b].tolist() for a, b in zip(found.offsets, found.offsets[1:], strict=False)]
        assert cut == [[6, 9], [7, 9], [3, 4, 5, 9], [1, 2, 9]]
        assert found.advantages.tolist() == [0.5, 0.5, 1.0, 0.0]
        assert [found.loss_mask[a:b].tolist() for a, b in zip(found.offsets, found.offsets[1:], strict=False)] == [
            [False] * (len(ids) - 1) + [True] for ids in cut
        ]
    short = verdict_pairs(table(*rows), max_tokens=3)
    assert (short.num_rows, short.counts["rows/too_long"]) == (2, 2.0), "a pair goes as a whole"


def test_rows_that_are_no_verdicts_are_refused() -> None:
    nothing = table().slice(0, 0)
    with pytest.raises(ValueError, match="item 1 has 1 episodes"):
        verdict_pairs(table(episode(1, 0, [1, 2], 1, 1.0)), max_tokens=9)
    with pytest.raises(ValueError, match=r"outside \[0, 1\]"):
        verdict_rows(table(episode(1, 0, [1, 2], 1, 1.5)), max_tokens=9)
    with pytest.raises(ValueError, match="learns from 2 tokens"):
        ScoreRegression().rows(table(episode(1, 0, [1, 2, 3], 2, 1.0)), nothing, seed=0, max_tokens=9)
    assert (
        Critique(verdict_tokens=2).rows(table(episode(1, 0, [1, 2, 3], 2, 1.0)), nothing, seed=0, max_tokens=9).num_rows
        == 1
    )
