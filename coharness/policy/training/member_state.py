"""Members in a trainer: parameters and optimizer state, one model that they are put into in turn, and which stay in memory.

A population shares one *skeleton*: a copy of the base's module tree in which the parameters that are trained are places to be
filled. Installing a member assigns its own parameters to those places, which copies nothing; frozen parameters are shared with
the base. Invariants: the base's own modules and parameters are never changed; a member's optimizer holds exactly its
parameters; state that is written to disk and restored continues as if it had stayed. Driven by `torch_trainer`.
"""

import copy
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from coharness.records.errors import WeightsError
from coharness.records.ids import PolicyId

BETAS: Final = (0.9, 0.95)
_STATE_KEYS: Final = ("exp_avg", "exp_avg_sq", "step")
_ITERATE: Final = "iterate"
_CRITIC: Final = "critic"
_VALUE: Final = "value"
_RATE_SCALE: Final = "rate_scale"


class Skeleton:
    """One model whose trained parameters are filled in by members; `model` is in eval mode, dropout stays off in training."""

    def __init__(self, model: nn.Module, names: Mapping[str, str]) -> None:
        """Take over `model`.

        Args:
            model: A copy of the base, with adapters or without; belongs to the skeleton from here on.
            names: Published name -> name in `model.named_parameters()` of every parameter that is trained.
        """
        self.model = model.eval()
        parameters = dict(model.named_parameters())
        # A tied parameter has several places; all must be filled.
        places: dict[int, list[tuple[nn.Module, str]]] = {}
        for module in model.modules():
            for attribute, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
                places.setdefault(id(parameter), []).append((module, attribute))
        self._places = {published: places[id(parameters[name])] for published, name in names.items()}
        self._shapes = {published: parameters[name].detach() for published, name in names.items()}

    @property
    def shapes(self) -> Mapping[str, Tensor]:
        """The trained parameters as they were when the skeleton was made, by published name; for shapes and types."""
        return self._shapes

    def install(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Make these the model's parameters."""
        for name, places in self._places.items():
            for module, attribute in places:
                setattr(module, attribute, parameters[name])

    def check(self, tensors: Mapping[str, Tensor], source: str) -> None:
        """Accept weights that fit.

        Raises:
            WeightsError: a name, shape or type differs; the message names the first and `source`.
        """
        for name in sorted(set(self._shapes) | set(tensors)):
            got, expected = _describe(tensors.get(name)), _describe(self._shapes.get(name))
            if got != expected:
                raise WeightsError(
                    f"{source}: tensor {name!r} is {got}, expected {expected} "
                    "(weights of another base, or of other LoRA settings?)"
                )


def full_skeleton(base: nn.Module) -> Skeleton:
    """A skeleton in which every parameter of the base is trained."""
    model = copy_structure(base)
    return Skeleton(model, {name: name for name, _ in model.named_parameters()})


def copy_structure(base: nn.Module) -> nn.Module:
    """A copy of the base's modules around parameters that share the base's memory and take no gradient."""
    shared = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in base.parameters()}
    return copy.deepcopy(base, memo=shared)


@dataclass(slots=True, kw_only=True, eq=False)
class MemberState:
    """One member in memory."""

    parameters: dict[str, nn.Parameter]
    "By published name."
    optimizer: torch.optim.AdamW
    digest: str
    "Of the weights when they were last published or read."
    critic: nn.Linear | None = None
    "A head on the trunk for objectives that want one; it travels with the optimizer's state and is never served."
    average: dict[str, Tensor] | None = None
    "Running mean of the parameters, published in their place; None where they are published themselves."
    ema_decay: float = 0.0

    @property
    def num_bytes(self) -> int:
        """Memory of parameters, optimizer state and average; the two moments count before they exist."""
        average = 0 if self.average is None else sum(tensor.nbytes for tensor in self.average.values())
        return average + sum(3 * tensor.nbytes for tensor in self.trained().values())

    def trained(self) -> dict[str, Tensor]:
        """All that updates move: the parameters, and the critic's, sharing their memory."""
        critic = {} if self.critic is None else _named(self.critic)
        return {name: parameter.detach() for name, parameter in {**self.parameters, **critic}.items()}

    def weights(self) -> dict[str, Tensor]:
        """What is published, by name: the average, or the parameters themselves; shares their memory."""
        return self.average or {name: parameter.detach() for name, parameter in self.parameters.items()}

    def step(self) -> None:
        """One step of the optimizer, and of the average after it (Polyak and Juditsky, 1992; here with exponential weights).

        A constant learning rate keeps the parameters in motion around where they would settle. Their running mean is there
        already, at every step, without an end of training that a decaying rate would have to know. Its memory grows with
        the steps taken until it is 1 / (1 - ema_decay) steps long, so that it leaves the start soon.
        """
        self.optimizer.step()
        if self.average is None:
            return
        for name, parameter in self.parameters.items():
            held = self.optimizer.state.get(parameter)
            num_steps = float(held["step"]) if held else 0.0
            decay = min(self.ema_decay, (1 + num_steps) / (10 + num_steps))
            self.average[name].lerp_(parameter.detach(), 1 - decay)

    def optimizer_state(self) -> dict[str, Tensor] | None:
        """Moments and step counts, `<key>.<parameter>`, sharing their memory; None before the first step.

        With a critic that was trained come its weights, `value.critic.<parameter>`; with an average, the parameters that it is
        of, `iterate.<parameter>`.
        """
        critic = {} if self.critic is None else _named(self.critic)
        state = {
            f"{key}.{name}": self.optimizer.state[parameter][key]
            for name, parameter in {**self.parameters, **critic}.items()
            if parameter in self.optimizer.state
            for key in _STATE_KEYS
        }
        state |= {
            f"{_VALUE}.{name}": parameter.detach()
            for name, parameter in critic.items()
            if parameter in self.optimizer.state
        }
        if state and self.average is not None:
            state |= {f"{_ITERATE}.{name}": parameter.detach() for name, parameter in self.parameters.items()}
        return state or None


