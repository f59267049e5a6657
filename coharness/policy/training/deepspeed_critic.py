"""The critic of the member in a live engine: a head on the trunk, whole on every rank, stepped beside the engine.

A few hundred numbers are not worth dividing, and the head belongs to no served policy, so DeepSpeed never sees it. Invariants:
all ranks hold the same critic; what is kept of it has the names and the meaning that `member_state` gives it. Driven by
`deepspeed_member` (whose it is) and `deepspeed_update` (steps).
"""

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor, nn

from coharness.policy.training.deepspeed_ranks import Ranks
from coharness.policy.training.member_state import BETAS, fresh_critic
from coharness.records.errors import WeightsError

_OWNER: Final = "critic."
_KEYS: Final = ("exp_avg", "exp_avg_sq", "step")


class Critic:
    """One head through which all members pass in turn."""

    def __init__(self, width: int, rate_scale: float, ranks: Ranks) -> None:
        """Begin with a head that expects nothing.

        Args:
            width: Of the trunk's hidden states.
            rate_scale: Factor on the member's learning rate.
            ranks: The group.
        """
        self.head = fresh_critic(width)
        self._optimizer = torch.optim.AdamW(self.head.parameters(), betas=BETAS, fused=True)
        self._rate_scale, self._ranks = rate_scale, ranks

    def set_hyperparameters(self, *, learning_rate: float, weight_decay: float) -> None:
        """Put the member's into the critic's optimizer."""
        for group in self._optimizer.param_groups:
            group["lr"], group["weight_decay"] = learning_rate * self._rate_scale, weight_decay

    def step(self, max_grad_norm: float) -> None:
        """Add up the ranks' gradients, clip, step, and forget them; nothing where no objective asked for values."""
        gradients = [p.grad for p in self.head.parameters() if p.grad is not None]
        if not gradients:
            return
        for gradient in gradients:
            # Losses were scaled up for the mean that DeepSpeed takes over ranks.
            self._ranks.sum(gradient).div_(self._ranks.size)
        torch.nn.utils.clip_grad_norm_(self.head.parameters(), max_grad_norm)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """Copies of its weights and Adam's state as they are published with a member; empty before its first step."""
        found: dict[str, Tensor] = {}
        for name, parameter in self.head.named_parameters():
            if parameter in self._optimizer.state:
                found[f"value.{_OWNER}{name}"] = parameter.detach().clone()
                for key in _KEYS:
                    found[f"{key}.{_OWNER}{name}"] = self._optimizer.state[parameter][key].clone()
        return found

    def write(self, state: Mapping[str, Tensor]) -> None:
        """Make this the critic's state; an empty one begins a fresh critic."""
        self._optimizer.zero_grad(set_to_none=True)
        self._optimizer.state.clear()
        with torch.no_grad():
            for name, parameter in self.head.named_parameters():
                value = state.get(f"value.{_OWNER}{name}")
                if value is None:
                    parameter.zero_()
                    continue
                parameter.copy_(value)
                self._optimizer.state[parameter] = {key: state[f"{key}.{_OWNER}{name}"].clone() for key in _KEYS}

    def split(self, state: dict[str, Tensor], source: str) -> dict[str, Tensor]:
        """Take the critic's part out of a member's optimizer state, and check it.

        Raises:
            WeightsError: a tensor is missing or has another shape.
        """
        mine = {key: state.pop(key) for key in list(state) if key.partition(".")[2].startswith(_OWNER)}
        if not mine:
            return mine
        for name, parameter in self.head.named_parameters():
            for key in ("value", *_KEYS):
                got = mine.get(f"{key}.{_OWNER}{name}")
                expected = [] if key == "step" else list(parameter.shape)
                if got is None or list(got.shape) != expected:
                    shape = "missing" if got is None else f"of shape {list(got.shape)}"
                    raise WeightsError(
                        f"{source}: optimizer state: {key!r} of the critic's {name!r} is {shape}, expected {expected} "
                        "(a critic of another base?)"
                    )
        return mine


def trunk_width(model: nn.Module) -> int:
    """Width of the hidden states that a model's head reads."""
    return int(model.get_input_embeddings().weight.shape[1])  # type: ignore[operator]
