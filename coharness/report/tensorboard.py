"""Owns the export of a run's scalars to TensorBoard's event files, through TensorBoard's own writer and without torch.

Each label becomes a run of its own (`run`, `member=p0`, `family=sort`), so that curves of one metric lie over each other;
the step is the number of charged rollouts. Files are written anew from the journal each time.
"""

import logging
from collections import defaultdict
from pathlib import Path

from coharness.loop.run_dir import RunDir
from coharness.report.history import read_history
from coharness.report.metrics import Scalar, scalars

FOLDER = "tensorboard"
log = logging.getLogger(__name__)


def write_scalars(run_dir: Path | str) -> Path | None:
    """Write `tensorboard/` in the run directory and give its path; None, with a warning, without the package.

    Raises:
        ConfigError, JournalError: as `read_history` does.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        log.warning(
            "the tensorboard package is missing, so no event files were written; `pip install tensorboard` adds it"
        )
        return None
    run = RunDir.open(run_dir)
    history = read_history(run_dir)
    folder = run.path / FOLDER
    for stale in folder.glob("*/events.out.tfevents.*"):
        stale.unlink()
    by_run: dict[str, list[Scalar]] = defaultdict(list)
    for scalar in scalars(history):
        by_run[_run_name(scalar)].append(scalar)
    for name, points in sorted(by_run.items()):
        writer = EventFileWriter(str(folder / name))
        for point in points:
            value = Summary.Value(tag=point.name, simple_value=point.value)
            time = history.started_at + point.at.elapsed_s
            writer.add_event(Event(wall_time=time, step=_step(point), summary=Summary(value=[value])))
        writer.close()
    return folder


def _run_name(scalar: Scalar) -> str:
    """A folder name from the labels; what is no letter, digit or one of `=,_-` becomes `_`."""
    name = ",".join(f"{key}={value}" for key, value in sorted(scalar.labels.items())) or "run"
    return "".join(c if c.isascii() and (c.isalnum() or c in "=,_-") else "_" for c in name)


def _step(scalar: Scalar) -> int:
    """Rollouts of the moment; throughput windows know their time alone and count in seconds."""
    return round(scalar.at.elapsed_s) if scalar.name.startswith("throughput/") else scalar.at.rollouts
