"""What is inside a live engine: weights and Adam's state, read and written by name, or kept aside as a snapshot.

DeepSpeed steps *masters*, flat float32 tensors of which each rank holds a part, and copies them over the parameters after every
step: what is written into the parameters alone is lost. So everything here goes by the masters.

    stage 0      the parameters themselves
    stage 1, 2   one flat tensor a parameter group, cut into as many parts as there are ranks
    stage 3      flat tensors of the parts of each parameter

Two forms. *By name* is whole tensors under published names, the same for every stage and number of ranks: what is published and
restored. A *snapshot* is this rank's own masters and moments as they lie, which costs no exchange: how members take turns. Both
put back everything that a step depends on. Invariant: after a write or a restore the engine is as if it had been made of those
weights. Every call is made by all ranks in the same order.

Attributes that DeepSpeed does not promise to keep are used, nearly all of them in this file; that is why its series is pinned.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from coharness.policy.training.deepspeed_engine import ZeroEngine
from coharness.policy.training.deepspeed_ranks import Ranks
from coharness.records.errors import WeightsError

MOMENTS: Final = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """One member's part of the engine on one rank; fits an engine of the same stage, ranks and parameters."""

    masters: tuple[Tensor, ...]
    states: tuple[dict[str, Tensor], ...]
    "Adam's state of each master."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """One rank's part of a flattened tensor."""

    values: Tensor
    "Shares the engine's memory."
    start: int


