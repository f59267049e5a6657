"""One rank of a trainer group: runs the same jobs as the others, in step, on the engine that they share.

A job: put the member into the engine (from its snapshot, from disk or as the base), set its hyperparameters, update it, gather
it whole, and let the first rank publish. Invariants as of `torch_trainer`: nothing non-finite is published; a job that does not
end as done leaves no trace in memory or on disk; whether a member was still in memory changes nothing but time. In addition all
ranks give the same result, and what is published does not depend on stage or number of ranks but for rounding. Driven by
`deepspeed_process`.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from torch import Tensor

from coharness.config.schema import PolicySection, TrainingSection
from coharness.policy.bases import LoadedBase
from coharness.policy.objectives import objectives_of
from coharness.policy.training.deepspeed_critic import Critic, trunk_width
from coharness.policy.training.deepspeed_engine import ZeroEngine
from coharness.policy.training.deepspeed_members import Kept, Snapshots
from coharness.policy.training.deepspeed_ranks import Ranks
from coharness.policy.training.deepspeed_state import LiveState
from coharness.policy.training.deepspeed_update import ShardedUpdater
from coharness.policy.training.deepspeed_versions import Start, as_published, read_start
from coharness.policy.training.forward import CausalModel
from coharness.policy.training.jobs import check_job, details_of, settings_of
from coharness.policy.training.update import Progress
from coharness.policy.training.versions import Versions
from coharness.policy.weights import DiskWeightStore, first_non_finite
from coharness.records.codec import decode, encode
from coharness.records.errors import Boundary, BoundaryError
from coharness.records.policy import PolicyVersion, VersionRef, WeightsRef
from coharness.records.training import JobResult, JobStatus, MergeJob, TrainJob


class RankTrainer:
    """What one process of a trainer group holds; `open` says for which run."""

    def __init__(self, base: LoadedBase, policy: PolicySection, training: TrainingSection, ranks: Ranks) -> None:
        """Build the engine.

        Args:
            base: Where members start and the reference of KL terms; its model is read, never changed.
            policy: Whether members are full weights or adapters, and their shape.
            training: Its section `deepspeed` shapes the engine, for the life of this process.
            ranks: The group.

        Raises:
            PreflightError: DeepSpeed is not here, or the LoRA settings do not fit the base.
        """
        self._base, self._policy, self._ranks = base, policy, ranks
        self._versions = Versions(base, policy)
        skeleton, is_bf16 = self._versions.new_skeleton(), policy.dtype == "bfloat16"
        self._engine = ZeroEngine(skeleton, training.deepspeed, ranks, is_bf16=is_bf16)
        self._state = LiveState(self._engine, self._versions.shapes, ranks)
        self._policy_model, self._reference = CausalModel(self._engine.model), CausalModel(base.model)

    def open(self, run_dir: Path, training: TrainingSection, resident_bytes: int) -> None:
        """Serve this run from here on, with nothing remembered of an earlier one.

        Args:
            run_dir: Folder that the uris of weights are relative to.
            training: Objective and its settings; the section `deepspeed` is the one the engine was built with.
            resident_bytes: Memory of all ranks together for members kept between their updates.
        """
        self._training = training
        self._versions.open(run_dir, DiskWeightStore(run_dir))
        # Weights and two moments, all in float32.
        member_bytes = sum(3 * 4 * shape.numel() for shape in self._versions.shapes.values())
        self._kept = Snapshots(resident_bytes, member_bytes)
        self._critic: Critic | None = None
        if training.has_critic:
            self._critic = Critic(trunk_width(self._base.model), training.critic.rate_scale, self._ranks)

    def train(self, job: TrainJob, own: pa.Table, borrowed: pa.Table) -> JobResult:
        """Run one update and publish version `job.step`; costs are left to the caller."""
        progress, version = Progress(), None
        status, where, message = JobStatus.DONE, None, ""
        try:
            with self._ranks.together(Boundary.TRAINING):
                check_job(job, own, borrowed)
            self._load(job)
            progress, tensors, moments = self._update(job, own, borrowed)
            canary = self._canary(tensors) if not progress.problem else math.nan
            if not progress.problem and not math.isfinite(canary):
                progress.problem = f"the canary is {canary}"
            if progress.problem:
                status, message = JobStatus.QUARANTINED, f"{job.policy} step {job.step}: {progress.problem}"
            else:
                version = self._publish(job, tensors, moments, canary, progress)
                self._kept.put(job.policy, version.weights.digest, self._snapshot())
        except BoundaryError as error:
            status, where, message = JobStatus.FAILED, error.boundary, error.message
        return JobResult(
            job=job.id,
            status=status,
            version=version,
            metrics=progress.metrics(),
            num_rows=progress.num_rows,
            boundary=where,
            message=message,
        )

    def publish_merged(self, job: MergeJob, tensors: Mapping[str, Tensor]) -> JobResult:
        """Publish merged weights; asked of the first rank alone, since the engine takes no part."""
        return self._versions.publish_merged(job, tensors)

    def base_tensors(self) -> dict[str, Tensor]:
        """What a member that is still the base would publish."""
        return self._versions.base_tensors()

    def _load(self, job: TrainJob) -> None:
        """Put the member at the job's start into the engine."""
        snapshot = self._kept.take(job.policy, job.start.weights.digest)
        if snapshot is not None:
            self._state.restore(snapshot.engine)
            if self._critic is not None:
                self._critic.write(snapshot.critic)
            return
        start: Start | None = None
        with self._ranks.together(Boundary.WEIGHTS):
            start = read_start(self._versions, job, self._critic)
        assert start is not None
        self._state.write(start.masters, start.moments)
        if self._critic is not None:
            self._critic.write(start.critic)

    def _snapshot(self) -> Kept:
        critic = {} if self._critic is None else self._critic.state()
        return Kept(engine=self._state.snapshot(), critic=critic)

    def _update(
        self, job: TrainJob, own: pa.Table, borrowed: pa.Table
    ) -> tuple[Progress, dict[str, Tensor], dict[str, Tensor] | None]:
        """Train, and gather what came of it: weights and optimizer state as they are published."""
        training = self._training
        settings = settings_of(job, training)
        # After loading, which brings an optimizer along that may have been another member's.
        rates = {"learning_rate": settings.learning_rate, "weight_decay": settings.weight_decay}
        applied = self._engine.set_hyperparameters(**rates, max_grad_norm=training.max_grad_norm)
        if self._critic is not None:
            self._critic.set_hyperparameters(**rates)
        updater = ShardedUpdater(
            engine=self._engine,
            policy=self._policy_model,
            reference=self._reference,
            critic=self._critic,
            ranks=self._ranks,
            objectives=objectives_of(training, settings.phase, settings.genes),
            row_tokens=training.row_tokens,
            max_tokens=min(self._policy.max_context, self._base.spec.max_context),
            max_grad_norm=training.max_grad_norm,
            packing=training.packing,
        )
        progress = updater.run(own, borrowed, job.seed)
        progress.counts.update(
            {f"hyperparameter/{name}": value for name, value in {**settings.genes, **applied}.items()}
        )
        if progress.problem:
            return progress, {}, None
        masters, moments = self._state.read()
        critic = {} if self._critic is None else self._critic.state()
        if (bad := first_non_finite({**masters, **critic})) is not None:
            progress.problem = f"tensor {bad!r} is not finite after the update"
        return progress, *as_published(self._versions.shapes, masters, moments, critic)

    def _publish(
        self,
        job: TrainJob,
        tensors: Mapping[str, Tensor],
        moments: Mapping[str, Tensor] | None,
        canary: float,
        progress: Progress,
    ) -> PolicyVersion:
        """Let the first rank write the version, and tell the others."""
        ref, parents = VersionRef(job.policy, job.step), (job.start.ref,)
        objective = self._training.name_at(settings_of(job, self._training).phase)
        details = details_of(job, objective, progress.num_rows)
        weights: WeightsRef | None = None
        with self._ranks.together(Boundary.WEIGHTS):
            if self._ranks.is_first:
                weights = self._versions.write(ref, tensors, moments, canary, parents, "train", details)
        told = self._ranks.gather(None if weights is None else encode(WeightsRef, weights))[0]
        published: WeightsRef = decode(WeightsRef, told)
        return PolicyVersion(ref=ref, weights=published, parents=parents, operator="train")

    def _canary(self, tensors: Mapping[str, Tensor]) -> float:
        """The first rank's reading of the canary, on all."""
        told = self._ranks.gather(self._versions.canary(tensors) if self._ranks.is_first else None)
        return float(told[0])
