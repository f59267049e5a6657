"""A search from end to end: what it finds, that it can be decided again, and that a kill changes nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from coharness.records.errors import ConfigError, JournalError, PreflightError, ReplayMismatch
from coharness.tune.api import config_for, resume, search
from coharness.tune.engine import SearchError, fold_journal
from coharness.tune.events import Decision, Event, Report
from coharness.tune.journal import read_journal
from coharness.tune.replay import replay
from tests.arch.source import ROOT
from tests.unit.tune.small import Breaks, Broken, Climber, Incomplete, Plain, Stubborn, config, context

RULES: list[dict[str, Any]] = [
    {"type": "truncation"}, {"type": "posterior"}, {"type": "tournament"}, {"type": "tournament", "duel": "welch"},
    {"type": "slope"}, {"type": "pb2"}, {"type": "nsga2"}, {"type": "lexicase"}, {"type": "niches", "merge": True},
    {"type": "map_elites", "lows": [0.0], "highs": [10.0], "bins": [5]},
    {"type": "random", "trial_intervals": 3}, {"type": "mutation"}, {"type": "none"},
]  # fmt: skip
READS = {
    "cases": ["score", "half"],
    "objectives": [{"metric": "score"}, {"metric": "half", "mode": "min"}],
    "descriptor": ["half"],
}


def events(folder: Path) -> list[Event]:
    return [event for frame in read_journal(folder / "journal.jsonl") for event in frame]


def told(found: Any) -> dict[str, Any]:
    """A result without what the clock says."""
    return {key: value for key, value in found.items() if key != "time_bias"}


def without_times(found: list[Event]) -> list[Event]:
    from dataclasses import replace

    return [replace(event, seconds=0.0) if isinstance(event, Report) else event for event in found]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: "-".join(map(str, rule.values()))[:20])
def test_every_rule_runs_to_its_end_and_decides_the_same_again(tmp_path: Path, rule: dict[str, Any]) -> None:
    found = search(config(tmp_path / "a", selection=rule, score=READS, guard={"clone_cap": 1.0}))
    assert found["steps"] == 4 * 30
    assert all(member["steps"] == 30 for member in found["members"])
    folder, ctx = context(tmp_path / "a")
    assert replay(folder, ctx).num_reports == found["reports"] == 40
    assert json.loads(folder.result_path.read_text()) == found


def test_the_result_tells_how_different_the_members_are_and_whether_the_clock_decided(tmp_path: Path) -> None:
    found = search(config(tmp_path / "a", score={"cases": ["score", "half"]}, selection={"type": "lexicase"}))
    assert set(found["diversity"]) == {"disagreement", "useful"}
    assert 1 <= found["founders"] <= 4
    # In virtual time an interval always lasts as long as its steps, so nobody is quick.
    assert found["time_bias"] == {"correlation": 0.0, "p_value": 1.0, "unevenness": found["time_bias"]["unevenness"]}
    assert search(config(tmp_path / "b"))["diversity"] is None


def test_selection_finds_a_higher_place_than_the_same_members_without_it(tmp_path: Path) -> None:
    budget = {"steps": 60}
    with_it = search(config(tmp_path / "a", budget=budget, members=8))
    without = search(config(tmp_path / "b", budget=budget, members=8, selection={"type": "none"}))
    mean = [sum(m["score"] for m in found["members"]) / 8 for found in (with_it, without)]
    assert mean[0] > 1.3 * mean[1]
    assert without["copies"] == 0
    assert with_it["best"]["score"] == max(m["score"] for m in with_it["members"])


def test_settings_stay_in_their_bounds_and_move_only_where_they_should(tmp_path: Path) -> None:
    search(config(tmp_path / "a", members=6))
    assert all(0 <= e.hyperparameters["rate"] <= 1 for e in events(tmp_path / "a") if isinstance(e, Decision))
    search(config(tmp_path / "b", members=6, genes="keep"))
    found = [e for e in events(tmp_path / "b") if isinstance(e, Decision)]
    assert any(e.is_birth and e.parents for e in found)
    assert {e.hyperparameters["rate"] for e in found} == {e.hyperparameters["rate"] for e in found[:6]}


def test_a_changed_constant_of_selection_is_noticed_by_the_replay(tmp_path: Path) -> None:
    search(config(tmp_path / "a"))
    path = tmp_path / "a" / "config.yaml"
    path.write_text(path.read_text().replace("quantile: 0.25", "quantile: 0.5"))
    with pytest.raises(ReplayMismatch, match="the replay decided"):
        replay(*context(tmp_path / "a"))


def test_constants_reach_the_trainable_and_a_target_ends_the_search(tmp_path: Path) -> None:
    found = search(config(tmp_path / "a", kind=Plain, space={"unused": {"type": "int", "low": 0, "high": 3}},
                          constants={"rate": 0.5}, score={"target": 4.0}))  # fmt: skip
    assert found["why"] == "score reached 4"
    assert found["highest_seen"]["score"] == 4.0
    assert events(tmp_path / "a")[-1].why == found["why"]  # type: ignore[union-attr]


def test_low_scores_are_sought_where_asked(tmp_path: Path) -> None:
    found = search(config(tmp_path / "a", score={"mode": "min"}))
    assert found["best"]["score"] == min(m["score"] for m in found["members"])


@pytest.mark.parametrize("kind", [Climber, Plain])
def test_only_checkpoints_that_may_be_needed_are_kept(tmp_path: Path, kind: type) -> None:
    search(config(tmp_path / "a", kind=kind))
    folder, ctx = context(tmp_path / "a")
    needed = fold_journal(folder, ctx).needed()
    assert {path.name for path in folder.checkpoints.iterdir()} == set(needed)
    assert len(needed) <= 5
    search(config(tmp_path / "b", kind=kind, keep_checkpoints=True))
    assert len(list((tmp_path / "b" / "checkpoints").iterdir())) == 40


def test_a_setting_that_fails_is_replaced_and_the_search_goes_on(tmp_path: Path) -> None:
    found = search(config(tmp_path / "a", kind=Breaks, members=6))
    assert found["failures"] > 0
    assert found["steps"] == 6 * 30
    reasons = {e.error.split(":")[0] for e in events(tmp_path / "a") if isinstance(e, Report) and e.error}
    assert reasons <= {"RuntimeError", "ConfigError"}
    assert all(m["hyperparameters"]["rate"] <= 0.6 for m in found["members"])
    assert replay(*context(tmp_path / "a")).num_decisions > 0


@pytest.mark.parametrize(("kind", "match"), [(Broken, "no luck"), (Incomplete, "lacks save, load")])
def test_a_trainable_that_cannot_work_ends_the_search_with_its_reason(tmp_path: Path, kind: type, match: str) -> None:
    with pytest.raises(SearchError, match="failed again and again"):
        search(config(tmp_path / "a", kind=kind))
    assert match in (tmp_path / "a" / "journal.jsonl").read_text()


def test_hyperparameters_that_are_not_in_force_are_an_error_with_their_name(tmp_path: Path) -> None:
    search(config(tmp_path / "a", kind=Stubborn))
    failed = [e for e in events(tmp_path / "a") if isinstance(e, Report) and e.error]
    assert failed
    assert all("rate is" in e.error and "after a change to" in e.error for e in failed)


def test_a_score_that_is_not_given_is_named(tmp_path: Path) -> None:
    with pytest.raises(SearchError):
        search(config(tmp_path / "a", score={"metric": "accuracy"}))
    assert "gave no accuracy; it gave half, score" in (tmp_path / "a" / "journal.jsonl").read_text()


def test_a_class_of_this_process_and_a_space_of_domains_are_enough(tmp_path: Path) -> None:
    from coharness.spaces.ranges import Real

    made = config_for(
        Climber,
        {"rate": Real(low=0, high=1)},
        str(tmp_path / "a"),
        budget={"steps": 9},
        members=2,
        interval=3,
        pool={"type": "inline"},
    )
    assert search(made)["steps"] == 18
    with pytest.raises(ConfigError, match="exists already"):
        search(made)

    class Local(Climber):
        pass

    with pytest.raises(ConfigError, match="at a module's top"):
        config_for(Local, {"rate": Real(low=0, high=1)}, str(tmp_path / "b"), budget={"steps": 9})


# Kills --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["truncation", "pb2"])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A search that has run to its end and kept all checkpoints, and the result of the same search without them."""
    folder, rule = tmp_path_factory.mktemp("finished"), {"type": request.param}
    found = search(config(folder / "whole", selection=rule))
    search(config(folder / "kept", selection=rule, keep_checkpoints=True))
    return folder, found


