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
from typing import Final, get_args

import pyarrow as pa
import torch
from torch import Tensor

from coharness.config.schema import PolicySection, TrainingSection
from coharness.config.training import GeneName
from coharness.policy.bases import LoadedBase
from coharness.policy.canary import CANARY_TOLERANCE, canary_logprob
from coharness.policy.objectives import objectives_of
from coharness.policy.training.forward import CausalModel
from coharness.policy.training.lora import ADAPTER_CONFIG_FILE, adapter_config, fresh_adapter, lora_skeleton
from coharness.policy.training.member_state import (
    MemberState,
    Residents,
    fresh_critic,
    full_skeleton,
    make_member,
    set_hyperparameters,
)
from coharness.policy.training.update import Progress, Updater
from coharness.policy.weights import DiskWeightStore, first_non_finite, read_optimizer, read_weights
from coharness.records.errors import Boundary, BoundaryError, WeightsError, boundary
from coharness.records.ids import derive_seed
from coharness.records.policy import PolicyVersion, VersionRef, WeightsKind, WeightsRef
from coharness.records.training import JobResult, JobStatus, MergeJob, TrainJob
from coharness.records.work import Purpose

_HYPERPARAMETERS: Final = frozenset({"learning_rate", "weight_decay", "temperature", "phase", *get_args(GeneName)})
"""Temperature is applied where episodes are drawn and comes back with their rows; `phase` is a place in `training.schedule`."""


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
    ) -> None:
        """Prepare the shared model.

        Args:
            base: Where members start and the reference of KL terms; its model is read, never changed.
            store: Where versions are published.
            run_dir: Folder that the uris of weights are relative to; the store's.
            config: Objective and its settings.
            policy: Whether members are full weights or adapters, and their shape.
            resident_bytes: Memory for members (weights and optimizer state) kept between their updates.

        Raises:
            PreflightError: the LoRA settings do not fit the base.
        """
        self._base, self._store, self._run_dir = base, store, run_dir
        self._config, self._policy = config, policy
        self._kind = WeightsKind(policy.weights)
        is_lora = self._kind is WeightsKind.LORA
        self._skeleton = lora_skeleton(base.model, policy.lora) if is_lora else full_skeleton(base.model)
        self._model = CausalModel(self._skeleton.model)
        self._updater = Updater(
            model=self._model,
            reference=CausalModel(base.model),
            objectives=objectives_of(config),
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
                _check_episodes(own, job.items, "own")
                _check_episodes(borrowed, job.borrowed, "borrowed")
            with boundary(Boundary.WEIGHTS):
                member = self._load(job)
            with boundary(Boundary.TRAINING):
                progress = self._update(member, job, own, borrowed)
                canary = self._canary(member.weights()) if not progress.problem else math.nan
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
        ref = VersionRef(job.child, 0)
        version, status, where, message = None, JobStatus.DONE, None, ""
        try:
            with boundary(Boundary.WEIGHTS):
                self._skeleton.check(tensors, f"merge {job.rule} into {job.child}")
                bad = first_non_finite(tensors)
                canary = math.nan if bad is not None else self._canary(tensors)
                if not math.isfinite(canary):
                    found = f"tensor {bad!r} is not finite" if bad is not None else f"the canary is {canary}"
                    status, message = JobStatus.QUARANTINED, f"merge {job.rule} into {job.child}: {found}"
                else:
                    parents = tuple(parent.ref for parent in job.parents)
                    details = {"job": job.id, "rule": job.rule, "weights": list(job.weights)}
                    weights = self._write(ref, tensors, None, canary, parents, "merge", details)
                    version = PolicyVersion(ref=ref, weights=weights, parents=parents, operator="merge")
        except BoundaryError as error:
            status, where, message = JobStatus.FAILED, error.boundary, error.message
        return JobResult(
            job=job.id,
            status=status,
            version=version,
            wall_s=time.perf_counter() - wall,
            cpu_s=time.process_time() - cpu,
            boundary=where,
            message=message,
        )

    def close(self) -> None:
        """Nothing to end: it trains in this process."""

    def base_tensors(self) -> dict[str, Tensor]:
        """What a member that is still the base would publish: the base's parameters, or an adapter that changes nothing."""
        shapes = self._skeleton.shapes
        return fresh_adapter(shapes, seed=0) if self._kind is WeightsKind.LORA else dict(shapes)

    def _load(self, job: TrainJob) -> MemberState:
        """The member at the job's start: still in memory, read from disk, or the base."""
        start = job.start.weights
        member = self._residents.take(job.policy, start.digest)
        if member is not None:
            return member
        if start.kind is WeightsKind.BASE:
            shapes = self._skeleton.shapes
            is_lora = self._kind is WeightsKind.LORA
            fresh = fresh_adapter(shapes, derive_seed("adapter", job.policy, job.seed)) if is_lora else shapes
            return self._made(fresh, None, start.digest)
        if start.kind is not self._kind:
            raise WeightsError(
                f"version {job.start.ref} holds {start.kind} weights, expected {self._kind} as policy.weights says "
                "(a run directory continued with another config?)"
            )
        tensors = read_weights(self._run_dir, start)
        self._skeleton.check(tensors, f"version {job.start.ref}")
        state = read_optimizer(self._run_dir, start) if start.has_optimizer else None
        member = self._made(tensors, state, start.digest)
        canary = self._canary(member.weights())
        if not abs(canary - start.canary) <= CANARY_TOLERANCE:
            raise WeightsError(
                f"version {job.start.ref} scores {canary:.6f} on the canary, expected {start.canary:.6f}; its weights are whole, "
                f"so the base is another one than it was trained on (here: {self._base.spec.name})"
            )
        return member

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
        if unknown := set(job.hyperparameters) - _HYPERPARAMETERS:
            raise ValueError(
                f"this trainer applies no hyperparameter {min(unknown)!r}; expected {', '.join(sorted(_HYPERPARAMETERS))}"
            )
        phase = int(job.hyperparameters.get("phase", len(self._config.schedule)))
        genes = {name: value for name, value in job.hyperparameters.items() if name in get_args(GeneName)}
        # After loading, which brings an optimizer along that may have been another member's.
        applied = set_hyperparameters(
            member.optimizer,
            learning_rate=job.hyperparameters.get("learning_rate", self._config.initial_learning_rate)
            * self._config.rate_scale(phase),
            weight_decay=job.hyperparameters.get("weight_decay", self._config.weight_decay),
        )
        self._skeleton.install(member.parameters)
        updater = replace(self._updater, objectives=objectives_of(self._config, phase, genes))
        progress = updater.run(member, own, borrowed, job.seed)
        progress.counts.update({f"hyperparameter/{name}": value for name, value in {**genes, **applied}.items()})
        return progress

    def _canary(self, tensors: Mapping[str, Tensor]) -> float:
        """Log-probability of the canary text under these weights."""
        device = self._model.device
        self._skeleton.install(
            {name: torch.nn.Parameter(t.to(device), requires_grad=False) for name, t in tensors.items()}
        )
        return canary_logprob(self._skeleton.model, self._base.codec)

    def _publish(self, job: TrainJob, member: MemberState, canary: float, progress: Progress) -> PolicyVersion:
        ref = VersionRef(job.policy, job.step)
        details = {
            "job": job.id,
            "objective": self._config.name_at(int(job.hyperparameters.get("phase", len(self._config.schedule)))),
            "hyperparameters": dict(job.hyperparameters),
            "num_rows": progress.num_rows,
        }
        parents = (job.start.ref,)
        weights = self._write(ref, member.weights(), member.optimizer_state(), canary, parents, "train", details)
        member.digest = weights.digest
        return PolicyVersion(ref=ref, weights=weights, parents=parents, operator="train")

    def _write(
        self,
        ref: VersionRef,
        tensors: Mapping[str, Tensor],
        optimizer: Mapping[str, Tensor] | None,
        canary: float,
        parents: tuple[VersionRef, ...],
        operator: str,
        details: Mapping[str, object],
    ) -> WeightsRef:
        texts = {}
        if self._kind is WeightsKind.LORA:
            texts[ADAPTER_CONFIG_FILE] = adapter_config(self._policy.lora, str(self._base.spec.path))
        manifest = {
            "base": self._base.spec.name,
            "base_digest": self._base.spec.digest,
            "operator": operator,
            "parents": [str(parent) for parent in parents],
            **details,
        }
        return self._store.publish(ref, tensors, self._kind, optimizer, canary, manifest, texts)


def _check_episodes(table: pa.Table, items: tuple[int, ...], which: str) -> None:
    """Accept the episodes of exactly these items, all drawn for training."""
    got, expected = set(table.column("item").to_pylist()), set(items)
    if got != expected:
        raise ValueError(
            f"the {which} episodes are of other items than the job's: {len(expected - got)} missing "
            f"{sorted(expected - got)[:5]}, {len(got - expected)} not asked for {sorted(got - expected)[:5]}"
        )
    purposes = set(table.column("purpose").to_pylist()) - {Purpose.TRAIN.value}
    if purposes:
        raise ValueError(
            f"the {which} episodes were drawn for {min(purposes)}; only those drawn for training may be trained on"
        )
