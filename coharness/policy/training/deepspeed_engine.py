"""The live DeepSpeed engine: one skeleton's parameters under ZeRO, through which all members of a population pass.

Owns how the engine is made and stepped: any number of micro-batches a step, gradients summed over ranks, hyperparameters set
live. What is inside it is read and written by `deepspeed_state`. Invariant: after `step` the engine holds no gradient, whatever
was found on the way. Driven by `deepspeed_update`; every call is made by all ranks.

An engine is never made twice in one process: under stage 3 DeepSpeed keeps the old one in memory.
"""

import math
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from coharness.config.deepspeed import DeepSpeedSection
from coharness.policy.training.deepspeed_extra import load_deepspeed
from coharness.policy.training.deepspeed_ranks import Ranks
from coharness.policy.training.member_state import BETAS, Skeleton

_NEVER: Final = 2**31


class ZeroEngine:
    """A DeepSpeed engine and the parameters that it trains, by published name."""

    def __init__(self, skeleton: Skeleton, section: DeepSpeedSection, ranks: Ranks, *, is_bf16: bool) -> None:
        """Give the skeleton fresh parameters and hand it to DeepSpeed, which divides it among the ranks.

        Args:
            skeleton: Belongs to the engine from here on.
            section: Stage and gradient checkpointing.
            ranks: The group.
            is_bf16: Whether the model computes in bfloat16, over float32 masters.
        """
        self.stage: int = section.stage
        self.parameters = {name: nn.Parameter(shape.clone()) for name, shape in skeleton.shapes.items()}
        skeleton.install(self.parameters)
        optimizer = torch.optim.AdamW(self.parameters.values(), betas=BETAS, fused=True)
        package = load_deepspeed()
        package.init_distributed("gloo", verbose=False)
        config = {
            # Micro-batches are counted by the caller; these two only have to be there.
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            "steps_per_print": _NEVER,
            "zero_optimization": {"stage": section.stage},
            **({"bf16": {"enabled": True}} if is_bf16 else {}),
        }
        self.live: Any = package.initialize(
            model=skeleton.model,
            model_parameters=list(self.parameters.values()),
            optimizer=optimizer,
            config=config,
        )[0]
        self.live.eval()
        if section.gradient_checkpointing:
            _checkpoint_layers(skeleton.model)
        self._num_ranks = ranks.size
        _set_deadline(ranks.deadline_s)

    @property
    def model(self) -> nn.Module:
        """What rows go through."""
        return self.live  # type: ignore[no-any-return]

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The optimizer's parameter groups, hyperparameters included."""
        return self.live.optimizer.param_groups  # type: ignore[no-any-return]

    def set_hyperparameters(
        self, *, learning_rate: float, weight_decay: float, max_grad_norm: float
    ) -> dict[str, float]:
        """Put these into the live engine, and give back what it now holds."""
        for group in self.groups:
            group["lr"], group["weight_decay"] = learning_rate, weight_decay
        # Stage 0 clips in the engine, the others in their optimizer.
        self.live._config.gradient_clipping = max_grad_norm
        if self.stage:
            self.live.optimizer.clip_grad = max_grad_norm
        held = self.groups[0]
        return {"learning_rate": float(held["lr"]), "weight_decay": float(held["weight_decay"])}

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        """Add the gradient of `loss` to the step's; gradients of all ranks' losses add up.

        Args:
            loss: Of one micro-batch.
            is_last: Whether it is this rank's last of the step; each rank has as many.
        """
        self.live.set_gradient_accumulation_boundary(is_last)
        # DeepSpeed takes the mean over ranks.
        self.live.backward(loss * self._num_ranks, scale_wrt_gas=False)

    def step(self) -> float:
        """Clip, step, and forget the gradients; gives back their norm before clipping."""
        norm = _norm(self.parameters.values()) if self.stage == 0 else math.nan
        self.live.step()
        return float(self.live.get_global_grad_norm()) if self.stage else norm


def _norm(parameters: Any) -> float:
    gradients = [p.grad for p in parameters if p.grad is not None]
    return float(torch.nn.utils.get_total_norm(gradients))


def _checkpoint_layers(model: nn.Module) -> None:
    """Compute the layers again in the backward pass."""
    model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    for module in model.modules():
        # The layers look at their own flag; their parts stay in eval mode, so that dropout stays off.
        if getattr(module, "gradient_checkpointing", None) is True:
            module.training = True


def _set_deadline(deadline_s: float) -> None:
    """Bound the exchanges of the groups that DeepSpeed made for itself, for which it takes no timeout."""
    c10d = dist.distributed_c10d
    for group in list(c10d._world.pg_map):
        c10d._set_pg_timeout(timedelta(seconds=deadline_s), group)
