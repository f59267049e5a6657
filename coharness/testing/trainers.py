"""Conformance suite of training backends: what every trainer owes the loop, whatever it computes with.

A backend's test builds a `TrainerCase` in an empty folder and runs each check of `TRAINER_CHECKS` on a fresh one. The checks go
by the published files alone.
"""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from coharness.policy.weights import read_optimizer, read_weights, tensor_digest
from coharness.records.errors import Boundary
from coharness.records.ids import JobId, PolicyId
from coharness.records.policy import PolicyVersion, VersionRef, WeightsRef
from coharness.records.protocols import TextCodec
from coharness.records.training import JobResult, JobStatus, MergeJob, TrainJob
from coharness.records.work import Purpose
from coharness.testing.toy_training import base_version, toy_episodes, toy_job

_CONTINUATION_TOLERANCE: Final = 1e-6


class MemberTrainer(Protocol):
    """A training backend as a job runner sees it."""

    def train(self, job: TrainJob, own: pa.Table, borrowed: pa.Table) -> JobResult:
        """Run one update and publish the new version."""
        ...

    def publish_merged(self, job: MergeJob, tensors: Mapping[str, Any]) -> JobResult:
        """Publish merged weights as version 0 of the job's child."""
        ...

    def base_tensors(self) -> Mapping[str, Any]:
        """What a member that is still the base would publish."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerCase:
    """One backend under test."""

    run_dir: Path
    base: WeightsRef
    codec: TextCodec
    make: Callable[[], MemberTrainer]
    "A new trainer on the same run directory, as after a restart: nothing of an earlier one is in its memory."
    group_size: int
    "Episodes a group; 2 or more where the objective compares episodes."


def _train(
    case: TrainerCase,
    trainer: MemberTrainer,
    start: PolicyVersion,
    *,
    step: int,
    learning_rate: float = 1e-3,
    purpose: Purpose = Purpose.TRAIN,
) -> JobResult:
    items = range(100 * step, 100 * step + 12)
    own = toy_episodes(case.codec, items, group_size=case.group_size, seed=step, purpose=purpose)
    job = toy_job(start, items, step=step, learning_rate=learning_rate)
    return trainer.train(job, own, own.slice(0, 0))


def _version(result: JobResult) -> PolicyVersion:
    assert result.status is JobStatus.DONE, result
    assert result.version is not None
    return result.version


def _weights(case: TrainerCase, version: PolicyVersion) -> dict[str, Any]:
    return dict(read_weights(case.run_dir, version.weights))


def _distance(left: Mapping[str, Any], right: Mapping[str, Any]) -> float:
    assert set(left) == set(right)
    return max(float((left[name] - right[name]).abs().max()) for name in left)


def _check_same(case: TrainerCase, left: PolicyVersion, right: PolicyVersion) -> None:
    """Two versions hold the same weights and optimizer state."""
    assert _distance(_weights(case, left), _weights(case, right)) <= _CONTINUATION_TOLERANCE
    moments = [read_optimizer(case.run_dir, version.weights) for version in (left, right)]
    assert _distance(*moments) <= _CONTINUATION_TOLERANCE


def _folders(case: TrainerCase) -> list[str]:
    return sorted(p.relative_to(case.run_dir).as_posix() for p in case.run_dir.glob("weights/*/*"))


def an_update_publishes_a_version_that_reads_back(case: TrainerCase) -> None:
    """The result names the version, its parent, its cost, and weights that are on disk as it says."""
    result = _train(case, case.make(), base_version(case.base), step=1)
    version = _version(result)
    assert version.ref == VersionRef(PolicyId("p0"), 1)
    assert version.parents == (VersionRef(PolicyId("p0"), 0),)
    assert tensor_digest(_weights(case, version)) == version.weights.digest
    assert version.weights.has_optimizer
    assert read_optimizer(case.run_dir, version.weights)
    assert result.num_rows > 0
    assert result.wall_s > 0
    assert pickle.loads(pickle.dumps(result)) == result


def versions_follow_each_other(case: TrainerCase) -> None:
    """Each update moves the weights and leaves the earlier version as it was."""
    trainer = case.make()
    first = _version(_train(case, trainer, base_version(case.base), step=1))
    before = _weights(case, first)
    second = _version(_train(case, trainer, first, step=2))
    assert second.weights.digest != first.weights.digest
    assert _distance(before, _weights(case, first)) == 0.0


def a_restart_changes_nothing(case: TrainerCase) -> None:
    """A trainer that reads a member from disk continues as the one that had it in memory: optimizer state is restored."""
    stayed = case.make()
    first = _version(_train(case, stayed, base_version(case.base), step=1))
    second = _version(_train(case, stayed, first, step=2))
    clone = replace(
        first, ref=VersionRef(PolicyId("p7"), 0)
    )  # trained under a name of its own, so nothing is overwritten
    restarted = _version(_train(case, case.make(), clone, step=2))
    assert _distance(_weights(case, second), _weights(case, restarted)) <= _CONTINUATION_TOLERANCE
    assert (
        _distance(read_optimizer(case.run_dir, second.weights), read_optimizer(case.run_dir, restarted.weights))
        <= _CONTINUATION_TOLERANCE
    )


def a_member_in_memory_is_used_only_for_its_own_version(case: TrainerCase) -> None:
    """Training from an older version goes back to that version's weights and optimizer state."""
    trainer = case.make()
    first = _version(_train(case, trainer, base_version(case.base), step=1))
    second = _version(_train(case, trainer, first, step=2))
    again = _version(_train(case, trainer, replace(first, ref=VersionRef(PolicyId("p0"), 1)), step=3))
    assert again.parents == (first.ref,)
    fresh = _version(_train(case, case.make(), replace(first, ref=VersionRef(PolicyId("p8"), 0)), step=3))
    assert _distance(_weights(case, again), _weights(case, fresh)) <= _CONTINUATION_TOLERANCE
    assert second.weights.digest != again.weights.digest