@pytest.mark.parametrize("cut", [1, 2, 9, 23])
def test_a_search_cut_anywhere_goes_on_to_the_same_decisions(
    tmp_path: Path, finished: tuple[Path, Any], cut: int
) -> None:
    folder, whole = finished
    # Checkpoints as they were cannot be rebuilt from the journal alone, so the cut run has kept all of its own.
    shutil.copytree(folder / "kept", tmp_path / "cut")
    journal = tmp_path / "cut" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: 1 + cut]) + lines[1 + cut][: len(lines[1 + cut]) // 2])
    (tmp_path / "cut" / "checkpoints" / "half-written").mkdir()
    again = resume(tmp_path / "cut")
    assert again == whole
    assert without_times(events(tmp_path / "cut")) == without_times(events(folder / "whole"))


def test_a_finished_search_is_not_run_again(tmp_path: Path) -> None:
    found = search(config(tmp_path / "a"))
    before = (tmp_path / "a" / "journal.jsonl").read_bytes()
    assert resume(tmp_path / "a") == found
    assert (tmp_path / "a" / "journal.jsonl").read_bytes() == before


def test_damage_in_the_middle_of_the_journal_is_never_skipped(tmp_path: Path) -> None:
    search(config(tmp_path / "a"))
    journal = tmp_path / "a" / "journal.jsonl"
    data = bytearray(journal.read_bytes())
    data[len(data) // 2] ^= 1
    journal.write_bytes(bytes(data))
    with pytest.raises(JournalError, match="is damaged"):
        resume(tmp_path / "a")


def test_one_process_at_a_time_drives_a_search(tmp_path: Path) -> None:
    search(config(tmp_path / "a"))
    folder, _ = context(tmp_path / "a")
    with folder.locked(), pytest.raises(PreflightError, match="another process"), folder.locked():
        pass
    with pytest.raises(ConfigError, match="not a search's folder"):
        resume(tmp_path)


def start(folder: Path, *words: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "coharness", "tune", *words],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _writers(folder: Path) -> list[int]:
    """Processes whose output goes to a file below `folder`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(process / "fd" / "1").startswith(f"{folder.resolve()}/"):
                found.append(int(process.name))
    return found


def test_killed_twice_with_worker_processes_it_decides_as_if_nothing_had_happened(tmp_path: Path) -> None:
    pool = {"type": "process", "workers": 2, "order": "rounds"}
    made = config(tmp_path / "killed", pool=pool, budget={"steps": 60})
    text = (tmp_path / "search.yaml").resolve()
    from coharness.tune.config import dump_tune_config

    text.write_text(dump_tune_config(made))
    words: list[str] = [str(text)]
    for _ in range(2):
        running = start(tmp_path, *words)
        journal = tmp_path / "killed" / "journal.jsonl"
        size = journal.stat().st_size if journal.exists() else 0
        until = time.monotonic() + 60
        while not (journal.exists() and journal.stat().st_size > size + 1500) and running.poll() is None:
            assert time.monotonic() < until, "the search wrote nothing"
            time.sleep(0.005)
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        words = ["resume", str(tmp_path / "killed")]
    until = time.monotonic() + 30
    while _writers(tmp_path / "killed" / "logs"):
        assert time.monotonic() < until, "a worker outlives the search that it worked for"
        time.sleep(0.05)
    again = told(resume(tmp_path / "killed"))
    whole = search(config(tmp_path / "whole", pool={**pool, "type": "inline", "workers": 3}, budget={"steps": 60}))
    whole = told(whole)
    assert again == whole
    assert without_times(events(tmp_path / "killed")) == without_times(events(tmp_path / "whole"))
