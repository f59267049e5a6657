"""The torch trainer: runs update jobs of all members of a population in one process.

Owns the members it keeps in memory and the model that they share. A job: load the member (from memory, from disk or as the base),
set its hyperparameters, update it (`update`), take the canary, publish.

Invariants: nothing non-finite is published; a job that does not end as done leaves no trace in memory or on disk; whether a
member was still in memory changes nothing but time. Driven by a job runner, one job at a time; how many threads torch uses is
up to the process's owner.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from torch import Tensor

from coharness.config.schema import PolicySection, TrainingSection
from coharness.policy.bases import LoadedBase
from coharness.policy.objectives import WeightedObjective, objectives_of
from coharness.policy.training.forward import CausalModel
from coharness.policy.training.jobs import check_job, details_of, settings_of
from coharness.policy.training.member_state import (
    MemberState,
    Residents,
    fresh_critic,
    make_member,
    set_hyperparameters,
)
from coharness.policy.training.update import Progress, Updater
from coharness.policy.training.versions import Versions
from coharness.policy.weights import DiskWeightStore
from coharness.records.errors import Boundary, BoundaryError, boundary
from coharness.records.policy import PolicyVersion, VersionRef
from coharness.records.training import JobResult, JobStatus, MergeJob, TrainJob


class TorchTrainer:
    """Trains full-weight or LoRA members of one base with PyTorch on one device."""

    def __init__(
        self,
        base: LoadedBase,
        store: DiskWeightStore,
        run_dir: Path,
        config: TrainingSection,
        policy: PolicySection,
        *,
        resident_bytes: int = 2**30,
        objectives: Mapping[str, WeightedObjective] | None = None,
    ) -> None:
        """Prepare the shared model.

        Args:
            base: Where members start and the reference of KL terms; its model is read, never changed.
            store: Where versions are published.
            run_dir: Folder that the uris of weights are relative to; the store's.
            config: Objective and its settings.
            policy: Whether members are full weights or adapters, and their shape.
            resident_bytes: Memory for members (weights and optimizer state) kept between their updates.
            objectives: Name -> what is minimised in place of what `config` names; a run has none, a judge's training has.

        Raises:
            PreflightError: the LoRA settings do not fit the base.
        """
        self._config, self._given = config, objectives
        self._versions = Versions(base, policy)
        self._versions.open(run_dir, store)
        self._skeleton = self._versions.skeleton
        self._model = CausalModel(self._skeleton.model)
        self._updater = Updater(
            model=self._model,
            reference=CausalModel(base.model),
            objectives=objectives_of(config) if objectives is None else tuple(objectives.values()),
            row_tokens=config.row_tokens,
            max_tokens=min(policy.max_context, base.spec.max_context),
            max_grad_norm=config.max_grad_norm,
            packing=config.packing,
        )
        self._residents = Residents(resident_bytes)

    def train(self, job: TrainJob, own: pa.Table, borrowed: pa.Table) -> JobResult:
        """Run one update and publish version `job.step`.

        An update whose filters leave no row publishes the start's weights unchanged. An update that meets anything non-finite
        ends as quarantined, one that fails names its boundary; both publish nothing, and the member continues from its last
        version.

        Args:
            job: What to do.
            own: Episodes of exactly `job.items`.
            borrowed: Episodes of exactly `job.borrowed`; only supervised objectives look at them.
        """
        wall, cpu = time.perf_counter(), time.process_time()
        progress, version = Progress(), None
        status, where, message = JobStatus.DONE, None, ""
        try:
            with boundary(Boundary.TRAINING):
                check_job(job, own, borrowed)
            with boundary(Boundary.WEIGHTS):
                member = self._load(job)
            with boundary(Boundary.TRAINING):
                progress = self._update(member, job, own, borrowed)
                canary = self._versions.canary(member.weights()) if not progress.problem else math.nan
                if not progress.problem and not math.isfinite(canary):
                    progress.problem = f"the canary is {canary}"
            if progress.problem:
                status, message = JobStatus.QUARANTINED, f"{job.policy} step {job.step}: {progress.problem}"
            else:
                with boundary(Boundary.WEIGHTS):
                    version = self._publish(job, member, canary, progress)
                self._residents.put(job.policy, member)
        except BoundaryError as error:
            status, where, message = JobStatus.FAILED, error.boundary, error.message
        return JobResult(
            job=job.id,
            status=status,
            version=version,
            metrics=progress.metrics(),
            num_rows=progress.num_rows,
            wall_s=time.perf_counter() - wall,
            cpu_s=time.process_time() - cpu,
            boundary=where,
            message=message,
        )

    def publish_merged(self, job: MergeJob, tensors: Mapping[str, Tensor]) -> JobResult:
        """Publish merged weights as version 0 of `job.child`, without optimizer state: its next update begins a fresh one.

        Args:
            job: The merge that made them.
            tensors: Weights by published name, of the run's kind.
        """
        wall, cpu = time.perf_counter(), time.process_time()
        result = self._versions.publish_merged(job, tensors)
        return replace(result, wall_s=time.perf_counter() - wall, cpu_s=time.process_time() - cpu)

    def close(self) -> None:
        """Nothing to end: it trains in this process."""

    def base_tensors(self) -> dict[str, Tensor]:
        """What a member that is still the base would publish: the base's parameters, or an adapter that changes nothing."""
        return self._versions.base_tensors()

    def _load(self, job: TrainJob) -> MemberState:
        """The member at the job's start: still in memory, read from disk, or the base."""
        digest = job.start.weights.digest
        member = self._residents.take(job.policy, digest)
        return self._made(*self._versions.read(job), digest) if member is None else member

    def _made(self, tensors: Mapping[str, Tensor], state: Mapping[str, Tensor] | None, digest: str) -> MemberState:
        critic = None
        if self._config.has_critic:
            critic = fresh_critic(self._skeleton.model.get_input_embeddings().weight.shape[1])  # type: ignore[operator]
        return make_member(
            tensors,
            state,
            digest=digest,
            device=self._model.device,
            critic=critic,
            critic_rate=self._config.critic.rate_scale,
            ema_decay=self._config.ema_decay,
        )

    def _update(self, member: MemberState, job: TrainJob, own: pa.Table, borrowed: pa.Table) -> Progress:
        settings = settings_of(job, self._config)
        # After loading, which brings an optimizer along that may have been another member's.
        applied = set_hyperparameters(
            member.optimizer,
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
        )
        self._skeleton.install(member.parameters)
        updater = self._updater
        if self._given is None:
            updater = replace(updater, objectives=objectives_of(self._config, settings.phase, settings.genes))
        progress = updater.run(member, own, borrowed, job.seed)
        progress.counts.update(
            {f"hyperparameter/{name}": value for name, value in {**settings.genes, **applied}.items()}
        )
        return progress

    def _publish(self, job: TrainJob, member: MemberState, canary: float, progress: Progress) -> PolicyVersion:
        ref = VersionRef(job.policy, job.step)
        phase = settings_of(job, self._config).phase
        objective = self._config.name_at(phase) if self._given is None else "+".join(self._given)
        details = details_of(job, objective, progress.num_rows)
        parents = (job.start.ref,)
        state = member.optimizer_state()
        weights = self._versions.write(ref, member.weights(), state, canary, parents, "train", details)
        member.digest = weights.digest
        return PolicyVersion(ref=ref, weights=weights, parents=parents, operator="train")
