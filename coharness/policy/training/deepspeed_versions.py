"""Versions as the ranks of a trainer group read and publish them: `versions`, and what an engine of parts adds.

Where weights are published in a narrower type than they are trained in, the float32 masters travel with the optimizer's state,
`master.<parameter>`, so that a continuation loses nothing. Nothing here is an exchange. Driven by `deepspeed_member`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from coharness.policy.training.deepspeed_critic import Critic
from coharness.policy.training.deepspeed_state import check_moments
from coharness.policy.training.versions import Versions
from coharness.records.training import TrainJob

_MASTER: Final = "master."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Start:
    """A member as it was read: whole tensors, to be written into the engine."""

    masters: Mapping[str, Tensor]
    moments: Mapping[str, Tensor] | None
    "None where a fresh optimizer begins."
    critic: Mapping[str, Tensor]


def read_start(versions: Versions, job: TrainJob, critic: Critic | None) -> Start:
    """The member at the job's start, verified.

    Raises:
        WeightsError: the version is missing, damaged, of another kind, or of another base.
    """
    tensors, optimizer = versions.read(job)
    moments, source = optimizer or {}, f"version {job.start.ref}"
    masters = {name: moments.pop(_MASTER + name, tensor) for name, tensor in tensors.items()}
    head = {} if critic is None or not moments else critic.split(moments, source)
    check_moments(moments, tensors, source)
    return Start(masters=masters, moments=moments or None, critic=head)


def as_published(
    shapes: Mapping[str, Tensor],
    masters: Mapping[str, Tensor],
    moments: Mapping[str, Tensor] | None,
    critic: Mapping[str, Tensor],
) -> tuple[dict[str, Tensor], dict[str, Tensor] | None]:
    """Weights and optimizer state as they are published, from what was in the engine.

    Args:
        shapes: Published names with tensors of the type that is published.
        masters: Weights in the type they are trained in.
        moments: Optimizer state.
        critic: The critic's.
    """
    tensors = {name: master.to(shapes[name].dtype) for name, master in masters.items()}
    if moments is None:
        return tensors, None
    wider = {_MASTER + name: m for name, m in masters.items() if tensors[name].dtype != m.dtype}
    return tensors, {**moments, **wider, **critic}
