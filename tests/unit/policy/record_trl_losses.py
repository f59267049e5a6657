"""Records what the trainers of TRL 1.16.0 compute on random log-probabilities, for `test_objectives_against_trl`.

TRL is no dependency of this project; run this where it is installed beside torch:

    python tests/unit/policy/record_trl_losses.py tests/unit/policy/trl_losses.json

The trainers' own loss methods are called on a stand-in for the trainer: no model, no data set, and what a model would say is a
table of numbers whose gradient is recorded.
"""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch

ROWS, WIDTH, LENGTH = 4, 6, 8
BETA, KL, LOW, HIGH, CAP, ENTROPY = 0.3, 0.04, 0.2, 0.28, 2.0, 0.05
DESIRABLE, UNDESIRABLE = 1.3, 0.8
GRADIENTS = {
    # name: (TRL's loss type, level, low, high, entropy coefficient)
    "grpo_by_row": ("grpo", "token", LOW, LOW, 0.0),
    "grpo": ("bnpo", "token", LOW, LOW, ENTROPY),
    "dr_grpo": ("dr_grpo", "token", LOW, LOW, 0.0),
    "dapo": ("dapo", "token", LOW, HIGH, ENTROPY),
    "gspo": ("grpo", "sequence", 0.05, 0.08, 0.0),
    "cispo": ("cispo", "token", LOW, 1 + HIGH, ENTROPY),
}


def draw(seed: int) -> dict[str, torch.Tensor]:
    """A batch in float64; every row has a token."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, WIDTH + 1, ROWS)
    base = -rng.exponential(1.0, (ROWS, WIDTH))
    arrays = {n: base + rng.normal(0, 0.4, base.shape) for n in ("logprobs", "behaviour", "proximal", "reference")}
    arrays |= {"mask": np.arange(WIDTH) < lengths[:, None], "advantages": rng.normal(size=ROWS)}
    arrays |= {"entropy": rng.exponential(1.0, base.shape)}
    return {name: torch.tensor(array if name == "mask" else array.round(4)) for name, array in arrays.items()}


def stand_in(**settings: Any) -> Any:
    """A trainer that has settings and nothing else."""
    trainer = MagicMock(**settings)
    trainer.model.training = True
    trainer.accelerator.num_processes = 1
    trainer.accelerator.device = torch.device("cpu")
    trainer.accelerator.gather = trainer.accelerator.gather_for_metrics = lambda tensor: tensor
    trainer.accelerator.reduce = lambda tensor, **_: tensor
    trainer.aux_loss_enabled = False
    trainer._total_train_tokens, trainer._tp_size = 0, 1
    return trainer


def policy_gradient(trl: Any, batch: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """The loss of `GRPOTrainer`."""
    kind, level, low, high, entropy = GRADIENTS[name]
    trainer = stand_in(
        loss_type=kind, importance_sampling_level=level, epsilon_low=low, epsilon_high=high, beta=KL,
        max_completion_length=LENGTH, top_entropy_quantile=1.0, off_policy_mask_threshold=None, use_vllm=True,
        vllm_importance_sampling_correction=True, current_gradient_accumulation_steps=1, entropy_coef=entropy,
        use_adaptive_entropy=False, _entropy_bonus_enabled=entropy > 0,
        args=SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1),
    )  # fmt: skip
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (batch["logprobs"], batch["entropy"], None)
    mask = batch["mask"].double()
    loss: torch.Tensor = trl.GRPOTrainer._compute_loss(
        trainer,
        None,
        {
            "prompt_ids": torch.zeros(ROWS, 1, dtype=torch.long), "prompt_mask": torch.ones(ROWS, 1),
            "completion_ids": torch.zeros(ROWS, WIDTH, dtype=torch.long), "completion_mask": mask,
            "advantages": batch["advantages"], "old_per_token_logps": batch["proximal"],
            "ref_per_token_logps": batch["reference"], "num_items_in_batch": mask.sum(),
            "importance_sampling_ratio": (batch["proximal"] - batch["behaviour"]).exp().clamp(max=CAP),
        },
    )  # fmt: skip
    return loss


def says(logprobs: torch.Tensor, batch: dict[str, torch.Tensor]) -> Any:
    """What a model with a fused head gives back; position 0 predicts nothing that is learned."""
    masked = torch.where(batch["mask"], logprobs, 0.0)
    zeros = torch.zeros_like(masked)
    return SimpleNamespace(log_probs=masked, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())


def inputs(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Token ids that nothing reads, and the mask over them, one longer than what is predicted."""
    mask = torch.cat([torch.zeros(ROWS, 1), batch["mask"].double()], dim=1)
    return {
        "input_ids": torch.zeros(ROWS, WIDTH + 1, dtype=torch.long),
        "attention_mask": torch.ones(ROWS, WIDTH + 1),
        "completion_mask": mask,
    }