def make_member(
    tensors: Mapping[str, Tensor],
    optimizer_state: Mapping[str, Tensor] | None,
    *,
    digest: str,
    device: torch.device,
    critic: nn.Linear | None = None,
    critic_rate: float = 1.0,
    ema_decay: float = 0.0,
) -> MemberState:
    """A member that owns copies of these tensors, with the optimizer state that belongs to them or a fresh one.

    Args:
        tensors: Its weights by published name.
        optimizer_state: As `MemberState.optimizer_state` gave it.
        digest: Of the weights.
        device: Where the member lives.
        critic: A fresh critic, which becomes the member's; its weights are those of the optimizer state where that has any.
        critic_rate: Factor on the critic's learning rate.
        ema_decay: Share that the average keeps at a step; 0 publishes the parameters themselves.

    Raises:
        WeightsError: the optimizer state does not fit the parameters.
    """
    state = dict(optimizer_state or {})
    iterates = {name: state.pop(f"{_ITERATE}.{name}", tensor) for name, tensor in tensors.items()}
    parameters = {name: nn.Parameter(_owned(tensor, device)) for name, tensor in iterates.items()}
    groups: list[dict[str, Any]] = [{"params": list(parameters.values()), _RATE_SCALE: 1.0}]
    head = {} if critic is None else _named(critic.to(device))
    if head:
        groups.append({"params": list(head.values()), _RATE_SCALE: critic_rate})
    optimizer = torch.optim.AdamW(groups, betas=BETAS, fused=True)
    for name, parameter in head.items():
        if (value := state.pop(f"{_VALUE}.{name}", None)) is not None:
            _copy_into(parameter, value, name)
    _restore(optimizer, {**parameters, **head}, state)
    return MemberState(
        parameters=parameters,
        optimizer=optimizer,
        digest=digest,
        critic=critic,
        average={name: _owned(tensor, device) for name, tensor in tensors.items()} if ema_decay else None,
        ema_decay=ema_decay,
    )


def fresh_critic(width: int) -> nn.Linear:
    """A head of `width` inputs that expects nothing yet."""
    # Linear draws its first weights from the global generator, which is not ours to move.
    head: nn.Linear = torch.nn.utils.skip_init(nn.Linear, width, 1)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
    return head


def set_hyperparameters(optimizer: torch.optim.AdamW, *, learning_rate: float, weight_decay: float) -> dict[str, float]:
    """Put these into the optimizer, and give back what it now holds for the weights."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group.get(_RATE_SCALE, 1.0)
        group["weight_decay"] = weight_decay
    held = optimizer.param_groups[0]
    return {"learning_rate": float(held["lr"]), "weight_decay": float(held["weight_decay"])}


class Residents:
    """Members that stay in memory between their updates: at most one of each policy, the least recently used leave first.

    A member is taken out while it is trained and put back once it is published, so an update that fails in its middle leaves
    nothing half done behind.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._members: OrderedDict[PolicyId, MemberState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._members)

    def take(self, policy: PolicyId, digest: str) -> MemberState | None:
        """Take out the policy's member if it holds these weights; one that holds others is forgotten."""
        member = self._members.pop(policy, None)
        return member if member is not None and member.digest == digest else None

    def put(self, policy: PolicyId, member: MemberState) -> None:
        """Keep a member; others leave where memory is short, and a member that is too large for it alone is not kept."""
        self._members[policy] = member
        self._members.move_to_end(policy)
        total = sum(m.num_bytes for m in self._members.values())
        while total > self._max_bytes:
            _, gone = self._members.popitem(last=False)
            total -= gone.num_bytes


def _restore(optimizer: torch.optim.AdamW, parameters: Mapping[str, nn.Parameter], state: Mapping[str, Tensor]) -> None:
    rest = set(state)
    for name, parameter in parameters.items():
        keys = {key: f"{key}.{name}" for key in _STATE_KEYS}
        if not rest.intersection(keys.values()):
            continue  # never had a gradient
        missing = [full for key, full in keys.items() if full not in state]
        if missing or state[keys["exp_avg"]].shape != parameter.shape:
            raise WeightsError(
                f"optimizer state does not fit parameter {name!r}; missing: {', '.join(missing) or 'nothing'}"
            )
        optimizer.state[parameter] = {key: state[full].to(parameter.device, copy=True) for key, full in keys.items()}
        rest.difference_update(keys.values())
    if rest:
        raise WeightsError(f"optimizer state holds {min(rest)!r}, which belongs to no parameter of this model")


def _named(critic: nn.Linear) -> dict[str, nn.Parameter]:
    return {f"{_CRITIC}.{name}": parameter for name, parameter in critic.named_parameters()}


def _copy_into(parameter: nn.Parameter, value: Tensor, name: str) -> None:
    if parameter.shape != value.shape:
        raise WeightsError(
            f"optimizer state: {name!r} has the shape {list(value.shape)}, expected {list(parameter.shape)} "
            "(a critic of another base?)"
        )
    with torch.no_grad():
        parameter.copy_(value)


def _owned(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.detach().to(device, copy=True).contiguous()


def _describe(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
