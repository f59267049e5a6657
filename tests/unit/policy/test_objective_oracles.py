"""Every objective against plain float64 loops that share nothing with it: value, gradient, edges."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.policy.objectives import Cispo, Dpo, Grpo, Gspo, Kto, Mean, Objective, Ppo, TokenBatch
from coharness.policy.objectives.dpo import Link
from coharness.policy.objectives.gradient import GradientTerms
from coharness.policy.objectives.ppo import gae
from coharness.policy.objectives.preference_rows import ContrastRule, PairRule
from coharness.policy.objectives.terms import Divergence, Importance, Targets, mean_weights

Array = npt.NDArray[np.float64]
LENGTH = 6
"""What a row counts as under the constant mean."""


def terms(kl: Divergence = Divergence.K3) -> GradientTerms:
    return GradientTerms(importance=Importance(cap=1.3), kl_coefficient=0.05, kl_estimator=kl, entropy_coefficient=0.02)


OBJECTIVES: dict[str, Any] = {
    "grpo": Grpo(terms=terms()),
    "grpo_k1": Grpo(terms=terms(Divergence.K1)),
    "grpo_k2": Grpo(terms=terms(Divergence.K2)),
    "dr_grpo": Grpo(terms=terms(), mean=Mean.CONSTANT),
    "dapo": Grpo(terms=terms(), clip_high=0.28),
    "grpo_by_row": Grpo(terms=terms(), mean=Mean.SEQUENCE),
    "gspo": Gspo(terms=terms(), clip_low=0.05, clip_high=0.08),
    "cispo": Cispo(terms=terms(), clip_low=0.5, clip_high=0.3),
    "ppo": Ppo(terms=terms(), critic_coefficient=0.3, value_clip=0.2, discount=1.0, gae_lambda=0.95),
    "dpo": Dpo(beta=0.4, link=Link.SIGMOID, pairs=PairRule()),
    "ipo": Dpo(beta=0.4, link=Link.IPO, pairs=PairRule()),
    "kto": Kto(beta=0.4, desirable_weight=1.5, undesirable_weight=0.7, contrast=ContrastRule(per_task=1)),
}
GRADIENTS = [name for name in OBJECTIVES if name not in ("dpo", "ipo", "kto")]


def draw(seed: int, mean: Mean, num_rows: int = 4, width: int = 5, spread: float = 1.0) -> TokenBatch:
    rng = np.random.default_rng(seed)
    mask = rng.random((num_rows, width)) < 0.6
    base = -rng.exponential(1.0, (num_rows, width))
    new, behaviour, proximal, reference = (
        torch.tensor(base + spread * rng.normal(0, 0.4, base.shape)) for _ in range(4)
    )
    values, old, returns, advantages, entropy = (torch.tensor(rng.normal(size=base.shape)) for _ in range(5))
    at = torch.tensor(mask)
    signs = torch.tensor(rng.choice([-1.0, 1.0], num_rows) * rng.exponential(1.0, num_rows))
    return TokenBatch(
        logprobs=new.requires_grad_(),
        mask=at,
        weights=mean_weights(
            at, mean, num_tokens=int(mask.sum()), num_rows=int(mask.any(1).sum()), constant_length=LENGTH
        ),
        advantages=signs,
        behaviour=behaviour,
        proximal=proximal,
        reference=reference,
        entropy=entropy,
        values=values,
        targets=Targets(values=old, advantages=advantages, returns=returns),
        baseline=0.3,
    )


def columns(batch: TokenBatch) -> dict[str, Array]:
    found = {name: getattr(batch, name) for name in ("logprobs", "behaviour", "proximal", "reference", "entropy")}
    found |= {"mask": batch.mask, "advantages": batch.advantages, "values": batch.values}
    if batch.targets is not None:
        found |= {f"target_{name}": getattr(batch.targets, name) for name in ("values", "advantages", "returns")}
    return {name: tensor.detach().numpy().copy() for name, tensor in found.items()}


def share(mask: Array, b: int, mean: Mean) -> float:
    """Weight of a token of row b."""
    if mean is Mean.TOKEN:
        return 1 / mask.sum()
    num_rows = mask.any(1).sum()
    return 1 / (num_rows * (LENGTH if mean is Mean.CONSTANT else mask[b].sum()))


def gradient_oracle(objective: Any, c: dict[str, Array], fixed: dict[str, Array]) -> float:
    """The loss of a policy gradient; `fixed` holds what a gradient does not go through."""
    total, mask = 0.0, c["mask"]
    for b in range(len(mask)):
        tokens = [t for t in range(mask.shape[1]) if mask[b, t]]
        for t in tokens:
            new, old, ref = c["logprobs"][b, t], c["proximal"][b, t], c["reference"][b, t]
            weight = min(math.exp(old - c["behaviour"][b, t]), objective.terms.importance.cap)
            advantage = c["target_advantages"][b, t] if isinstance(objective, Ppo) else c["advantages"][b]
            ratio = math.exp(new - old)
            if isinstance(objective, Gspo):
                ratio = math.exp(sum(c["logprobs"][b, k] - c["proximal"][b, k] for k in tokens) / len(tokens))
            low, high = 1 - objective.clip_low, 1 + objective.clip_high
            if isinstance(objective, Cispo):
                held = math.exp(fixed["logprobs"][b, t] - old)
                surrogate = min(max(held, low), high) * advantage * new
            else:
                surrogate = min(ratio * advantage, min(max(ratio, low), high) * advantage)
            x = new - ref
            kl = {Divergence.K1: x, Divergence.K2: x * x / 2, Divergence.K3: math.exp(-x) - 1 + x}
            loss = -weight * surrogate + objective.terms.kl_coefficient * kl[objective.terms.kl_estimator]
            loss -= objective.terms.entropy_coefficient * c["entropy"][b, t]
            if isinstance(objective, Ppo):
                value, was, back = (c[n][b, t] for n in ("values", "target_values", "target_returns"))
                near = min(max(value, was - objective.value_clip), was + objective.value_clip)
                loss += objective.critic_coefficient * max((value - back) ** 2, (near - back) ** 2) / 2
            total += loss * share(mask, b, objective.mean)
    return total


def preference_oracle(objective: Any, c: dict[str, Array]) -> float:
    mask = c["mask"]
    total = []
    for b in range(len(mask)):
        logs = [c["logprobs"][b, t] - c["reference"][b, t] for t in range(mask.shape[1]) if mask[b, t]]
        is_mean = isinstance(objective, Dpo) and objective.link is Link.IPO
        total.append(sum(logs) / (max(len(logs), 1) if is_mean else 1))
    if isinstance(objective, Kto):
        rows = [b for b in range(len(mask)) if mask[b].any()]
        losses = []
        for b in rows:
            sign, price = (
                (1, objective.desirable_weight) if c["advantages"][b] > 0 else (-1, objective.undesirable_weight)
            )
            losses.append(price * (1 - 1 / (1 + math.exp(-sign * objective.beta * (total[b] - 0.3)))))
        return sum(losses) / max(len(rows), 1)
    losses = []
    for b in range(0, len(mask), 2):
        margin = total[b] - total[b + 1]
        if objective.link is Link.SIGMOID:
            losses.append(math.log1p(math.exp(-objective.beta * margin)))
        else:
            losses.append((margin - 1 / (2 * objective.beta)) ** 2)
    return sum(losses) / len(losses)


def oracle(objective: Any, batch: TokenBatch) -> tuple[float, Array]:
    """Value, and the gradient in the log-probabilities by central differences."""
    c = columns(batch)

    def value(changed: dict[str, Array]) -> float:
        if isinstance(objective, Dpo | Kto):
            return preference_oracle(objective, changed)
        return gradient_oracle(objective, changed, c)

    gradient, step = np.zeros_like(c["logprobs"]), 1e-6
    for at in zip(*np.nonzero(c["mask"]), strict=True):
        ends = []
        for sign in (1, -1):
            moved = c["logprobs"].copy()
            moved[at] += sign * step
            ends.append(value({**c, "logprobs": moved}))
        gradient[at] = (ends[0] - ends[1]) / (2 * step)
    return value(c), gradient


def full_rows(batch: TokenBatch, mean: Mean) -> TokenBatch:
    """Every row has a token, as rows of a pair have."""
    mask = batch.mask.clone()
    mask[:, 0] = True
    weights = mean_weights(mask, mean, num_tokens=int(mask.sum()), num_rows=len(mask), constant_length=LENGTH)
    return replace(batch, mask=mask, weights=weights)


@pytest.mark.parametrize("name", list(OBJECTIVES))
@settings(max_examples=12)
@given(seed=st.integers(0, 10_000), spread=st.sampled_from([0.3, 1.0, 3.0]))
def test_an_objective_is_its_formula_in_value_and_gradient(name: str, seed: int, spread: float) -> None:
    objective = OBJECTIVES[name]
    batch = draw(seed, objective.mean, spread=spread)
    if name in ("dpo", "ipo"):
        batch = full_rows(batch, objective.mean)
    parts = objective.loss(batch)
    if not batch.mask.any():
        assert parts.loss.item() == 0
        return
    value, expected = oracle(objective, batch)
    (gradient,) = torch.autograd.grad(parts.loss, batch.logprobs)
    assert parts.loss.item() == pytest.approx(value, abs=1e-5)
    np.testing.assert_allclose(gradient.numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("name", list(OBJECTIVES))
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf])
def test_what_stands_at_a_masked_position_changes_nothing(name: str, garbage: float) -> None:
    objective = OBJECTIVES[name]
    batch = full_rows(draw(1, objective.mean), objective.mean)
    hole = torch.tensor(garbage, dtype=torch.float64)

    def spoil(tensor: torch.Tensor) -> torch.Tensor:
        return torch.where(batch.mask, tensor.detach(), hole)

    assert batch.targets is not None
    spoilt = replace(
        batch,
        **{
            n: spoil(getattr(batch, n)) for n in ("logprobs", "behaviour", "proximal", "reference", "entropy", "values")
        },
        targets=Targets(**{n: spoil(getattr(batch.targets, n)) for n in ("values", "advantages", "returns")}),
    )
    if name == "ppo":  # advantages of masked positions are 0 by `gae`, never garbage
        spoilt = replace(spoilt, targets=replace(spoilt.targets, advantages=batch.targets.advantages))  # type: ignore[type-var]
    spoilt.logprobs.requires_grad_()
    clean, dirty = objective.loss(batch), objective.loss(spoilt)
    assert dirty.loss.item() == clean.loss.item()
    assert dirty.sums == clean.sums
    (expected,) = torch.autograd.grad(clean.loss, batch.logprobs)
    (gradient,) = torch.autograd.grad(dirty.loss, spoilt.logprobs)
    assert torch.equal(gradient, expected)


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_nothing_learned_is_nothing_lost(name: str) -> None:
    objective = OBJECTIVES[name]
    batch = draw(3, objective.mean)
    empty = replace(batch, mask=torch.zeros_like(batch.mask), weights=torch.zeros_like(batch.weights))
    parts = objective.loss(empty)
    (gradient,) = torch.autograd.grad(parts.loss, batch.logprobs, allow_unused=True, materialize_grads=True)
    assert parts.loss.item() == 0
    assert not gradient.any()


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_answers_of_one_token_work(name: str) -> None:
    objective = OBJECTIVES[name]
    batch = full_rows(draw(5, objective.mean, width=1), objective.mean)
    value, expected = oracle(objective, batch)
    parts = objective.loss(batch)
    (gradient,) = torch.autograd.grad(parts.loss, batch.logprobs)
    assert parts.loss.item() == pytest.approx(value, abs=1e-6)
    np.testing.assert_allclose(gradient.numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("name", GRADIENTS)
def test_equal_rewards_leave_the_tether_alone(name: str) -> None:
    """With no advantage anywhere, a policy gradient has the gradient of its KL term and no other."""
    objective = OBJECTIVES[name]
    batch = draw(6, objective.mean)
    assert batch.targets is not None
    none = replace(
        batch,
        advantages=torch.zeros_like(batch.advantages),
        targets=replace(batch.targets, advantages=torch.zeros_like(batch.targets.advantages)),
    )
    bare = replace(objective, terms=replace(objective.terms, kl_coefficient=0.0))
    (gradient,) = torch.autograd.grad(objective.loss(none).loss, batch.logprobs)
    (without,) = torch.autograd.grad(bare.loss(replace(none, reference=None)).loss, batch.logprobs)
    assert not without.any()
    assert gradient.any()


def test_the_entropy_of_an_objective_that_asks_for_it_is_pulled_up() -> None:
    objective = OBJECTIVES["grpo"]
    batch = draw(7, objective.mean)
    assert batch.entropy is not None
    entropy = batch.entropy.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(objective.loss(replace(batch, entropy=entropy)).loss, entropy)
    torch.testing.assert_close(gradient, -0.02 * batch.weights.double())
    assert objective.needs.entropy_gradient
    assert not Grpo(terms=GradientTerms(importance=Importance(cap=2.0))).needs.entropy_gradient


@pytest.mark.parametrize("name", ["dpo", "ipo", "kto", "gspo", "ppo"])
@given(seed=st.integers(0, 10_000))
def test_micro_batches_add_up_to_the_step(name: str, seed: int) -> None:
    objective: Objective = OBJECTIVES[name]
    whole = full_rows(draw(seed, objective.mean), objective.mean)
    assert whole.targets is not None

    def loss(rows: slice) -> float:
        names = [n for n in TokenBatch.__dataclass_fields__ if n not in ("targets", "baseline")]
        fields = {n: getattr(whole, n)[rows] for n in names}
        targets = Targets(**{n: getattr(whole.targets, n)[rows] for n in Targets.__dataclass_fields__})
        return objective.loss(TokenBatch(**fields, targets=targets, baseline=whole.baseline)).loss.item()

    assert loss(slice(0, 2)) + loss(slice(2, 4)) == pytest.approx(loss(slice(0, 4)), abs=1e-9)


def gae_oracle(values: list[float], reward: float, discount: float, lam: float) -> list[float]:
    found = []
    for t in range(len(values)):
        total = 0.0
        for k in range(t, len(values)):
            after = values[k + 1] if k + 1 < len(values) else 0.0
            error = (reward if k + 1 == len(values) else 0.0) + discount * after - values[k]
            total += (discount * lam) ** (k - t) * error
        found.append(total)
    return found


@given(
    st.integers(0, 10_000),
    st.lists(st.integers(0, 5), min_size=0, max_size=5),
    st.sampled_from([0.9, 1.0]),
    st.sampled_from([0.0, 0.5, 0.95, 1.0]),
)
def test_advantages_are_discounted_sums_of_errors_over_what_the_policy_wrote(
    seed: int, lengths: list[int], discount: float, lam: float
) -> None:
    rng = np.random.default_rng(seed)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    mask = rng.random(int(offsets[-1])) < 0.7
    values = rng.normal(size=len(mask)).astype(np.float32)
    rewards = rng.normal(size=len(lengths)).astype(np.float32)
    got = gae(values, mask, offsets, rewards, discount=discount, gae_lambda=lam)
    assert not got[~mask].any()
    for r in range(len(lengths)):
        at = np.flatnonzero(mask[offsets[r] : offsets[r + 1]]) + offsets[r]
        expected = gae_oracle(values[at].astype(float).tolist(), float(rewards[r]), discount, lam)
        np.testing.assert_allclose(got[at], expected, atol=1e-5)
