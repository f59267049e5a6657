from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coharness.config.schema import RunConfig
from coharness.loop.core import Evolution
from coharness.loop.journal import Frame
from coharness.records import events as ev
from coharness.records.errors import Boundary, ConfigError
from coharness.records.harness import EpisodeGenes, PromptGenes
from coharness.records.proposals import ProposalKind, VerdictKind
from coharness.records.training import JobStatus
from coharness.records.work import BatchResult, Outcome, OutcomeStatus, Purpose
from coharness.report.history import project, read_history
from coharness.report.timeline import History, Tally
from coharness.tasks.sources import build_sources
from coharness.testing.simulated import SIMULATED_BASE, SimulatedFleet
from tests.unit.report.synthetic import H0, H_TRACE, Script, config, eventful, proposal, ref, serving, verdict


def folded(script: Script) -> History:
    return project(script.frames, run_id="unknown", config=script.config.model_dump(mode="json"))


def begun(**changes: Any) -> Script:
    return Script(config=config(**changes)).start().spawn(0.0, H0, 0)


def test_the_champion_starts_as_the_first_policy_in_the_first_slots_genome() -> None:
    (span,) = folded(begun()).champions
    assert (span.serving, span.cause, span.end) == (serving("p0", 0), "start", None)


def test_an_accepted_challenge_moves_the_champion_and_a_rollback_restores_it() -> None:
    script = begun()
    new, old = serving("p1", 3), serving("p0", 0)
    script.test(1, 5, proposal(0, ProposalKind.PAIR, new, old, test_index=1), verdict(0, VerdictKind.ACCEPTED))
    script.test(6, 9, proposal(1, ProposalKind.ROLLBACK, old, new), verdict(1, VerdictKind.ACCEPTED))
    champions = folded(script).champions
    assert [(c.serving, c.cause, c.start.elapsed_s) for c in champions] == [
        (old, "start", 0.0),
        (new, "promotion", 5.0),
        (old, "rollback", 9.0),
    ]
    assert [c.end.elapsed_s if c.end else None for c in champions] == [5.0, 9.0, None]


@pytest.mark.parametrize("kind", [VerdictKind.REJECTED, VerdictKind.WITHDRAWN])
def test_a_challenge_that_is_not_accepted_moves_nothing(kind: VerdictKind) -> None:
    script = begun()
    challenge = proposal(0, ProposalKind.PAIR, serving("p1", 3), serving("p0", 0), test_index=1)
    script.test(1, 5, challenge, verdict(0, kind))
    assert len(folded(script).champions) == 1


def test_an_accepted_edit_gives_its_slot_the_serving_genes_and_keeps_the_slots_training_genes() -> None:
    script = begun()
    edit = proposal(
        0, ProposalKind.HARNESS, serving("p0", 0, H_TRACE), serving("p0", 0), test_index=1, manifest={"slot": 0}
    )
    wider = replace(H0, tasks=tuple(replace(gene, level_high=3) for gene in H0.tasks))
    script.issue(1, ev.Open(proposal=edit, harness=H_TRACE))
    script.spawn(2, wider, 0, "levels", H0.id)
    script.issue(3, ev.Decide(verdict=verdict(0, VerdictKind.ACCEPTED)))
    history = folded(script)
    last = history.harness_spans[-1]
    assert history.genomes[last.harness] == replace(wider, prompt=H_TRACE.prompt)
    assert (last.slot, last.proposal, last.edits) == (0, 0, ("format of parity: default → trace",))
    assert [s.end is None for s in history.harness_spans] == [False, False, True]


def test_a_clone_goes_on_in_the_place_of_the_member_it_replaced() -> None:
    script = begun()
    clone = ev.Clone(
        child=ref("p3", 0).policy,
        donor=ref("p1", 2),
        replaced=ref("p0", 0).policy,
        hyperparameters={"learning_rate": 1e-3},
        probability=0.95,
    )
    policies = folded(script.issue(4, clone)).policies
    child, gone = policies[clone.child], policies[clone.replaced]
    assert (child.slot, child.origin, child.parents) == (gone.slot, "clone", (clone.donor,))
    assert gone.ended is not None
    assert gone.ending == "replaced by p3, a clone of p1@2"


def test_groups_are_as_stale_as_the_versions_between_their_rollout_and_their_training() -> None:
    script = begun()
    old = script.items(Purpose.TRAIN, 3, serving("p0", 0))
    new = script.items(Purpose.TRAIN, 2, serving("p0", 1))
    script.work(1, 2, (*old, *new), [0] * 5)
    script.train(3, 4, 0, "p0", 2, (*old, *new))
    history = folded(script)
    assert [update.versions_behind for update in history.staleness] == [(2, 2, 2, 1, 1)]
    assert history.end.updates == 1


