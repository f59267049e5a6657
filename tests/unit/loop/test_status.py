"""Status: all that the display reads, as JSON values, the same from the files as from the engine."""

import inspect
import json
import re
from pathlib import Path

import pytest

from coharness.cli.display import Snapshot, plain_line
from coharness.loop.core import Evolution
from coharness.loop.run_dir import RunDir
from coharness.loop.status import status_from_journal, status_of
from coharness.records import events as ev
from coharness.records.proposals import ProposalKind, VerdictKind
from coharness.records.work import Purpose
from coharness.testing.runs import simulated_run
from coharness.testing.simulated import SimulatedFleet
from tests.unit.loop.handmade import begun, decide, ended, issue, open_test, publish


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, Evolution]:
    return simulated_run(tmp_path_factory.mktemp("runs") / "run", SimulatedFleet(lag=2), budget={"rollouts": 1_500})


def test_it_has_every_key_that_the_display_reads(finished: tuple[RunDir, Evolution]) -> None:
    status = status_of(finished[1].state, finished[1].context)
    read = set(re.findall(r'status\.get\("(\w+)"', inspect.getsource(Snapshot)))
    assert len(read) > 10
    assert read <= status.keys()


def test_it_is_json_and_the_display_can_show_it(finished: tuple[RunDir, Evolution]) -> None:
    status = json.loads(json.dumps(status_of(finished[1].state, finished[1].context), allow_nan=False))
    snapshot = Snapshot.of(status)
    # A pair takes two episodes, so one may be left over.
    assert (snapshot.phase, snapshot.budget) == ("done", 1_500)
    assert snapshot.rollouts in (1_499, 1_500)
    assert snapshot.share == snapshot.rollouts / 1_500
    assert snapshot.track is not None
    assert 0 < snapshot.track <= 1
    assert snapshot.fitness is not None
    assert snapshot.accepted + snapshot.rejected == sum(v.kind != "withdrawn" for v in finished[1].state.verdicts)
    assert f"{snapshot.rollouts:,}/1,500 rollouts (100%)" in plain_line(snapshot)


def test_the_files_alone_say_the_same(finished: tuple[RunDir, Evolution]) -> None:
    run, evolution = finished
    assert status_from_journal(run.path) == status_of(evolution.state, evolution.context)


def test_a_core_that_was_told_nothing_is_starting(tmp_path: Path) -> None:
    core = begun(tmp_path / "run")
    empty = Evolution(core.context.config, core.context.sources)
    status = status_of(empty.state, empty.context)
    assert (status["phase"], status["champion"], status["lead"], status["track"]) == ("starting", "", "", None)
    assert Snapshot.of(status).throughput == 0


def test_phases_follow_each_other(tmp_path: Path) -> None:
    core = begun(tmp_path / "run")
    phases = [status_of(core.state, core.context)["phase"]]
    core.state.charged = 4_000
    phases.append(status_of(core.state, core.context)["phase"])
    core.tell(ev.StopRequested(reason="a person asked"))
    phases.append(status_of(core.state, core.context)["phase"])
    core.tell(ev.Resumed(epoch=2))
    phases.append(status_of(core.state, core.context)["phase"])
    issue(core, ev.Finish(reason="spent"))
    phases.append(status_of(core.state, core.context)["phase"])
    assert phases == ["running", "closing", "stopping", "closing", "done"]


def test_what_is_in_flight_is_told_by_kind(tmp_path: Path) -> None:
    core = begun(tmp_path / "run")
    while "gate" not in status_of(core.state, core.context)["in_flight"]:
        if not core.state.tests and core.state.slots:
            champion = core.state.champion
            assert champion is not None
            open_test(core, ProposalKind.NULL, challenger=champion, incumbent=champion)
        for directive in core.ask(ev.Capacity(num_items=32, num_jobs=0)):
            issue(core, directive)
    status = status_of(core.state, core.context)
    gate = (Purpose.NULL, Purpose.GATE, Purpose.RACE, Purpose.ANCHOR, Purpose.CHOOSE)
    assert status["in_flight"]["gate"] == sum(i.purpose in gate for i in core.state.running.values())
    assert sum(status["in_flight"].values()) == len(core.state.running) + len(core.state.jobs)
    assert status["open_tests"] == 1


def test_the_reading_on_track_is_the_champions_and_only_a_whole_one_counts(tmp_path: Path) -> None:
    core = begun(tmp_path / "run")
    publish(core, "p1")
    while not core.state.track_pending:
        for directive in core.ask(ev.Capacity(num_items=0, num_jobs=0)):
            issue(core, directive)
    items = [i for i in core.state.running.values() if i.purpose is Purpose.TRACK]
    champion = core.state.champion
    assert champion is not None
    mine = [i for i in items if (i.version, i.harness) == (champion.version, champion.harness)]
    solved = {i.id for i in mine[::3]}
    core.tell(ended(items[:-1], lambda item: item.id in solved or item not in mine))
    assert status_of(core.state, core.context)["track"] is None
    core.tell(ended(items[-1:], lambda item: True))
    assert status_of(core.state, core.context)["track"] == pytest.approx(len(solved) / len(mine))


def test_the_last_event_is_a_sentence_about_what_happened(tmp_path: Path) -> None:
    core = begun(tmp_path / "run")
    champion = core.state.champion
    assert champion is not None
    assert status_of(core.state, core.context)["last_event"] == f"champion is {champion}"
    proposal = open_test(core, ProposalKind.NULL, challenger=champion, incumbent=champion)
    decide(core, proposal, VerdictKind.REJECTED)
    assert status_of(core.state, core.context)["last_event"] == "proposal 0 rejected: by hand"
    issue(core, ev.Finish(reason="spent"))
    assert status_of(core.state, core.context)["last_event"] == "finished: spent"
