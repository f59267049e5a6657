"""Preflight: every finding names the thing, what was found and the fix; an error refuses the run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coharness.config.schema import RunConfig
from coharness.loop import preflight as module
from coharness.loop.preflight import Finding, Level, PreflightReport, preflight
from coharness.records.errors import PreflightError
from coharness.reward.linear.files import write_model
from coharness.reward.linear.model import LinearModel
from coharness.testing.runs import simulated_config
from tests.arch.source import ROOT


def findings(run_dir: Path, **sections: Any) -> list[Finding]:
    return list(preflight(simulated_config(run_dir / "new" / "run", **sections)).findings)


def named(found: list[Finding], what: str, level: Level) -> str:
    """The one message of this level about this thing."""
    (message,) = (f.message for f in found if f.what == what and f.level is level)
    return message


def test_a_sound_config_passes_and_says_what_it_found(tmp_path: Path) -> None:
    report = preflight(simulated_config(tmp_path / "run"))
    report.raise_if_failed()
    tasks = named(list(report.findings), "tasks", Level.INFO)
    assert tasks == "6 families, 18 evaluation cells, 7 serving variants a family"
    assert named(list(report.findings), "policy.base", Level.INFO).startswith("tiny: 0.")
    assert all(f.level is Level.INFO for f in report.findings if f.what != "fleet")


@pytest.mark.parametrize(
    ("sections", "what", "message"),
    [
        ({"tasks": [{"type": "jsonl", "path": "/nowhere.jsonl", "family": "f"}]}, "tasks", "/nowhere.jsonl"),
        ({"harness": {"template": "nope"}}, "tasks", "harness.template names 'nope'"),
        ({"policy": {"base": "/nowhere/base"}}, "policy.base", "/nowhere/base"),
        (
            {"policy": {"max_context": 100_000}},
            "policy.max_context",
            "is 100000, the base tiny has room for 256 tokens",
        ),
    ],
)
def test_what_cannot_work_is_an_error(tmp_path: Path, sections: dict[str, Any], what: str, message: str) -> None:
    found = findings(tmp_path, **sections)
    assert message in named(found, what, Level.ERROR)
    with pytest.raises(PreflightError, match=f"{what}: "):
        PreflightReport(findings=tuple(found)).raise_if_failed()


def test_a_chat_template_on_a_raw_base_is_a_warning_with_the_fix(tmp_path: Path) -> None:
    found = findings(tmp_path, harness={"template": "chat", "templates": ["chat"]})
    assert "use a template with a cue, such as bare" in named(found, "harness.template", Level.WARNING)
    PreflightReport(findings=tuple(found)).raise_if_failed()


def test_cells_too_small_to_seal_are_told(tmp_path: Path) -> None:
    rows = "".join(f'{{"question": "{n}", "answer": "{n}"}}\n' for n in range(50))
    (tmp_path / "few.jsonl").write_text(rows)
    few = {"type": "jsonl", "path": str(tmp_path / "few.jsonl"), "family": "few"}
    found = findings(
        tmp_path, tasks=[{"type": "builtin", "families": ["sort"], "max_level": 2}, few], harness={"formats": None}
    )
    assert named(found, "tasks", Level.WARNING).startswith("1 of 3 (family, level) cells have too few distinct tasks")


def test_more_threads_than_cores_is_a_warning(tmp_path: Path) -> None:
    cores = os.cpu_count() or 1
    found = findings(tmp_path, fleet={"rollout_workers": cores, "trainers": cores, "threads_per_worker": 2})
    assert named(found, "fleet", Level.WARNING).startswith(f"asks for {4 * cores} threads on {cores} cores")
    assert not [f for f in findings(tmp_path, fleet={"rollout_workers": 1, "trainers": 1}) if f.what == "fleet"]


def test_a_full_disk_is_an_error_that_names_the_folder_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MIN_FREE_BYTES", shutil.disk_usage(tmp_path).total + 2**30)
    assert named(findings(tmp_path), "run_dir", Level.ERROR).startswith(f"{tmp_path} has ")


def test_all_errors_are_told_at_once_and_warnings_refuse_nothing() -> None:
    made = [Finding(level=level, what=level.value, message="why") for level in Level]
    with pytest.raises(PreflightError) as caught:
        PreflightReport(findings=(*made, Finding(level=Level.ERROR, what="more", message="too"))).raise_if_failed()
    assert str(caught.value) == "error: why\nmore: too"
    PreflightReport(findings=tuple(f for f in made if f.level is not Level.ERROR)).raise_if_failed()


def test_it_loads_neither_torch_nor_ray(tmp_path: Path) -> None:
    config = RunConfig(run_dir=str(tmp_path / "run"))
    code = (
        "import sys; from coharness.config.schema import RunConfig; from coharness.loop.preflight import preflight; "
        f"preflight(RunConfig(run_dir={config.run_dir!r})).raise_if_failed(); "
        "assert not {'torch', 'ray'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)


def linear_judge(folder: Path, **files: str) -> dict[str, Any]:
    judge = {"type": "linear", "file": str(folder / "judge.json")}
    for name, text in {"anchors": "q", "pairs": "p", **files}.items():
        path = folder / f"{name}.jsonl"
        path.write_text(f'{{"question": "{text}", "better": "a", "worse": "b"}}\n')
        judge[name] = str(path)
    return {"reward": {"judge": judge}}


def test_a_linear_judge_is_read_before_the_run_starts(tmp_path: Path) -> None:
    sections = linear_judge(tmp_path)
    assert "there is no judge in" in named(findings(tmp_path, **sections), "reward.judge", Level.ERROR)
    write_model(LinearModel(weights={0: 1.0}), tmp_path / "judge.json")
    found = findings(tmp_path, **sections)
    assert "1 anchors, 1 pairs to replay; after alarms: audit, repair, freeze, roll_back" in named(
        found, "reward.judge", Level.INFO
    )
    assert "orders 0 of 1 anchors rightly" in named(found, "reward.judge", Level.WARNING)


def test_anchors_that_are_fitted_to_are_refused(tmp_path: Path) -> None:
    write_model(LinearModel(weights={0: 1.0}), tmp_path / "judge.json")
    found = findings(tmp_path, **linear_judge(tmp_path, pairs="q"))
    assert "1 questions stand in reward.judge.anchors and in reward.judge.pairs" in named(
        found, "reward.judge", Level.ERROR
    )