class LiveState:
    """Reads and writes an engine's weights and optimizer state."""

    def __init__(self, engine: ZeroEngine, shapes: Mapping[str, Tensor], ranks: Ranks) -> None:
        """Give the optimizer a state to write to, which otherwise comes with its first step.

        Args:
            engine: The engine.
            shapes: Its parameters by published name, whole; for their shapes.
            ranks: The group.
        """
        self._engine, self._ranks = engine, ranks
        self._shapes = {name: tensor.shape for name, tensor in shapes.items()}
        self._wrapper: Any = engine.live.optimizer
        self._adam: torch.optim.AdamW = engine.live.optimizer.optimizer if engine.stage else engine.live.optimizer
        self._access: Any = importlib.import_module("deepspeed.utils")
        for master in self._masters():
            self._adam.state[master] = {
                "step": torch.zeros((), dtype=torch.float32, device=master.device),
                **{key: torch.zeros_like(master) for key in MOMENTS},
            }
        if engine.stage in (1, 2):
            self._wrapper._lazy_init_hp_params_optimizer_state()

    @property
    def num_steps(self) -> int:
        """Steps that Adam has taken."""
        return int(self._adam.state[self._masters()[0]]["step"])

    def read(self) -> tuple[dict[str, Tensor], dict[str, Tensor] | None]:
        """Whole weights in float32 by published name, and Adam's state as it is published, `<key>.<parameter>`; on every rank.

        The second is None before the first step.
        """
        keys: tuple[str | None, ...] = (None, *MOMENTS) if self.num_steps else (None,)
        whole = self._gathered(keys)
        if len(keys) == 1:
            return whole[0], None
        moments = {
            f"{key}.{name}": tensor for key, of in zip(MOMENTS, whole[1:], strict=True) for name, tensor in of.items()
        }
        step = torch.tensor(float(self.num_steps))
        return whole[0], {**moments, **{f"step.{name}": step.clone() for name in self._engine.parameters}}

    def write(self, weights: Mapping[str, Tensor], moments: Mapping[str, Tensor] | None) -> None:
        """Make these the engine's weights and optimizer state; None begins a fresh optimizer.

        Args:
            weights: Whole tensors by published name.
            moments: As `check_moments` accepts them.
        """
        state = moments or {}
        with torch.no_grad():
            for name in self._engine.parameters:
                for key in (None, *MOMENTS):
                    part = self._part(name, key)
                    whole = weights[name] if key is None else state.get(f"{key}.{name}")
                    if whole is None:
                        part.values.zero_()
                    else:
                        part.values.copy_(whole.detach().reshape(-1)[part.start : part.start + part.values.numel()])
            for master in self._masters():
                self._adam.state[master]["step"].fill_(max(_steps(state), default=0.0))
            self._publish_masters()

    def snapshot(self) -> Snapshot:
        """A copy of what this rank holds."""
        masters = self._masters()
        return Snapshot(
            masters=tuple(master.detach().clone() for master in masters),
            states=tuple({key: value.clone() for key, value in self._adam.state[m].items()} for m in masters),
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Put a snapshot back."""
        with torch.no_grad():
            for master, kept, state in zip(self._masters(), snapshot.masters, snapshot.states, strict=True):
                master.data.copy_(kept)
                for key, value in state.items():
                    self._adam.state[master][key].copy_(value)
            self._publish_masters()

    def _masters(self) -> list[Tensor]:
        match self._engine.stage:
            case 0:
                return list(self._engine.parameters.values())
            case 3:
                return list(self._wrapper.fp32_partitioned_groups_flat)
            case _:
                return list(self._wrapper.single_partition_of_fp32_groups)

    def _part(self, name: str, key: str | None) -> "_Part":
        """What this rank holds of a parameter's master (key None) or of one of its moments."""
        parameter = self._engine.parameters[name]
        nothing = parameter.new_zeros(0, dtype=torch.float32)
        match self._engine.stage:
            case 0:
                whole = parameter.data if key is None else self._adam.state[parameter][key]
                return _Part(values=whole.view(-1), start=0)
            case 3:
                if key is None:
                    values = self._access.safe_get_local_fp32_param(parameter)
                else:
                    values = self._access.safe_get_local_optimizer_state(parameter, key)
                # All ranks' parts are of one size; the last ones are filled up where it does not divide the parameter.
                start = values.numel() * self._ranks.rank
                size = min(values.numel(), int(parameter.ds_numel) - start)  # type: ignore[attr-defined]
                return _Part(values=values[:size], start=start) if size > 0 else _Part(values=nothing, start=0)
            case _:
                # The flat masters are cut without regard to parameters: a rank may hold some, none or all of one.
                mapping = parameter._hp_mapping  # type: ignore[attr-defined]
                if mapping is None:
                    return _Part(values=nothing, start=0)
                return _Part(values=mapping.get_hp_fragment(key), start=mapping.lp_fragment_address.start)

    def _gathered(self, keys: Sequence[str | None]) -> list[dict[str, Tensor]]:
        """Whole tensors of all parameters for each key, put together in one exchange."""
        shapes = self._shapes
        buffer = torch.zeros(len(keys), sum(shape.numel() for shape in shapes.values()))
        found: list[dict[str, Tensor]] = []
        for row, key in zip(buffer, keys, strict=True):
            at, tensors = 0, {}
            for name, shape in shapes.items():
                part = self._part(name, key)
                first = at + part.start
                row[first : first + part.values.numel()] = part.values.detach()
                tensors[name] = row[at : at + shape.numel()].view(shape)
                at += shape.numel()
            found.append(tensors)
        if self._engine.stage:
            self._ranks.sum(buffer)
        return found

    def _publish_masters(self) -> None:
        """Copy the masters over the parameters, as a step does when it ends."""
        if self._engine.stage in (1, 2):
            self._wrapper.update_lp_params()
        elif self._engine.stage == 3:
            # Small parameters are kept whole on every rank between steps.
            whole = self._wrapper.persistent_parameters
            if whole:
                whole[0].partition(whole)
            for index in range(len(self._wrapper.fp32_partitioned_groups_flat)):
                self._wrapper._reassign_or_swap_out_partitioned_parameters(index)
            if whole:
                whole[0].all_gather(whole)


def check_moments(moments: Mapping[str, Tensor], weights: Mapping[str, Tensor], source: str) -> None:
    """Accept optimizer state that belongs to these weights; a parameter may lack it that never had a gradient.

    Raises:
        WeightsError: a shape differs, a tensor belongs to no parameter, a part is missing, or parameters have taken different
            numbers of steps, which one engine cannot continue.
    """
    rest = set(moments)
    for name, weight in weights.items():
        keys = {f"{key}.{name}" for key in (*MOMENTS, "step")}
        if not (found := rest & keys):
            continue
        if found != keys or any(moments[f"{key}.{name}"].shape != weight.shape for key in MOMENTS):
            missing = ", ".join(sorted(keys - found)) or "nothing"
            raise WeightsError(f"{source}: optimizer state does not fit parameter {name!r}; missing: {missing}")
        rest -= keys
    if rest:
        raise WeightsError(
            f"{source}: optimizer state holds {min(rest)!r}, which belongs to no parameter of this model"
        )
    if len(steps := _steps(moments)) > 1:
        raise WeightsError(
            f"{source}: its parameters have taken {', '.join(f'{s:.0f}' for s in sorted(steps))} steps, expected one number for "
            "all (trained by another backend with a part frozen?)"
        )


def _steps(moments: Mapping[str, Tensor]) -> set[float]:
    return {float(value) for key, value in moments.items() if key.startswith("step.")}