def preference(trl: Any, batch: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """The loss of `DPOTrainer`, which wants all chosen rows before all rejected ones."""
    order = torch.tensor([0, 2, 1, 3])
    halves = {key: tensor[order] for key, tensor in batch.items()}
    trainer = stand_in(
        beta=BETA, ld_alpha=None, precompute_ref_logps=False, f_divergence_type="reverse_kl", loss_weights=[1.0],
        loss_types=["sigmoid" if name == "dpo" else "ipo"], use_weighting=False, args=MagicMock(),
    )  # fmt: skip
    trainer.ref_model = lambda **_: says(halves["reference"], halves)
    model = lambda **_: says(halves["logprobs"], halves)  # noqa: E731
    loss: torch.Tensor = trl.DPOTrainer._compute_loss(trainer, model, inputs(halves), False)
    return loss


def contrast(trl: Any, batch: dict[str, torch.Tensor], baseline: float) -> torch.Tensor:
    """The loss of `KTOTrainer`, told what the divergence of unrelated answers is."""
    trainer = stand_in(
        beta=BETA, loss_type="kto", calculate_KL=True, precompute_ref_logps=False, args=MagicMock(),
        desirable_weight=DESIRABLE, undesirable_weight=UNDESIRABLE,
    )  # fmt: skip
    model = lambda **_: says(batch["logprobs"], batch)  # noqa: E731
    trainer.ref_model = lambda **_: says(batch["reference"], batch)
    trainer._compute_kl_logps = lambda asked, _: torch.full((ROWS,), baseline if asked is model else 0.0)
    labelled = {**inputs(batch), "label": batch["advantages"] > 0}
    loss: torch.Tensor = trl.KTOTrainer._compute_loss(trainer, model, labelled, False)
    return loss


def rounded(tensor: torch.Tensor) -> list[list[float]]:
    """As far as float32 tells."""
    return [[round(value, 9) for value in row] for row in tensor.tolist()]


def record(trl: Any) -> dict[str, Any]:
    """All cases: what went in, and the loss with its gradient in the log-probabilities."""
    cases = []
    for seed in range(3):
        for name in (*GRADIENTS, "dpo", "ipo", "kto"):
            batch = draw(seed)
            batch["logprobs"].requires_grad_()
            baseline = 0.1 * seed
            if name in GRADIENTS:
                loss = policy_gradient(trl, batch, name)
            else:
                loss = contrast(trl, batch, baseline) if name == "kto" else preference(trl, batch, name)
            (gradient,) = torch.autograd.grad(loss, batch["logprobs"])
            held = {key: tensor.detach().tolist() for key, tensor in batch.items()}
            case = {"name": name, "baseline": baseline, "loss": loss.item(), "gradient": rounded(gradient)}
            cases.append({**case, **held})
    settings = {"beta": BETA, "kl": KL, "low": LOW, "high": HIGH, "cap": CAP, "entropy": ENTROPY, "length": LENGTH}
    weights = {"desirable": DESIRABLE, "undesirable": UNDESIRABLE}
    return {"trl": trl.__version__, "settings": {**settings, **weights}, "cases": cases}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(record(importlib.import_module("trl"))) + "\n", encoding="utf-8")
