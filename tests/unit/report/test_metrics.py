import json
import logging
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from coharness.report import metrics, tensorboard
from coharness.report.history import read_history


def lines_of(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in metrics.write(run_dir).read_text(encoding="utf-8").splitlines()]


def test_every_line_names_area_and_thing_and_stands_on_three_axes(run_copy: Path) -> None:
    lines = lines_of(run_copy)
    assert {tuple(line["axes"]) for line in lines} == {("rollouts", "elapsed_s", "updates")}
    assert all(line["name"].count("/") == 1 for line in lines)
    elapsed = [line["axes"]["elapsed_s"] for line in lines]
    assert elapsed == sorted(elapsed)


def test_rates_carry_their_numerator_and_denominator(run_copy: Path) -> None:
    rates = [line for line in lines_of(run_copy) if "denominator" in line]
    assert {"track/success", "throughput/episodes_per_s", "staleness/mean"} <= {line["name"] for line in rates}
    for line in rates:
        assert line["value"] == pytest.approx(line["numerator"] / line["denominator"])


def test_no_name_holds_a_member_or_a_family(run_copy: Path) -> None:
    lines = lines_of(run_copy)
    names = {line["name"] for line in lines}
    labels = {value for line in lines for value in line["labels"].values()}
    assert {"p0", "p3", "count"} <= labels
    assert not [name for name in names if any(label in name.split("/")[1].split("_") for label in labels)]


def test_writing_again_gives_the_same_file(run_copy: Path) -> None:
    first = metrics.write(run_copy).read_text()
    assert metrics.write(run_copy).read_text() == first


def test_tensorboard_reads_back_what_was_written_and_a_second_export_replaces_the_first(run_copy: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for _ in range(2):
        folder = tensorboard.write_scalars(run_copy)
    assert folder is not None
    expected: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for scalar in metrics.scalars(read_history(run_copy)):
        if scalar.name == "track/success":
            expected[scalar.name].append((scalar.at.rollouts, scalar.value))
    events = accumulator.EventAccumulator(str(folder / "run"), size_guidance={"scalars": 0}).Reload()
    found = [(event.step, event.value) for event in events.Scalars("track/success")]
    assert found == [(step, pytest.approx(value)) for step, value in expected["track/success"]]
    assert len(list((folder / "run").iterdir())) == 1
    assert (folder / "member=p0").is_dir()


def test_without_the_package_nothing_is_written_and_the_reason_is_said(
    run_copy: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with caplog.at_level(logging.WARNING):
        assert tensorboard.write_scalars(run_copy) is None
    assert "pip install tensorboard" in caplog.text
    assert not (run_copy / "tensorboard").exists()


def test_neither_the_report_nor_the_export_imports_torch(run_copy: Path) -> None:
    code = (
        "import sys; from coharness.report import write_report, terminal_summary; "
        "from coharness.report.tensorboard import write_scalars; "
        f"run = {str(run_copy)!r}; write_report(run); terminal_summary(run); write_scalars(run); "
        "sys.exit(bool({'torch', 'transformers', 'ray'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