def members_take_turns_as_if_each_were_alone(case: TrainerCase) -> None:
    """Updates of one member leave no trace in another: neither its weights, nor its optimizer state, nor its hyperparameters."""
    maker = case.make()
    starts = [
        _version(_train(case, maker, base_version(case.base, name), step=1, learning_rate=rate))
        for name, rate in (("p0", 1e-3), ("p1", 3e-3))
    ]

    def updates(trainers: Mapping[int, MemberTrainer], name: str) -> dict[int, PolicyVersion]:
        """Two more of each of these members, by turns; the name keeps what is published apart."""
        ends = {m: replace(starts[m], ref=VersionRef(PolicyId(f"{name}{m}"), 1)) for m in trainers}
        for step in (2, 3):
            for member, trainer in trainers.items():
                done = _train(case, trainer, ends[member], step=step, learning_rate=(1e-3, 3e-3)[member])
                ends[member] = _version(done)
        return ends

    shared = case.make()
    in_turns = updates({0: shared, 1: shared}, "turns")
    for member in (0, 1):
        alone = updates({member: case.make()}, "alone")[member]
        _check_same(case, in_turns[member], alone)


def what_is_read_from_disk_replaces_all_that_was_there(case: TrainerCase) -> None:
    """A trainer that has worked on other members reads a version as a new trainer does."""
    first = _version(_train(case, case.make(), base_version(case.base), step=1))
    used = case.make()
    other = _version(_train(case, used, base_version(case.base, "p3"), step=1, learning_rate=1e-2))
    _version(_train(case, used, other, step=2, learning_rate=1e-2))
    ends = [
        _version(_train(case, trainer, replace(first, ref=VersionRef(PolicyId(name), 0)), step=2))
        for trainer, name in ((used, "p4"), (case.make(), "p5"))
    ]
    _check_same(case, *ends)


def hyperparameters_are_the_jobs(case: TrainerCase) -> None:
    """A clone takes the donor's optimizer state and its own learning rate."""
    trainer = case.make()
    first = _version(_train(case, trainer, base_version(case.base), step=1, learning_rate=1e-3))
    clone = replace(first, ref=VersionRef(PolicyId("p5"), 0), operator="clone")
    result = _train(case, trainer, clone, step=2, learning_rate=1e-5)
    assert result.metrics["hyperparameter/learning_rate"] == 1e-5
    small = _distance(_weights(case, first), _weights(case, _version(result)))
    large = _distance(_weights(case, first), _weights(case, _version(_train(case, trainer, first, step=2))))
    # A running mean that is published goes on towards where the weights are already.
    assert 0 < small < large / 4


def a_non_finite_update_is_quarantined(case: TrainerCase) -> None:
    """Nothing is published, and the member continues from its last version as if nothing had happened."""
    trainer = case.make()
    first = _version(_train(case, trainer, base_version(case.base), step=1))
    result = _train(case, trainer, first, step=2, learning_rate=1e39)
    assert result.status is JobStatus.QUARANTINED
    assert result.version is None
    assert result.message
    assert _folders(case) == ["weights/p0/v1"]
    after = _version(_train(case, trainer, first, step=3))
    fresh = _version(_train(case, case.make(), replace(first, ref=VersionRef(PolicyId("p8"), 0)), step=3))
    assert _distance(_weights(case, after), _weights(case, fresh)) <= _CONTINUATION_TOLERANCE


