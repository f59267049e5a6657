"""Objectives and their terms against plain float64 loops, and at their edges."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.config.schema import TrainingSection
from coharness.policy.objectives import Grpo, Mean, Sft, TokenBatch, objectives_of
from coharness.policy.objectives.gradient import GradientTerms
from coharness.policy.objectives.terms import (
    LOG_RATIO_BOUND,
    Divergence,
    Importance,
    Level,
    Rule,
    divergence,
    log_ratio,
    mean_weights,
    token_entropy,
    token_logprobs,
)

Array = npt.NDArray[np.float64]


def make_grpo(*, kl_coefficient: float = 0.0, tis_cap: float = 2.0, **settings: Any) -> Grpo:
    return Grpo(terms=GradientTerms(importance=Importance(cap=tis_cap), kl_coefficient=kl_coefficient), **settings)


def draw_batch(
    seed: int, num_rows: int = 3, width: int = 5, *, with_reference: bool = True, spread: float = 1.0
) -> TokenBatch:
    rng = np.random.default_rng(seed)
    mask = rng.random((num_rows, width)) < 0.6
    base = -rng.exponential(1.0, (num_rows, width))
    arrays = [base + spread * rng.normal(0, 0.4, base.shape) for _ in range(4)]
    new, behaviour, proximal, reference = (torch.tensor(a, dtype=torch.float64) for a in arrays)
    at = torch.tensor(mask)
    return TokenBatch(
        logprobs=new.requires_grad_(),
        mask=at,
        weights=mean_weights(at, Mean.TOKEN, num_tokens=int(mask.sum()), num_rows=int(mask.any(1).sum())),
        advantages=torch.tensor(rng.normal(size=num_rows)),
        behaviour=behaviour,
        proximal=proximal,
        reference=reference if with_reference else None,
        entropy=None,
    )


def with_changes(batch: TokenBatch, **changes: Any) -> TokenBatch:
    return TokenBatch(**({name: getattr(batch, name) for name in TokenBatch.__dataclass_fields__} | changes))


def grpo_oracle(batch: TokenBatch, objective: Grpo) -> tuple[float, Array]:
    """Loss and its gradient in the log-probabilities, token by token."""
    new, old, mu = (t.detach().numpy() for t in (batch.logprobs, batch.proximal, batch.behaviour))
    ref = None if batch.reference is None else batch.reference.numpy()
    mask, adv = batch.mask.numpy(), batch.advantages.numpy()
    total, gradient, num = 0.0, np.zeros_like(new), max(int(mask.sum()), 1)
    for b, t in zip(*np.nonzero(mask), strict=True):
        weight = min(math.exp(old[b, t] - mu[b, t]), objective.terms.importance.cap)
        ratio = math.exp(new[b, t] - old[b, t])
        clipped = min(max(ratio, 1 - objective.clip_low), 1 + objective.clip_high)
        total -= weight * min(ratio * adv[b], clipped * adv[b]) / num
        if ratio * adv[b] <= clipped * adv[b]:
            gradient[b, t] -= weight * ratio * adv[b] / num
        if ref is not None:
            x = new[b, t] - ref[b, t]
            total += objective.terms.kl_coefficient * (math.exp(-x) - 1 + x) / num
            gradient[b, t] += objective.terms.kl_coefficient * (1 - math.exp(-x)) / num
    return total, gradient


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([0.3, 1.0, 3.0]))
def test_grpo_is_its_formula_in_value_and_gradient(seed: int, with_reference: bool, spread: float) -> None:
    objective = make_grpo(kl_coefficient=0.05, tis_cap=2.0, clip_low=0.2, clip_high=0.28)
    batch = draw_batch(seed, with_reference=with_reference, spread=spread)
    parts = objective.loss(batch)
    (gradient,) = torch.autograd.grad(parts.loss, batch.logprobs)
    value, expected = grpo_oracle(batch, objective)
    assert parts.loss.item() == pytest.approx(value, abs=1e-5)
    np.testing.assert_allclose(gradient.numpy(), expected, atol=1e-5)


@given(st.integers(0, 10_000))
def test_sft_is_the_mean_negative_log_probability(seed: int) -> None:
    batch = draw_batch(seed)
    parts = Sft(keep_solved=0.3).loss(batch)
    chosen = batch.logprobs.detach().numpy()[batch.mask.numpy()]
    assert parts.loss.item() == pytest.approx(-chosen.mean() if chosen.size else 0.0, abs=1e-5)
    assert parts.sums["loss/sft"] == pytest.approx((-chosen.sum(), chosen.size), abs=1e-5)


@pytest.mark.parametrize("objective", [Sft(keep_solved=1.0), make_grpo(kl_coefficient=0.1, tis_cap=2.0)])
def test_a_batch_without_a_learned_token_has_no_loss_and_no_gradient(objective: Any) -> None:
    batch = draw_batch(0)
    empty = with_changes(batch, mask=torch.zeros_like(batch.mask), weights=torch.zeros_like(batch.weights))
    parts = objective.loss(empty)
    (gradient,) = torch.autograd.grad(parts.loss, batch.logprobs)
    assert parts.loss.item() == 0.0
    assert not gradient.any()


@pytest.mark.parametrize("objective", [Sft(keep_solved=1.0), make_grpo(kl_coefficient=0.1, tis_cap=2.0)])
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf])
def test_what_stands_at_a_masked_position_does_not_matter(objective: Any, garbage: float) -> None:
    batch = draw_batch(1)
    spoilt = {
        name: torch.where(batch.mask, getattr(batch, name).detach(), torch.tensor(garbage, dtype=torch.float64))
        for name in ("logprobs", "behaviour", "proximal", "reference")
    }
    spoilt["logprobs"].requires_grad_()
    clean, dirty = objective.loss(batch), objective.loss(with_changes(batch, **spoilt))
    assert dirty.loss.item() == clean.loss.item()
    assert dirty.sums == clean.sums
    (expected,) = torch.autograd.grad(clean.loss, batch.logprobs)
    (gradient,) = torch.autograd.grad(dirty.loss, spoilt["logprobs"])
    assert torch.equal(gradient, expected)


@pytest.mark.parametrize("objective", [Sft(keep_solved=1.0), make_grpo(kl_coefficient=0.1, tis_cap=2.0)])
def test_a_non_finite_learned_token_shows_in_the_loss(objective: Any) -> None:
    batch = draw_batch(1)
    spoilt = batch.logprobs.detach().clone()
    spoilt[tuple(batch.mask.nonzero()[0])] = math.nan
    assert math.isnan(objective.loss(with_changes(batch, logprobs=spoilt)).loss.item())


def test_one_token_answers_work() -> None:
    batch = draw_batch(2, num_rows=2, width=1)
    on = torch.ones_like(batch.mask)
    single = with_changes(batch, mask=on, weights=mean_weights(on, Mean.SEQUENCE, num_tokens=2, num_rows=2))
    objective = make_grpo(kl_coefficient=0.0, tis_cap=2.0)
    assert objective.loss(with_changes(single, reference=None)).loss.item() == pytest.approx(
        grpo_oracle(with_changes(single, reference=None), objective)[0]
    )


def test_without_staleness_the_gradient_is_the_plain_policy_gradient() -> None:
    batch = draw_batch(3, with_reference=False)
    same = batch.logprobs.detach()
    fresh = with_changes(batch, proximal=same, behaviour=same)
    parts = make_grpo(kl_coefficient=0.0, tis_cap=2.0).loss(fresh)
    (gradient,) = torch.autograd.grad(parts.loss, batch.logprobs)
    np.testing.assert_allclose(gradient.numpy(), (-batch.advantages[:, None] * batch.weights).numpy(), atol=1e-12)
    rates = {name: n / d for name, (n, d) in parts.sums.items() if name != "loss/policy"}
    assert rates == {
        "mismatch_kl/mean": 0.0,
        "ratio/mean": 1.0,
        "ratio/outside": 0.0,
        "ratio/capped": 0.0,
        "clip/fraction": 0.0,
    }
    assert parts.peaks == {"ratio/max": 1.0}


def test_a_huge_mismatch_stays_finite_and_shows_in_the_metrics() -> None:
    batch = draw_batch(4)
    far = make_grpo(kl_coefficient=0.1, tis_cap=2.0).loss(with_changes(batch, behaviour=batch.behaviour - 1e4))
    (gradient,) = torch.autograd.grad(far.loss, batch.logprobs)
    assert torch.isfinite(gradient).all()
    assert far.peaks["ratio/max"] == pytest.approx(math.exp(LOG_RATIO_BOUND))
    numerator, denominator = far.sums["ratio/capped"]
    assert numerator == denominator


@given(st.integers(0, 10_000), st.sampled_from(list(Mean)), st.integers(1, 2))
def test_losses_of_micro_batches_add_up_to_the_loss_of_the_step(seed: int, mean: Mean, cut: int) -> None:
    whole = draw_batch(seed)
    num_tokens, num_rows = int(whole.mask.sum()), int(whole.mask.any(1).sum())
    objective = make_grpo(kl_coefficient=0.1, tis_cap=2.0, mean=mean)

    def loss(rows: slice) -> float:
        parts = {n: getattr(whole, n) for n in TokenBatch.__dataclass_fields__ if n not in ("weights", "baseline")}
        taken = {n: None if v is None else v[rows] for n, v in parts.items()}
        weights = mean_weights(taken["mask"], mean, num_tokens=num_tokens, num_rows=num_rows)
        return objective.loss(TokenBatch(weights=weights, **taken)).loss.item()

    assert loss(slice(0, cut)) + loss(slice(cut, 3)) == pytest.approx(loss(slice(0, 3)), abs=1e-9)


def test_means_count_what_their_name_says() -> None:
    mask = torch.tensor([[True, False, False], [True, True, True], [False, False, False]])
    by_token = mean_weights(mask, Mean.TOKEN, num_tokens=4, num_rows=2)
    by_sequence = mean_weights(mask, Mean.SEQUENCE, num_tokens=4, num_rows=2)
    torch.testing.assert_close(by_token.sum(-1), torch.tensor([0.25, 0.75, 0.0]))
    torch.testing.assert_close(by_sequence.sum(-1), torch.tensor([0.5, 0.5, 0.0]))


@given(st.integers(0, 10_000), st.floats(0.3, 2.0))
def test_token_log_probabilities_and_entropy_are_those_of_the_scaled_softmax(seed: int, temperature: float) -> None:
    rng = np.random.default_rng(seed)
    logits, targets = rng.normal(0, 3, (2, 3, 7)), rng.integers(0, 7, (2, 3))
    scaled = np.exp(logits / temperature)
    probabilities = scaled / scaled.sum(-1, keepdims=True)
    at = torch.full((2, 3), temperature)
    got = token_logprobs(torch.tensor(logits, dtype=torch.float32), torch.tensor(targets), at)
    expected = np.log(np.take_along_axis(probabilities, targets[..., None], -1))[..., 0]
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-5, rtol=1e-5)
    entropy = token_entropy(torch.tensor(logits, dtype=torch.float32), at)
    np.testing.assert_allclose(entropy.numpy(), -(probabilities * np.log(probabilities)).sum(-1), atol=1e-5)


def test_kl_estimators_agree_with_the_exact_divergence_on_average() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6) * 5)
    log_p, log_q = torch.tensor(np.log(p))[None], torch.tensor(np.log(q))[None]
    on = torch.ones_like(log_p, dtype=torch.bool)
    exact = float((p * np.log(p / q)).sum())
    for kind in (Divergence.K1, Divergence.K3):  # the two unbiased ones: an expectation over all tokens is exact
        assert float((torch.tensor(p) * divergence(kind, log_p, log_q, on)).sum()) == pytest.approx(exact, abs=1e-9)
    assert divergence(Divergence.K2, log_p, log_q, on)[0, 0].item() == pytest.approx(math.log(p[0] / q[0]) ** 2 / 2)
    assert bool((divergence(Divergence.K3, log_p, log_q, on) >= 0).all())


@given(st.floats(-1e30, 1e30), st.floats(-1e30, 1e30), st.floats(0.1, 10))
def test_ratios_and_weights_are_bounded_whatever_comes(new: float, old: float, cap: float) -> None:
    a, b, on = torch.tensor([[new]]), torch.tensor([[old]]), torch.tensor([[True]])
    assert abs(log_ratio(a, b, on).item()) <= LOG_RATIO_BOUND
    for level in Level:
        importance = Importance(cap=cap, level=level)
        assert 0 <= importance.weights(a, b, on).item() <= cap * (1 + 1e-6)
        assert importance.weights(a, b, ~on).item() == 0


def test_a_config_names_its_objectives_and_their_weights() -> None:
    mixed = objectives_of(
        TrainingSection(
            objective="sft+grpo", group_size=4, sft_mix=0.25, kl_coefficient=0.07, tis_cap=1.5, keep_solved=0.6
        )
    )
    assert [(type(o.objective), o.weight) for o in mixed] == [(Grpo, 1.0), (Sft, 0.25)]
    assert mixed[0].objective == make_grpo(kl_coefficient=0.07, tis_cap=1.5)
    assert mixed[1].objective == Sft(keep_solved=0.6)
    assert [type(o.objective) for o in objectives_of(TrainingSection())] == [Sft]
    assert not make_grpo(kl_coefficient=0.0).needs.reference


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("rule", list(Rule))
@given(seed=st.integers(0, 10_000))
def test_importance_weights_are_what_a_loop_over_tokens_computes(level: Level, rule: Rule, seed: int) -> None:
    batch, importance = draw_batch(seed, spread=3.0), Importance(cap=1.5, level=level, rule=rule, low=0.6)
    got = importance.weights(batch.proximal, batch.behaviour, batch.mask).numpy()
    old, mu, mask = batch.proximal.numpy(), batch.behaviour.numpy(), batch.mask.numpy()
    for b in range(len(mask)):
        tokens = [t for t in range(mask.shape[1]) if mask[b, t]]
        logs = [old[b, t] - mu[b, t] for t in tokens]
        for t in range(mask.shape[1]):
            if t not in tokens:
                assert got[b, t] == 0
                continue
            own = {Level.TOKEN: old[b, t] - mu[b, t], Level.SEQUENCE: sum(logs), Level.GEOMETRIC: np.mean(logs or [0])}
            ratio = math.exp(own[level])
            expected = {
                Rule.TRUNCATE: min(ratio, 1.5),
                Rule.MASK: ratio if 0.6 <= ratio <= 1.5 else 0.0,
                Rule.NONE: 1.0,
            }
            assert got[b, t] == pytest.approx(expected[rule], abs=1e-9)
