"""Objectives against TRL 1.16.0, which users know: the same inputs, the loss and gradient that `record_trl_losses` wrote down."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coharness.policy.objectives import Cispo, Dpo, Grpo, Gspo, Kto, Mean, TokenBatch
from coharness.policy.objectives.dpo import Link
from coharness.policy.objectives.gradient import GradientTerms
from coharness.policy.objectives.preference_rows import ContrastRule, PairRule
from coharness.policy.objectives.terms import Importance, mean_weights

RECORDED = json.loads(Path(__file__).with_name("trl_losses.json").read_text(encoding="utf-8"))
S = RECORDED["settings"]


def terms(entropy: float = 0.0) -> GradientTerms:
    return GradientTerms(importance=Importance(cap=S["cap"]), kl_coefficient=S["kl"], entropy_coefficient=entropy)


OBJECTIVES: dict[str, Any] = {
    "grpo_by_row": Grpo(terms=terms(), mean=Mean.SEQUENCE),
    "grpo": Grpo(terms=terms(S["entropy"])),
    "dr_grpo": Grpo(terms=terms(), mean=Mean.CONSTANT),
    "dapo": Grpo(terms=terms(S["entropy"]), clip_high=S["high"]),
    "gspo": Gspo(terms=terms(), clip_low=0.05, clip_high=0.08),
    "cispo": Cispo(terms=terms(S["entropy"]), clip_high=S["high"]),
    "dpo": Dpo(beta=S["beta"], link=Link.SIGMOID, pairs=PairRule()),
    "ipo": Dpo(beta=S["beta"], link=Link.IPO, pairs=PairRule()),
    "kto": Kto(
        beta=S["beta"], desirable_weight=S["desirable"], undesirable_weight=S["undesirable"],
        contrast=ContrastRule(per_task=1),
    ),
}  # fmt: skip


def batch_of(case: dict[str, Any], mean: Mean) -> TokenBatch:
    mask = torch.tensor(case["mask"])
    columns = {
        name: torch.tensor(case[name], dtype=torch.float64)
        for name in ("logprobs", "behaviour", "proximal", "reference", "entropy", "advantages")
    }
    columns["logprobs"].requires_grad_()
    weights = mean_weights(mask, mean, num_tokens=int(mask.sum()), num_rows=len(mask), constant_length=S["length"])
    return TokenBatch(mask=mask, weights=weights, baseline=case["baseline"], **columns)


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: f"{case['name']}-{case['baseline']:.1f}")
def test_loss_and_gradient_are_trls(case: dict[str, Any]) -> None:
    objective = OBJECTIVES[case["name"]]
    batch = batch_of(case, objective.mean)
    loss = objective.loss(batch).loss
    (gradient,) = torch.autograd.grad(loss, batch.logprobs)
    assert loss.item() == pytest.approx(case["loss"], abs=1e-5)
    np.testing.assert_allclose(gradient.numpy(), case["gradient"], atol=1e-5)


def test_every_objective_with_a_counterpart_was_recorded() -> None:
    assert {case["name"] for case in RECORDED["cases"]} == set(OBJECTIVES)
    assert RECORDED["trl"] == "1.16.0"
