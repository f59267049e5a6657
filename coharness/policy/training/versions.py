"""Versions of members as a trainer sees them: read from disk and checked as they will be served, published.

Reading and checking go by one *skeleton*, which shares the base's memory, so that what is published is scored as an engine that
serves it would score it. Nothing here is an exchange between processes. Driven by the trainers.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from coharness.config.schema import PolicySection
from coharness.policy.bases import LoadedBase
from coharness.policy.canary import CANARY_TOLERANCE, canary_logprob
from coharness.policy.training.lora import ADAPTER_CONFIG_FILE, adapter_config, fresh_adapter, lora_skeleton
from coharness.policy.training.member_state import Skeleton, full_skeleton
from coharness.policy.weights import DiskWeightStore, first_non_finite, read_optimizer, read_weights
from coharness.records.errors import Boundary, BoundaryError, WeightsError, boundary
from coharness.records.ids import derive_seed
from coharness.records.policy import PolicyVersion, VersionRef, WeightsKind, WeightsRef
from coharness.records.training import JobResult, JobStatus, MergeJob, TrainJob


class Versions:
    """Reads and writes versions of one base's members; `open` says in which run."""

    def __init__(self, base: LoadedBase, policy: PolicySection) -> None:
        """Make the skeleton.

        Raises:
            PreflightError: the LoRA settings do not fit the base.
        """
        self._base, self._policy = base, policy
        self._kind = WeightsKind(policy.weights)
        self.skeleton = self.new_skeleton()
        self._device = next(self.skeleton.model.parameters()).device

    def open(self, run_dir: Path, store: DiskWeightStore) -> None:
        """Serve this run from here on: where uris of weights start, and where versions are published."""
        self._run_dir, self._store = run_dir, store

    @property
    def shapes(self) -> Mapping[str, Tensor]:
        """Published names with tensors of the shape and type that are published."""
        return self.skeleton.shapes

    def new_skeleton(self) -> Skeleton:
        """A model of the run's shape that shares the base's memory."""
        is_lora = self._kind is WeightsKind.LORA
        return lora_skeleton(self._base.model, self._policy.lora) if is_lora else full_skeleton(self._base.model)

    def read(self, job: TrainJob) -> tuple[Mapping[str, Tensor], dict[str, Tensor] | None]:
        """Weights and optimizer state at the job's start, verified; a member that is still the base has fresh ones.

        Raises:
            WeightsError: the version is missing, damaged, of another kind, or of another base.
        """
        start = job.start.weights
        if start.kind is WeightsKind.BASE:
            is_lora = self._kind is WeightsKind.LORA
            fresh = fresh_adapter(self.shapes, derive_seed("adapter", job.policy, job.seed)) if is_lora else self.shapes
            return fresh, None
        if start.kind is not self._kind:
            raise WeightsError(
                f"version {job.start.ref} holds {start.kind} weights, expected {self._kind} as policy.weights says "
                "(a run directory continued with another config?)"
            )
        tensors = read_weights(self._run_dir, start)
        self.skeleton.check(tensors, f"version {job.start.ref}")
        optimizer = read_optimizer(self._run_dir, start) if start.has_optimizer else None
        scored = self.canary(tensors)
        if not abs(scored - start.canary) <= CANARY_TOLERANCE:
            raise WeightsError(
                f"version {job.start.ref} scores {scored:.6f} on the canary, expected {start.canary:.6f}; its weights are whole, "
                f"so the base is another one than it was trained on (here: {self._base.spec.name})"
            )
        return tensors, optimizer

    def canary(self, tensors: Mapping[str, Tensor]) -> float:
        """Log-probability of the canary text under these weights."""
        self.skeleton.install(
            {name: torch.nn.Parameter(t.to(self._device), requires_grad=False) for name, t in tensors.items()}
        )
        return canary_logprob(self.skeleton.model, self._base.codec)

    def write(
        self,
        ref: VersionRef,
        tensors: Mapping[str, Tensor],
        optimizer: Mapping[str, Tensor] | None,
        canary: float,
        parents: tuple[VersionRef, ...],
        operator: str,
        details: Mapping[str, object],
    ) -> WeightsRef:
        """Publish a version.

        Args:
            ref: Its name.
            tensors: Its weights by published name.
            optimizer: Its optimizer state, None where a continuation begins with a fresh one.
            canary: Their score.
            parents: What it came from.
            operator: How.
            details: What else its manifest tells.

        Raises:
            WeightsError: as `DiskWeightStore.publish`.
        """
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

    def publish_merged(self, job: MergeJob, tensors: Mapping[str, Tensor]) -> JobResult:
        """Publish merged weights as version 0 of `job.child`, without optimizer state; costs are left to the caller."""
        ref, what = VersionRef(job.child, 0), f"merge {job.rule} into {job.child}"
        try:
            with boundary(Boundary.WEIGHTS):
                self.skeleton.check(tensors, what)
                bad = first_non_finite(tensors)
                canary = math.nan if bad is not None else self.canary(tensors)
                if not math.isfinite(canary):
                    found = f"tensor {bad!r} is not finite" if bad is not None else f"the canary is {canary}"
                    return JobResult(job=job.id, status=JobStatus.QUARANTINED, message=f"{what}: {found}")
                parents = tuple(parent.ref for parent in job.parents)
                details = {"job": job.id, "rule": job.rule, "weights": list(job.weights)}
                weights = self.write(ref, tensors, None, canary, parents, "merge", details)
        except BoundaryError as error:
            return JobResult(job=job.id, status=JobStatus.FAILED, boundary=error.boundary, message=error.message)
        version = PolicyVersion(ref=ref, weights=weights, parents=parents, operator="merge")
        return JobResult(job=job.id, status=JobStatus.DONE, version=version)

    def base_tensors(self) -> dict[str, Tensor]:
        """What a member that is still the base would publish: the base's parameters, or an adapter that changes nothing."""
        return fresh_adapter(self.shapes, seed=0) if self._kind is WeightsKind.LORA else dict(self.shapes)
