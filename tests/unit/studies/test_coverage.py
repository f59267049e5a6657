from pathlib import Path

import pytest

from coharness.config.schema import RunConfig
from coharness.loop.journal import JournalWriter
from coharness.records import events as ev
from coharness.records.harness import Harness, TaskGene
from coharness.records.ids import HarnessId, JobId, PolicyId, ProposalId
from coharness.records.policy import PolicyVersion, VersionRef, WeightsKind, WeightsRef
from coharness.records.proposals import Proposal, ProposalKind, Verdict, VerdictKind
from coharness.records.training import JobResult, JobStatus, MergeJob, TrainJob
from coharness.records.work import Serving
from coharness.studies.coverage import count_run, coverage, coverage_table, known

WEIGHTS = WeightsRef(uri="", digest="d", kind=WeightsKind.BASE, num_bytes=0, has_optimizer=False, canary=0.0)
HARNESS = Harness(tasks=(TaskGene(family="parity", level_low=1, level_high=2, weight=1.0),))
BASE = PolicyVersion(ref=VersionRef(PolicyId("p0"), 0), weights=WEIGHTS, parents=(), operator="base")


def started(schedule: str = "async") -> ev.Started:
    config = RunConfig(run_dir="runs/x").model_dump(mode="json") | {"schedule": schedule}
    return ev.Started(run_id="x", seed=0, config=config, base=WEIGHTS, code_digest="c")


def opened(number: int, operator: str, kind: ProposalKind = ProposalKind.HARNESS) -> ev.Issued:
    serving = Serving(BASE.ref, HarnessId("h-1"))
    proposal = Proposal(
        id=ProposalId(number), kind=kind, operator=operator, challenger=serving, incumbent=serving, test_index=number
    )
    return ev.Issued(directive=ev.Open(proposal=proposal))


def decided(number: int, kind: VerdictKind) -> ev.Issued:
    verdict = Verdict(
        proposal=ProposalId(number), kind=kind, reason="", wins=0, losses=0, ties=0, log_evalue=0.0, level=0.1
    )
    return ev.Issued(directive=ev.Decide(verdict=verdict))


def merge(number: int) -> ev.Issued:
    job = MergeJob(id=JobId(number), child=PolicyId("p9"), rule="linear", parents=(BASE, BASE), weights=(0.5, 0.5))
    return ev.Issued(directive=ev.Merge(job=job))


def train(number: int, status: JobStatus) -> list[ev.Event]:
    job = TrainJob(id=JobId(number), start=BASE, step=1, hyperparameters={}, items=(), borrowed=(), seed=0)
    version = PolicyVersion(ref=VersionRef(PolicyId("p0"), 1), weights=WEIGHTS, parents=(), operator="train")
    result = JobResult(job=job.id, status=status, version=version if status is JobStatus.DONE else None)
    return [ev.Issued(directive=ev.Train(job=job)), ev.JobDone(result=result)]


def write_run(root: Path, name: str, events: list[ev.Event]) -> Path:
    run = root / "runs" / "studies" / "some" / name / "run"
    (run / "journal").mkdir(parents=True)
    (run / "config.yaml").touch()
    writer = JournalWriter(run / "journal", epoch=1)
    writer.append(events)
    writer.close()
    return run / "journal"


EVENTS: list[ev.Event] = [
    started(),
    ev.Issued(directive=ev.Spawn(harness=HARNESS, slot=0, operator="start", parents=())),
    opened(1, "crossover"),
    opened(2, "crossover"),
    opened(3, "mutate_hint"),
    opened(4, "null", ProposalKind.NULL),
    merge(1),
    merge(2),
    opened(5, "merge.linear", ProposalKind.MERGE),
    decided(1, VerdictKind.ACCEPTED),
    decided(2, VerdictKind.REJECTED),
    decided(3, VerdictKind.WITHDRAWN),
    decided(4, VerdictKind.REJECTED),
    decided(5, VerdictKind.REJECTED),
    *train(3, JobStatus.DONE),
    *train(4, JobStatus.QUARANTINED),
]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (("harness edit", "crossover"), (2, 1, 1)),
        (("harness edit", "mutate_hint"), (1, 0, 0)),
        (("selector", "null"), (1, 0, 1)),
        (("merge rule", "linear"), (2, 0, 1)),
        (("objective", "sft"), (2, 1, 1)),
        (("slot", "start"), (1, 1, 0)),
        (("schedule", "async"), (1, 0, 0)),
    ],
)
def test_directives_and_verdicts_are_counted(
    tmp_path: Path, key: tuple[str, str], expected: tuple[int, int, int]
) -> None:
    count = count_run(write_run(tmp_path, "a", EVENTS))[key]
    assert (count.proposed, count.accepted, count.rejected) == expected


def test_runs_add_up_and_the_one_that_exercised_most_is_named(tmp_path: Path) -> None:
    write_run(tmp_path, "a", EVENTS)
    write_run(tmp_path, "b", [started("frozen"), opened(1, "crossover"), decided(1, VerdictKind.ACCEPTED)])
    counts = coverage(tmp_path)
    crossover = counts["harness edit", "crossover"]
    assert (crossover.proposed, crossover.accepted, crossover.rejected) == (3, 2, 1)
    rows = {row[1]: row for row in coverage_table(counts).rows}
    assert rows["crossover"][-1] != rows["mutate_hint"][-1] == "some/a/run"
    assert rows["frozen"][2:] == (1, 0, 0, "some/b/run")


def test_what_nothing_exercised_is_shown_as_zero(tmp_path: Path) -> None:
    table = coverage_table(coverage(tmp_path))
    assert [row[:2] for row in table.rows] == list(known())
    assert all(row[2:] == (0, 0, 0, "–") for row in table.rows)
    names = {name for _, name in known()}
    assert {"crossover", "mutate_format", "linear", "task_arithmetic", "sft", "grpo", "exploit", "randomized"} <= names