def test_only_charged_episodes_that_are_done_count_as_rollouts() -> None:
    script = begun()
    trained = script.items(Purpose.TRAIN, 4, serving("p0", 0), group_size=2)
    tracked = script.items(Purpose.TRACK, 4, serving("p0", 0))
    failed = script.items(Purpose.GATE, 2, serving("p0", 0))
    script.work(1, 2, (*trained, *tracked))
    script.issue(3, ev.Lease(items=failed))
    outcomes = tuple(
        Outcome(item=item.id, status=OutcomeStatus.FAILED, boundary=Boundary.VERIFIER, message="m") for item in failed
    )
    script.at(4, ev.BatchDone(result=BatchResult(batch=9, worker="w", outcomes=outcomes, wall_s=1.0, cpu_s=1.0)))
    history = folded(script)
    assert history.end.rollouts == 8
    assert history.spend[Purpose.TRACK].num_episodes == 4
    assert history.spend[Purpose.GATE].num_failed == 2
    assert [(f.boundary, f.num_items, f.example) for f in history.failures] == [("verifier", 2, "m")]


def test_a_reading_holds_the_items_of_one_lease_and_serving_and_knows_whether_it_is_the_champions() -> None:
    script = begun()
    champion = script.items(Purpose.TRACK, 8, serving("p0", 0))
    other = script.items(Purpose.TRACK, 8, serving("p2", 0))
    script.work(1, 2, (*champion, *other), [1] * 6 + [0] * 10)
    history = folded(script)
    assert [reading.total for reading in history.track] == [Tally(num_correct=6, num_tasks=8)]
    assert [str(reading.serving.version) for reading in history.member_track] == ["p2@0"]
    assert history.track[0].cells["count", 1] == Tally(num_correct=1, num_tasks=1)


def test_overlap_is_the_time_with_two_kinds_of_work() -> None:
    script = begun()
    practice = script.items(Purpose.TRAIN, 1, serving("p0", 0))
    gate = script.items(Purpose.GATE, 1, serving("p0", 0))
    script.work(0, 10, practice, wall_s=10)  # rollout 0..10
    script.work(4, 16, gate, wall_s=6)  # gate in flight 4..16, running 10..16
    script.train(12, 20, 0, "p0", 0, practice)  # train 12..20
    overlap = folded(script.end(20)).overlap
    assert overlap.total_s == 20
    assert overlap.in_flight_s == (10 - 4) + (16 - 12)
    assert overlap.running_s == 16 - 12


def test_events_take_the_time_of_the_tick_behind_them_in_their_frame() -> None:
    script = begun()
    items = script.items(Purpose.TRACK, 1, serving("p0", 0))
    frames = script.issue(1, ev.Lease(items=items)).frames
    outcome = Outcome(item=items[0].id, status=OutcomeStatus.DONE, num_output_tokens=3)
    done = ev.BatchDone(result=BatchResult(batch=0, worker="w", outcomes=(outcome,), wall_s=4.0, cpu_s=1.0))
    late = Frame(seq=99, time=5.0, events=(done, ev.Tick(elapsed_s=35.0, cpu_s=0.0)))
    history = project([*frames, late], run_id="x", config=script.config.model_dump(mode="json"))
    assert [window.num_episodes for window in history.throughput] == [0, 0, 0, 1]
    assert history.throughput[-1].width_s == 5.0


def test_null_tests_leave_withdrawn_ones_out() -> None:
    script, champion = begun(), serving("p0", 0)
    for number, kind in enumerate([VerdictKind.REJECTED, VerdictKind.ACCEPTED, VerdictKind.WITHDRAWN]):
        null = proposal(number, ProposalKind.NULL, champion, champion)
        script.test(number, number + 0.5, null, verdict(number, kind, level=0.0))
    assert folded(script).null_tests == Tally(num_correct=1, num_tasks=2)


def test_a_quarantined_update_publishes_nothing_and_a_failed_one_names_its_boundary() -> None:
    script = begun()
    script.train(1, 2, 0, "p0", 0, (), JobStatus.QUARANTINED).train(3, 4, 1, "p0", 0, (), JobStatus.FAILED)
    history = folded(script)
    assert (history.num_quarantined, history.end.updates) == (1, 0)
    assert [(f.boundary, f.num_jobs) for f in history.failures] == [("training", 1)]


def test_what_the_journal_does_not_explain_becomes_a_warning() -> None:
    script = begun()
    script.issue(1, ev.Decide(verdict=verdict(7, VerdictKind.ACCEPTED)))
    script.at(2, ev.BatchDone(result=BatchResult(batch=0, worker="w", outcomes=(outcome_of(5),), wall_s=0, cpu_s=0)))
    assert len(folded(script).warnings) == 2


def outcome_of(item: int) -> Outcome:
    return Outcome(item=item, status=OutcomeStatus.DONE)  # type: ignore[arg-type]


def test_an_empty_journal_gives_an_empty_history_with_the_runs_config(tmp_path: Path) -> None:
    run_dir = Script(config=config(tmp_path / "run")).write()
    history = read_history(run_dir)
    assert (history.run_id, history.num_events, history.champion) == ("run", 0, None)
    assert history.budget_rollouts == 2_000


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        read_history(tmp_path)


