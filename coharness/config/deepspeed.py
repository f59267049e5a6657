"""How the DeepSpeed backend spreads an update over processes; read where `training.backend` is `deepspeed`.

The processes run on the trainer's machine, on CPUs, and speak gloo over loopback. bfloat16 is `policy.dtype`.
"""

from typing import Literal

from pydantic import Field

from coharness.config.section import Section


class DeepSpeedSection(Section):
    """One engine in a group of processes that a trainer starts; all members of the population pass through it."""

    stage: Literal[0, 1, 2, 3] = 1
    "ZeRO stage: what the processes divide among them. 0 nothing, 1 optimizer state, 2 gradients as well, 3 parameters as well."
    world_size: int = Field(default=1, ge=1, le=64)
    "Processes of one trainer, each with `fleet.threads_per_worker` threads; the micro-batches of a step are dealt out to them."
    gradient_checkpointing: bool = False
    "Whether layers are computed again in the backward pass instead of being remembered."
    start_s: float = Field(default=300.0, gt=0)
    "A group that needs longer to start is ended."
    job_s: float = Field(default=1_800.0, gt=0)
    "A job that takes longer fails and its group is ended; the next job starts another."
    collective_s: float = Field(default=120.0, gt=0)
    "How long a process waits for the others in one exchange before the group is given up."
