"""Runs jobs of a trainer process: updates through the training backend, merges through `evolution.merging`."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from coharness.config.schema import PolicySection
from coharness.records.errors import Boundary, BoundaryError, CoharnessError, boundary
from coharness.records.policy import WeightsKind
from coharness.records.protocols import ReplayStore
from coharness.records.training import JobResult, JobStatus, MergeJob, TrainJob

if TYPE_CHECKING:
    import pyarrow as pa


class TrainingBackend(Protocol):
    """What a job runner needs of a training backend."""

    def train(self, job: TrainJob, own: "pa.Table", borrowed: "pa.Table") -> JobResult:
        """Run one update and publish the new version."""
        ...

    def publish_merged(self, job: MergeJob, tensors: Mapping[str, Any]) -> JobResult:
        """Check and publish merged weights as version 0 of the child."""
        ...

    def base_tensors(self) -> Mapping[str, Any]:
        """The base's own tensors under the names that members publish (full weights only)."""
        ...


class JobRunner:
    """Runs one job at a time; a failure becomes the job's result."""

    def __init__(self, run_dir: Path, policy: PolicySection, backend: TrainingBackend, replay: ReplayStore) -> None:
        self._run_dir = run_dir
        self._policy = policy
        self._backend = backend
        self._replay = replay

    def run(self, job: TrainJob | MergeJob) -> JobResult:
        """The end of the job."""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            if isinstance(job, TrainJob):
                with boundary(Boundary.REPLAY):
                    own, borrowed = self._replay.fetch(job.items), self._replay.fetch(job.borrowed)
                return self._backend.train(job, own, borrowed)
            with boundary(Boundary.TRAINING):
                return self._backend.publish_merged(job, self._merged(job))
        except (BoundaryError, CoharnessError) as error:
            where = error.boundary if isinstance(error, BoundaryError) else Boundary.WEIGHTS
            return JobResult(
                job=job.id,
                status=JobStatus.FAILED,
                wall_s=time.perf_counter() - wall,
                cpu_s=time.process_time() - cpu,
                boundary=where,
                message=str(error)[:500],
            )

    def _merged(self, job: MergeJob) -> Mapping[str, Any]:
        from coharness.evolution.merging import RULES
        from coharness.evolution.merging.lora import LoraSpec, merge_lora
        from coharness.policy.weights import read_weights

        maps = [
            self._backend.base_tensors()
            if p.weights.kind is WeightsKind.BASE
            else read_weights(self._run_dir, p.weights)
            for p in job.parents
        ]
        if self._policy.weights == "lora":
            # Both rules are the same in product space: a member's change of the base is its adapter's product.
            lora = self._policy.lora
            spec = LoraSpec(
                rank=lora.rank, alpha=lora.alpha, use_rslora=lora.use_rslora, target_modules=lora.target_modules
            )
            return merge_lora([(spec, m) for m in maps], job.weights, out_rank=lora.rank).tensors
        rule = RULES[job.rule]
        base = self._backend.base_tensors() if rule.needs_base else None
        return rule.merge(maps, job.weights, base)