def episodes_that_are_not_the_jobs_are_refused(case: TrainerCase) -> None:
    """Missing groups, groups nobody asked for, and episodes drawn for evaluation fail the job at TRAINING."""
    trainer, start = case.make(), base_version(case.base)
    table = toy_episodes(case.codec, range(4), group_size=case.group_size)
    for job in (toy_job(start, range(5), step=1), toy_job(start, range(3), step=1)):
        result = trainer.train(job, table, table.slice(0, 0))
        assert (result.status, result.boundary) == (JobStatus.FAILED, Boundary.TRAINING)
    result = _train(case, trainer, start, step=1, purpose=Purpose.GATE)
    assert (result.status, result.boundary) == (JobStatus.FAILED, Boundary.TRAINING)
    assert "gate" in result.message
    assert _folders(case) == []


def absent_weights_fail_at_their_boundary(case: TrainerCase) -> None:
    """A start whose folder is gone is a failure of WEIGHTS, named with its path."""
    first = _version(_train(case, case.make(), base_version(case.base), step=1))
    gone = replace(first, weights=replace(first.weights, uri="weights/p0/v9"))
    result = _train(case, case.make(), gone, step=2)
    assert (result.status, result.boundary) == (JobStatus.FAILED, Boundary.WEIGHTS)
    assert "weights/p0/v9" in result.message


def a_merge_is_published_without_optimizer_state(case: TrainerCase) -> None:
    """Merged weights become version 0 of the child, which can be trained on."""
    trainer = case.make()
    first = _version(_train(case, trainer, base_version(case.base), step=1))
    second = _version(_train(case, trainer, first, step=2))
    merged = {n: (t + _weights(case, second)[n]) / 2 for n, t in _weights(case, first).items()}
    version = _version(trainer.publish_merged(_merge_job(first, second), merged))
    assert version.ref == VersionRef(PolicyId("p9"), 0)
    assert version.parents == (first.ref, second.ref)
    assert not version.weights.has_optimizer
    assert _distance(_weights(case, version), merged) == 0.0
    _version(_train(case, trainer, version, step=1))


def the_base_can_be_merged_like_a_member(case: TrainerCase) -> None:
    """Its tensors have the names and shapes of published ones, and as a version they compute what the base computes."""
    trainer = case.make()
    first = _version(_train(case, trainer, base_version(case.base), step=1, learning_rate=3e-2))
    tensors = trainer.base_tensors()
    assert {n: t.shape for n, t in tensors.items()} == {n: t.shape for n, t in _weights(case, first).items()}
    version = _version(trainer.publish_merged(_merge_job(first), tensors))
    assert abs(version.weights.canary - case.base.canary) < 1e-3 < abs(first.weights.canary - case.base.canary)


def a_bad_merge_is_not_published(case: TrainerCase) -> None:
    """Non-finite weights are quarantined, weights of another shape fail; neither leaves a folder."""
    trainer = case.make()
    first = _version(_train(case, trainer, base_version(case.base), step=1))
    weights, job = _weights(case, first), _merge_job(first, first)
    name = min(weights)
    result = trainer.publish_merged(job, {**weights, name: weights[name] * float("nan")})
    assert result.status is JobStatus.QUARANTINED
    assert name in result.message
    result = trainer.publish_merged(job, {n: t for n, t in weights.items() if n != name})
    assert (result.status, result.boundary) == (JobStatus.FAILED, Boundary.WEIGHTS)
    assert name in result.message
    assert _folders(case) == ["weights/p0/v1"]


def a_published_version_is_never_overwritten(case: TrainerCase) -> None:
    """A job that would publish other weights under a name that is taken fails."""
    trainer = case.make()
    first = _version(_train(case, trainer, base_version(case.base), step=1))
    result = _train(case, case.make(), base_version(case.base), step=1, learning_rate=3e-3)
    assert (result.status, result.boundary) == (JobStatus.FAILED, Boundary.WEIGHTS)
    assert tensor_digest(_weights(case, first)) == first.weights.digest


def _merge_job(*parents: PolicyVersion) -> MergeJob:
    return MergeJob(
        id=JobId(77), child=PolicyId("p9"), rule="linear", parents=parents, weights=tuple(0.5 for _ in parents)
    )


TRAINER_CHECKS: Final[Mapping[str, Callable[[TrainerCase], None]]] = {
    check.__name__: check
    for check in (
        an_update_publishes_a_version_that_reads_back,
        versions_follow_each_other,
        a_restart_changes_nothing,
        a_member_in_memory_is_used_only_for_its_own_version,
        members_take_turns_as_if_each_were_alone,
        what_is_read_from_disk_replaces_all_that_was_there,
        hyperparameters_are_the_jobs,
        a_non_finite_update_is_quarantined,
        episodes_that_are_not_the_jobs_are_refused,
        absent_weights_fail_at_their_boundary,
        a_merge_is_published_without_optimizer_state,
        the_base_can_be_merged_like_a_member,
        a_bad_merge_is_not_published,
        a_published_version_is_never_overwritten,
    )
}
"""Name -> check; each takes a fresh case and raises AssertionError where the trainer breaks the rule."""
