"""The judge inside the core, on the simulated fleet: alarms, the ladder, repairs and their verdicts, all of it replayed."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from coharness.loop import judging
from coharness.loop.core import Evolution
from coharness.loop.journal import read_frames
from coharness.loop.replay import replay_run
from coharness.loop.run_dir import RunDir
from coharness.loop.state import JudgeTerm, State, state_digest
from coharness.loop.status import status_of
from coharness.records import events as ev
from coharness.records.errors import ReplayMismatch
from coharness.records.ids import JudgeId
from coharness.records.judging import Cause, Rung
from coharness.records.work import Purpose, WorkItem
from coharness.report.history import read_history
from coharness.report.sentences import judge_sentence
from coharness.testing.runs import simulated_config, simulated_engine, simulated_run
from coharness.testing.simulated import FIRST_JUDGE, MENDED, SimulatedFleet, SimulatedJudge

HACKED = SimulatedJudge(hacked_from=800)
RULE = {"value": {"sum": {"of": {"judge/score": 1}}}}


def run(
    path: Path, judge: SimulatedJudge, fleet: SimulatedFleet | None = None, **monitor: Any
) -> tuple[RunDir, Evolution]:
    return simulated_run(
        path,
        fleet or SimulatedFleet(judge=judge, lag=1),
        budget={"rollouts": 4_000},
        population={"num_policies": 2, "num_harnesses": 1},
        training={"groups_per_update": 16, "group_size": 2, "objective": "grpo"},
        harness={"reward_rule": RULE},
        reward={
            "judge": {"type": "linear", "file": "judge.json", "anchors": "anchors.jsonl"},
            "monitor": {"step_audits": 32, "warmup_steps": 4, "patience": 3, "calm": 12, **monitor},
        },
    )


def issued(folder: RunDir, kind: type) -> list[Any]:
    events = (event for frame in read_frames(folder.journal_dir) for event in frame.events)
    return [e.directive for e in events if isinstance(e, ev.Issued) and isinstance(e.directive, kind)]


def items(folder: RunDir) -> list[WorkItem]:
    return [item for lease in issued(folder, ev.Lease) for item in lease.items]


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, Evolution]:
    return run(tmp_path_factory.mktemp("judged") / "run", HACKED, ladder=["repair"])


def test_a_hack_raises_an_alarm_after_it_began_and_the_judge_is_replaced(mended: tuple[RunDir, Evolution]) -> None:
    folder, evolution = mended
    alarms = [r for r in issued(folder, ev.Respond) if r.alarm is not None]
    assert alarms[0].alarm.causes == (Cause.CONFLICT,)
    assert alarms[0].alarm.shortcut == "length", "the simulated judge follows length among the wrong"
    assert alarms[0].rung is Rung.REPAIR
    first = evolution.state.incidents[0]
    # Items are groups of two and a few others: the hack begins at item 800, and nothing was said before it.
    hacked_at = next(i for i, item in enumerate(items(folder)) if item.id >= HACKED.hacked_from)
    charged = sum(i.group_size for i in items(folder)[:hacked_at] if i.purpose.is_charged)
    assert charged < first.charged < charged + 1_500
    appointed = issued(folder, ev.Appoint)
    assert [a.accepted for a in appointed] == [True]
    assert evolution.state.judge.startswith(MENDED)
    assert evolution.state.response.rung is Rung.WATCH
    assert {i.judge for i in evolution.state.incidents} == {FIRST_JUDGE}, "the mended judge raises no alarm"


def test_every_training_group_names_its_judge_and_evaluation_none(mended: tuple[RunDir, Evolution]) -> None:
    folder, evolution = mended
    shares: Counter[tuple[str, bool]] = Counter()
    for item in items(folder):
        assert (item.judging is not None) == (item.purpose is Purpose.TRAIN)
        if item.judging is not None:
            assert item.judging.counts
            shares[item.judging.judge, item.judging.audited] += 1
    assert {judge for judge, _ in shares} == {FIRST_JUDGE, evolution.state.judge}
    audited = shares[evolution.state.judge, True] / (
        shares[evolution.state.judge, True] + shares[evolution.state.judge, False]
    )
    assert audited == pytest.approx(0.25, abs=0.08)


def test_the_weights_of_the_alarm_and_of_the_repair_are_kept(mended: tuple[RunDir, Evolution]) -> None:
    state = mended[1].state
    kept = {*state.incidents[0].heads, *state.terms[-1].heads}
    assert kept
    assert kept <= set(state.versions)


def test_report_and_status_tell_of_alarm_and_repair(mended: tuple[RunDir, Evolution]) -> None:
    folder, evolution = mended
    history = read_history(folder.path)
    assert [move.what for move in history.judge_moves][-1] == "mended"
    sentence = judge_sentence(history)
    assert "ALARM about the judge" in sentence
    assert "the judge follows length" in sentence
    assert sentence.endswith("mended judges that took over: 1, refused: 0.")
    told = status_of(evolution.state, evolution.context)["judge"]
    assert (told["version"], told["response"], told["mended"]) == (evolution.state.judge, "watch", 1)


def test_replay_decides_all_of_it_again(mended: tuple[RunDir, Evolution], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, evolution = mended
    report = replay_run(folder.path)
    assert report.state_digest == report.recorded_digest == state_digest(evolution.state)
    monkeypatch.setattr(judging, "MIN_CONFLICT_GROUPS", 10_000)
    with pytest.raises(ReplayMismatch, match="Repair"):
        replay_run(folder.path)


def test_a_run_that_died_around_a_repair_goes_on_to_the_same_judge(tmp_path: Path) -> None:
    first = SimulatedFleet(judge=HACKED, lag=1)
    folder, _ = run(tmp_path / "run", HACKED, first, ladder=["repair"])
    path = sorted(folder.journal_dir.glob("e*.jsonl"))[-1]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: int(len(lines) * 0.6)]))
    folder.snapshot_path.unlink()
    engine, evolution = simulated_engine(folder, SimulatedFleet(judge=HACKED, before=first), resume=True)
    engine.run()
    evolution.state.check_identities()
    assert evolution.state.judge.startswith(MENDED)
    assert replay_run(folder.path).state_digest == state_digest(evolution.state)


def test_a_healthy_judge_raises_no_alarm(tmp_path: Path) -> None:
    folder, evolution = run(tmp_path / "run", SimulatedJudge(), ladder=["repair"])
    assert evolution.state.watch is not None
    assert evolution.state.watch.step > 20
    assert issued(folder, ev.Respond) == []
    assert evolution.state.judge == FIRST_JUDGE


def test_without_a_ladder_alarms_are_noted_and_change_nothing(tmp_path: Path) -> None:
    folder, evolution = run(tmp_path / "run", HACKED, ladder=[])
    assert evolution.state.incidents
    assert {r.rung for r in issued(folder, ev.Respond)} == {Rung.WATCH}
    assert all(item.judging.counts for item in items(folder) if item.judging is not None)
    assert evolution.state.judge == FIRST_JUDGE


def test_a_repair_that_does_not_help_is_turned_down_and_the_next_rung_follows(tmp_path: Path) -> None:
    judge = SimulatedJudge(hacked_from=800, repairs_work=False)
    folder, evolution = run(tmp_path / "run", judge, ladder=["audit", "repair", "freeze"])
    rungs = [r.rung for r in issued(folder, ev.Respond)]
    assert list(dict.fromkeys(rungs)) == [Rung.AUDIT, Rung.REPAIR, Rung.FREEZE]
    refused = [a for a in issued(folder, ev.Appoint) if not a.accepted]
    assert refused
    assert "not surely fewer conflicts" in refused[0].reason
    assert [name for name, _ in evolution.state.refused_judges] == [a.judge for a in refused]
    assert evolution.state.refused_in_term == len(refused), "each of them has lowered the level of the next"
    frozen_from = evolution.state.incidents[-1].charged if rungs[-1] is Rung.FREEZE else 0
    late = [i for i in items(folder) if i.judging is not None and not i.judging.counts]
    assert late, "from the freeze on the judge's part enters no reward"
    assert any(i.judging.audited for i in late if i.judging is not None), "and is still held against the verifier"
    assert frozen_from


def test_a_roll_back_goes_to_the_judge_before() -> None:
    state = State()
    state.judge = FIRST_JUDGE
    state.terms.append(JudgeTerm(judge=FIRST_JUDGE, since=0, how="start"))
    assert judging._former(state) == FIRST_JUDGE, "there is none before the first one"
    judging._change(state, JudgeId("j-second"), "mended")
    judging._change(state, JudgeId("j-third"), "mended")
    assert judging._former(state) == "j-second"
    judging._change(state, JudgeId("j-second"), "rolled back")
    assert judging._former(state) == FIRST_JUDGE


def test_a_stop_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    folder, evolution = run(tmp_path / "run", HACKED, ladder=["stop"])
    assert "monitors of the judge" in evolution.state.finished
    assert issued(folder, ev.Finish)[0].reason == evolution.state.finished
    assert evolution.state.charged < 4_000


def test_a_rule_that_reads_no_judge_is_not_judged(tmp_path: Path) -> None:
    config = {"reward": {"judge": {"type": "linear", "file": "judge.json"}}, "budget": {"rollouts": 500}}
    folder, _ = simulated_run(tmp_path / "run", SimulatedFleet(), **config)
    assert all(item.judging is None for item in items(folder))
    assert simulated_config(tmp_path / "x", **config).reward.ladder == ("audit", "freeze", "roll_back")
