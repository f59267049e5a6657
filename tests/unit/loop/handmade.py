"""A core driven by hand: events are told one by one, so that a test says exactly what has happened so far."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from coharness.loop.build import run_sources
from coharness.loop.core import Evolution
from coharness.records import events as ev
from coharness.records.errors import Boundary
from coharness.records.ids import JobId, PolicyId
from coharness.records.policy import PolicyVersion, VersionRef, WeightsKind, WeightsRef
from coharness.records.proposals import Proposal, ProposalKind, Verdict, VerdictKind
from coharness.records.training import JobResult, JobStatus, TrainJob
from coharness.records.work import BatchResult, Outcome, OutcomeStatus, WorkItem
from coharness.testing.runs import simulated_config
from coharness.testing.simulated import SIMULATED_BASE


def begun(run_dir: Path, **sections: Any) -> Evolution:
    """A core after its start, with the initial harness in one slot and the base as champion."""
    config = simulated_config(run_dir, **sections)
    core = Evolution(config, run_sources(config))
    core.tell(ev.Started(run_id="run", seed=config.seed, config={}, base=SIMULATED_BASE, code_digest=""))
    issue(core, ev.Spawn(harness=core.context.h0, slot=0, operator="start", parents=()))
    return core


def issue(core: Evolution, directive: ev.Directive) -> None:
    """Record a directive as the engine would."""
    core.tell(ev.Issued(directive=directive))


def weights(name: str) -> WeightsRef:
    """Weights of their own content."""
    return WeightsRef(
        uri=f"weights/{name}", digest=name, kind=WeightsKind.FULL, num_bytes=1, has_optimizer=False, canary=0.0
    )


def publish(core: Evolution, policy: str) -> VersionRef:
    """Train a member once, on no groups."""
    member = core.state.member(PolicyId(policy))
    assert member is not None
    step = member.head.ref.step + 1
    job = TrainJob(
        id=JobId(core.state.next_job), start=member.head, step=step, hyperparameters={}, items=(), borrowed=(), seed=0
    )
    issue(core, ev.Train(job=job))
    ref = VersionRef(PolicyId(policy), step)
    version = PolicyVersion(ref=ref, weights=weights(f"{policy}-{step}"), parents=(member.head.ref,), operator="train")
    core.tell(ev.JobDone(result=JobResult(job=job.id, status=JobStatus.DONE, version=version)))
    return ref


def open_test(core: Evolution, kind: ProposalKind, **fields: Any) -> Proposal:
    """Open the test of a proposal."""
    proposal = Proposal(id=core.state.next_proposal, kind=kind, operator=kind.value, **fields)  # type: ignore[arg-type]
    issue(core, ev.Open(proposal=proposal))
    return proposal


def decide(core: Evolution, proposal: Proposal, kind: VerdictKind) -> None:
    """End a test, whatever its evidence."""
    verdict = Verdict(
        proposal=proposal.id, kind=kind, reason="by hand", wins=0, losses=0, ties=0, log_evalue=0.0, level=0.0
    )
    issue(core, ev.Decide(verdict=verdict))


def ended(items: Iterable[WorkItem], correct: Callable[[WorkItem], bool | None]) -> ev.BatchDone:
    """A batch in which each item is correct, is not, or (None) failed."""
    outcomes = []
    for item in items:
        is_correct = correct(item)
        if is_correct is None:
            outcomes.append(Outcome(item=item.id, status=OutcomeStatus.FAILED, boundary=Boundary.WORKER))
        else:
            outcomes.append(
                Outcome(item=item.id, status=OutcomeStatus.DONE, num_correct=int(is_correct), scores=(0.0,))
            )
    return ev.BatchDone(result=BatchResult(batch=0, worker="hand", outcomes=tuple(outcomes), wall_s=0.0, cpu_s=0.0))