def test_the_journal_on_disk_gives_the_same_history_as_its_frames(tmp_path: Path) -> None:
    script = eventful(config(tmp_path / "run"), num_rounds=5)
    assert replace(read_history(script.write()), started_at=0.0) == replace(folded(script), started_at=0.0)


# The core's own state is the oracle: both fold the same events, by code that shares nothing.


def simulated_run(schedule: str, failure_rate: float) -> tuple[Evolution, History]:
    settings = RunConfig.model_validate(
        {
            "run_dir": "runs/simulated",
            "schedule": schedule,
            "budget": {"rollouts": 3_000},
            "evaluation": {"track_every": 800, "track_tasks": 24},
            "tasks": [{"type": "builtin", "max_level": 3, "families": ["parity", "count", "reverse"]}],
            "gate": {"null_tests": 1, "max_pairs": 256},
            "evolution": {"assess_every": 10, "merge_every": 6, "spawn_every": 15, "propose_every": 4},
        }
    )
    core = Evolution(settings, build_sources(settings.tasks, Path.cwd()))
    fleet = SimulatedFleet(failure_rate=failure_rate, lag=2)
    frames: list[Frame] = []
    data = settings.model_dump(mode="json")
    events: list[ev.Event] = [ev.Started(run_id="simulated", seed=0, config=data, base=SIMULATED_BASE, code_digest="c")]
    batch = 0
    while not core.state.finished:
        events.append(ev.Tick(elapsed_s=0.05 * len(frames), cpu_s=0.0))
        for event in events:
            core.tell(event)
        while directives := core.ask(fleet.capacity()):
            for directive in directives:
                events.append(ev.Issued(directive=directive))
                core.tell(events[-1])
                match directive:
                    case ev.Lease():
                        for start in range(0, len(directive.items), 64):
                            items = directive.items[start : start + 64]
                            weights = {item.version: core.state.versions[item.version].weights for item in items}
                            fleet.submit(
                                [ev.WorkBatch(id=batch, items=items, harnesses={}, weights=weights, lease_s=9)]
                            )
                            batch += 1
                    case ev.Train() | ev.Merge():
                        fleet.submit([directive.job])
                    case ev.Cancel() | ev.Retire():
                        fleet.submit([directive])
        frames.append(Frame(seq=1 + len(frames), time=float(len(frames)), events=tuple(events)))
        events = fleet.poll(0.0)
    return core, project(frames, run_id="x", config=data)


@pytest.mark.parametrize(("schedule", "failure_rate"), [("async", 0.0), ("randomized", 0.05)])
def test_the_history_of_a_whole_run_agrees_with_the_cores_own_state(schedule: str, failure_rate: float) -> None:
    core, history = simulated_run(schedule, failure_rate)
    state = core.state
    assert history.warnings == ()
    assert history.finish == state.finished
    assert history.end.rollouts == state.charged
    assert [(c.serving, c.cause) for c in history.champions] == [
        (serving, {"start": "start", "promoted": "promotion", "rolled back": "rollback"}[how])
        for _, serving, how in state.champion_history
    ]
    alive = {life.slot: life for life in history.policies.values() if life.joined and life.ended is None}
    assert [alive[i].id for i in range(len(state.members))] == [member.policy for member in state.members]
    assert [alive[i].versions[-1].digest for i in range(len(state.members))] == [
        m.head.weights.digest for m in state.members
    ]
    live = {span.slot: span.harness for span in history.harness_spans if span.end is None}
    assert [live[i] for i in range(len(state.slots))] == [slot.harness for slot in state.slots]
    assert [life.verdict for life in sorted(history.decided(), key=lambda x: x.proposal.id)] == sorted(
        state.verdicts, key=lambda v: v.proposal
    )
    assert {purpose.value: s.num_episodes for purpose, s in history.spend.items() if s.num_episodes} == dict(
        state.episodes
    )
    assert sum(f.num_items for f in history.failures) == state.failed
    behind = [steps for update in history.staleness for steps in update.versions_behind]
    if failure_rate == 0:  # a failed update gives its groups back, and the core counts their age anew
        assert max(behind) == state.staleness_max
    assert len(history.track) >= 3


def test_spans_of_one_slot_follow_each_other() -> None:
    history = folded(eventful())
    for slot in {span.slot for span in history.harness_spans}:
        spans = [span for span in history.harness_spans if span.slot == slot]
        assert [span.end for span in spans[:-1]] == [span.start for span in spans[1:]]
        assert spans[-1].end is None


def test_genomes_of_the_randomized_pool_have_no_slot() -> None:
    script = begun().spawn(1, replace(H0, prompt=PromptGenes(num_shots=1)), -1, "random")
    history = folded(script.spawn(2, replace(H0, episode=EpisodeGenes(retries=1)), 0, "chosen_formats", H0.id))
    assert len(history.genomes) == 3
    assert [span.slot for span in history.harness_spans] == [0, 0]
