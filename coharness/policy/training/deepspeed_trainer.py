"""The DeepSpeed trainer: the same jobs and the same published versions as the torch trainer, computed by a group of processes.

Holds the group, and starts another when it has ended. What is published names neither stage nor number of processes, so any
trainer of the same base goes on with it. Invariants: those of `deepspeed_member`; a group that ends in the middle of a job fails
that job and no other. Driven by a job runner, one job at a time.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from torch import Tensor

from coharness.config.schema import PolicySection, TrainingSection
from coharness.policy.training.deepspeed_group import TrainerGroup
from coharness.policy.training.deepspeed_messages import Answer, BaseTensors, Open, PublishMerged, Train
from coharness.records.errors import Boundary, BoundaryError
from coharness.records.training import JobResult, JobStatus, MergeJob, TrainJob

_log = logging.getLogger(__name__)
_RESIDENT_BYTES = 2**30


class DeepSpeedTrainer:
    """Trains full-weight or LoRA members of one base in a group of processes."""

    def __init__(
        self,
        start: Callable[[], TrainerGroup],
        run_dir: Path,
        training: TrainingSection,
        *,
        resident_bytes: int = _RESIDENT_BYTES,
    ) -> None:
        """Start the group.

        Args:
            start: Starts a group of `training.deepspeed`'s shape.
            run_dir: Folder that the uris of weights are relative to.
            training: Objective and its settings.
            resident_bytes: Memory of the group for members kept between their updates.

        Raises:
            PreflightError: DeepSpeed is not installed here.
            BoundaryError: the group did not start.
        """
        self._start, self._run_dir, self._training = start, run_dir, training
        self._resident_bytes = resident_bytes
        self._group = self._opened()

    def train(self, job: TrainJob, own: pa.Table, borrowed: pa.Table) -> JobResult:
        """Run one update and publish version `job.step`; as `TorchTrainer.train`.

        Args:
            job: What to do.
            own: Episodes of exactly `job.items`.
            borrowed: Episodes of exactly `job.borrowed`.
        """
        command = Train(job=job, own=own, borrowed=borrowed)
        return self._result(job, lambda group: group.ask_all(command, self._training.deepspeed.job_s))

    def publish_merged(self, job: MergeJob, tensors: Mapping[str, Tensor]) -> JobResult:
        """Publish merged weights as version 0 of `job.child`, without optimizer state: its next update begins a fresh one.

        Args:
            job: The merge that made them.
            tensors: Weights by published name, of the run's kind.
        """
        command = PublishMerged(job=job, tensors=tensors)
        return self._result(job, lambda group: [group.ask_first(command, self._training.deepspeed.job_s)])

    def base_tensors(self) -> dict[str, Tensor]:
        """What a member that is still the base would publish: the base's parameters, or an adapter that changes nothing.

        Raises:
            BoundaryError: the group did not answer.
        """
        group = self._living()
        answer = group.ask_first(BaseTensors(), self._training.deepspeed.job_s)
        assert answer.tensors is not None, "asked for tensors"
        return dict(answer.tensors)

    def close(self) -> None:
        """End the group."""
        self._group.close()

    def _opened(self) -> TrainerGroup:
        group = self._start()
        command = Open(run_dir=self._run_dir, training=self._training, resident_bytes=self._resident_bytes)
        group.ask_all(command, self._training.deepspeed.job_s)
        return group

    def _living(self) -> TrainerGroup:
        if not self._group.is_alive:
            _log.warning("the trainer group has ended; starting another")
            self._group.close()
            self._group = self._opened()
        return self._group

    def _result(self, job: TrainJob | MergeJob, ask: Callable[[TrainerGroup], list[Answer]]) -> JobResult:
        wall = time.perf_counter()
        try:
            answers = ask(self._living())
        except BoundaryError as error:
            return JobResult(
                job=job.id,
                status=JobStatus.FAILED,
                wall_s=time.perf_counter() - wall,
                boundary=Boundary.TRAINING if error.boundary is Boundary.WORKER else error.boundary,
                message=error.message,
            )
        result = answers[0].result
        assert result is not None, "asked for a job's result"
        cpu_s = sum(answer.cpu_s for answer in answers)
        return replace(result, wall_s=time.perf_counter() - wall, cpu_s=cpu_s)


def group_starter(policy: PolicySection, training: TrainingSection, *, num_threads: int) -> Callable[[], TrainerGroup]:
    """How a trainer of these settings starts its group, and starts it again."""
    return partial(TrainerGroup, policy, training, num_threads=num_threads)
