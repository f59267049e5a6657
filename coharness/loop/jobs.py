"""Runs jobs of a trainer process: updates through the training backend, merges through `evolution.merging`, judge repairs."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from coharness.config.schema import PolicySection
from coharness.records.errors import Boundary, BoundaryError, CoharnessError, boundary
from coharness.records.ids import derive_seed
from coharness.records.policy import PolicyVersion, WeightsKind
from coharness.records.protocols import ReplayStore
from coharness.records.training import Job, JobResult, JobStatus, MergeJob, RepairJob, TrainJob

if TYPE_CHECKING:
    import pyarrow as pa

    from coharness.loop.repairing import JudgeRepairer


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

    def close(self) -> None:
        """End the processes that it started."""
        ...


class JobRunner:
    """Runs one job at a time; a failure becomes the job's result."""

    def __init__(
        self,
        run_dir: Path,
        policy: PolicySection,
        backend: TrainingBackend,
        replay: ReplayStore,
        repairer: "JudgeRepairer | None" = None,
    ) -> None:
        self._run_dir = run_dir
        self._policy = policy
        self._backend = backend
        self._replay = replay
        self._repairer = repairer

    def close(self) -> None:
        """End the processes that the backend started."""
        self._backend.close()

    def run(self, job: Job) -> JobResult:
        """The end of the job."""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            if isinstance(job, TrainJob):
                with boundary(Boundary.REPLAY):
                    own, borrowed = self._replay.fetch(job.items), self._replay.fetch(job.borrowed)
                return self._backend.train(job, own, borrowed)
            if isinstance(job, RepairJob):
                result = self._repaired(job)
                return replace(result, wall_s=time.perf_counter() - wall, cpu_s=time.process_time() - cpu)
            with boundary(Boundary.TRAINING):
                tensors, metrics = self._merged(job)
                result = self._backend.publish_merged(job, tensors)
            return replace(result, metrics={**result.metrics, **metrics})
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

    def _repaired(self, job: RepairJob) -> JobResult:
        with boundary(Boundary.REPLAY):
            episodes = self._replay.fetch(job.items)
        with boundary(Boundary.TRAINING):
            if self._repairer is None:
                raise ValueError(f"job {job.id} mends the judge {job.judge}, and this trainer has no judge to mend")
            return self._repairer.run(job, episodes)

    def _merged(self, job: MergeJob) -> tuple[Mapping[str, Any], Mapping[str, float]]:
        """The child's tensors, and what the merge has to say of itself."""
        from coharness.evolution.merging import RULES, LoraSpec, RankPolicy, Statistics, merge_lora_by
        from coharness.policy.weights import read_weights

        maps = [
            self._backend.base_tensors()
            if p.weights.kind is WeightsKind.BASE
            else read_weights(self._run_dir, p.weights)
            for p in job.parents
        ]
        rule = RULES[job.rule]
        rule.check_count(len(maps))
        # Another merge draws other masks and layers; the same job, run again after a crash, the same.
        settings: dict[str, Any] = {"seed": derive_seed("merge", job.child, job.id)} if rule.is_random else {}
        if self._policy.weights == "lora":
            lora = self._policy.lora
            spec = LoraSpec(
                rank=lora.rank, alpha=lora.alpha, use_rslora=lora.use_rslora, target_modules=lora.target_modules
            )
            # All members of a run have one rank, so what does not fit is cut off and reported.
            found = merge_lora_by(
                rule, [(spec, m) for m in maps], job.weights, RankPolicy(rank=lora.rank), settings=settings
            )
            return found.merge.tensors, {"merge/tail_energy": max(found.merge.tail_energy.values(), default=0.0)}
        if rule.statistics is Statistics.FISHER:
            settings["statistics"] = [self._second_moments(p, m) for p, m in zip(job.parents, maps, strict=True)]
        base = self._backend.base_tensors() if rule.takes_base else None
        return rule.configured(settings)(maps, job.weights, base), {}

    def _second_moments(self, parent: PolicyVersion, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        """The optimizer's running mean of squared gradients: a diagonal Fisher information that costs nothing."""
        from coharness.policy.weights import read_optimizer

        if not parent.weights.has_optimizer:
            raise ValueError(
                f"{parent.ref} has no optimizer state to estimate its Fisher information from; expected a parent that was "
                "trained since it was made (or another evolution.merge_rule)"
            )
        state = read_optimizer(self._run_dir, parent.weights)
        return {name: state[f"exp_avg_sq.{name}"] for name in tensors}
