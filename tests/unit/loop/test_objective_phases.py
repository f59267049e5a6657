"""Rules of objectives that follow each other: a phase is counted along a member's line of clones, and decides what it borrows."""

from pathlib import Path

from coharness.loop.journal import read_frames
from coharness.loop.stage import is_closing
from coharness.records import events as ev
from coharness.records.ids import PolicyId
from coharness.records.policy import VersionRef
from coharness.testing.runs import simulated_run
from tests.unit.loop.handmade import begun, issue, publish

SCHEDULE = [{"objective": "sft", "updates": 4}, {"objective": "dpo", "updates": 3}]


def test_jobs_are_told_the_phase_of_their_line_and_gradients_borrow_nothing(tmp_path: Path) -> None:
    run, _ = simulated_run(
        tmp_path / "run",
        budget={"rollouts": 3_000},
        training={"objective": "grpo", "group_size": 4, "groups_per_update": 16, "schedule": SCHEDULE},
        evolution={"merge_every": 0},
    )
    updates: dict[VersionRef, int] = {}
    phases = []
    for frame in read_frames(run.journal_dir):
        for event in frame.events:
            match event:
                case ev.Issued(directive=ev.Train(job=job)):
                    before = updates.get(job.start.ref, 0)
                    updates[VersionRef(job.policy, job.step)] = before + 1
                    expected = 0 if before < 4 else 1 if before < 7 else 2
                    assert job.hyperparameters["phase"] == expected
                    assert not (expected == 2 and job.borrowed)
                    phases.append((expected, bool(job.borrowed)))
                case ev.Issued(directive=ev.Clone() as clone):
                    updates[VersionRef(clone.child, 0)] = updates.get(clone.donor, 0)
                case _:
                    pass
    assert {(0, True), (1, True), (2, False)} <= set(phases)


def test_without_a_schedule_jobs_are_told_of_no_phase(tmp_path: Path) -> None:
    run, _ = simulated_run(tmp_path / "run", budget={"rollouts": 1_000})
    jobs = [
        event.directive.job
        for frame in read_frames(run.journal_dir)
        for event in frame.events
        if isinstance(event, ev.Issued) and isinstance(event.directive, ev.Train)
    ]
    assert jobs
    assert not any("phase" in job.hyperparameters for job in jobs)


def test_a_clone_has_been_through_what_its_donor_has(tmp_path: Path) -> None:
    core = begun(tmp_path / "run")
    for _ in range(3):
        publish(core, "p0")
    clone = ev.Clone(
        child=PolicyId("p3"),
        donor=VersionRef(PolicyId("p0"), 3),
        replaced=PolicyId("p1"),
        hyperparameters={"learning_rate": 1e-3, "temperature": 1.0},
        probability=0.95,
    )
    issue(core, clone)
    publish(core, "p3")
    assert {member.policy: member.updates for member in core.state.members} == {"p0": 3, "p3": 4, "p2": 0}


def test_a_run_closes_when_less_than_a_group_is_left(tmp_path: Path) -> None:
    core = begun(tmp_path / "run", training={"objective": "grpo", "group_size": 4})
    limit = core.context.config.budget.rollouts - core.context.tests_reserve
    closing = []
    for left in (5, 4, 3, 1, 0):
        core.state.charged = limit - left
        closing.append(is_closing(core.state, core.context))
    assert closing == [False, False, True, True, True]
