"""A run's folder: the only interface between a run and everything that looks at it.

    config.yaml   journal/   replay/   weights/   harnesses/   judges/   logs/   lease.json
    snapshot.json   metrics.jsonl   sealed.json   report.html

Invariants: one writer, the holder of the lease; a higher epoch ends the right of a lower one to write.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coharness.config.load import dump_config, load_config
from coharness.config.schema import RunConfig
from coharness.records.errors import ConfigError, PreflightError


@dataclass(frozen=True, slots=True)
class RunDir:
    """Paths of one run, and its lease."""

    path: Path

    @classmethod
    def create(cls, config: RunConfig) -> "RunDir":
        """Make the folder of a new run.

        Raises:
            ConfigError: the folder exists.
        """
        path = Path(config.run_dir).absolute()
        if path.exists():
            raise ConfigError(
                f"run_dir {path} exists already; go on with `coharness resume {config.run_dir}`, or choose another folder "
                "with run_dir=..."
            )
        run = cls(path)
        for folder in (run.journal_dir, run.replay_dir, run.weights_dir, run.harnesses_dir, run.logs_dir):
            folder.mkdir(parents=True)
        run.config_path.write_text(dump_config(config), encoding="utf-8")
        return run

    @classmethod
    def open(cls, path: Path | str) -> "RunDir":
        """The folder of a run that exists.

        Raises:
            ConfigError: there is no run there.
        """
        run = cls(Path(path).absolute())
        if not run.config_path.is_file():
            raise ConfigError(f"{path} is not a run's folder: it holds no config.yaml")
        return run

    @property
    def config_path(self) -> Path:
        """The resolved config."""
        return self.path / "config.yaml"

    @property
    def journal_dir(self) -> Path:
        """Journal segments."""
        return self.path / "journal"

    @property
    def replay_dir(self) -> Path:
        """Arrow segments of episodes."""
        return self.path / "replay"

    @property
    def weights_dir(self) -> Path:
        """Published weights."""
        return self.path / "weights"

    @property
    def harnesses_dir(self) -> Path:
        """Genomes, for people to read."""
        return self.path / "harnesses"

    @property
    def judges_dir(self) -> Path:
        """Versions of a linear judge."""
        return self.path / "judges"

    @property
    def logs_dir(self) -> Path:
        """Logs of processes."""
        return self.path / "logs"

    @property
    def snapshot_path(self) -> Path:
        """Digest of the state when the run last stopped."""
        return self.path / "snapshot.json"

    @property
    def metrics_path(self) -> Path:
        """Scalars over time."""
        return self.path / "metrics.jsonl"

    @property
    def sealed_path(self) -> Path:
        """The sealed report's data."""
        return self.path / "sealed.json"

    @property
    def report_path(self) -> Path:
        """The report."""
        return self.path / "report.html"

    @property
    def lease_path(self) -> Path:
        """Who may write."""
        return self.path / "lease.json"

    @property
    def run_id(self) -> str:
        """The run's name: its folder's."""
        return self.path.name

    def load_config(self) -> RunConfig:
        """The resolved config."""
        return load_config(self.config_path, [])

    def acquire_lease(self) -> int:
        """Take the right to write; returns the new epoch.

        Raises:
            PreflightError: a live process of this machine holds it.
        """
        old = self._read_lease()
        if old and old["boot_id"] == _boot_id() and old["pid"] != os.getpid() and _is_alive(old["pid"], old["start"]):
            raise PreflightError(
                f"run {self.path} is being written by process {old['pid']}; stop it first (Ctrl-C, or kill that process)"
            )
        epoch = int(old["epoch"]) + 1 if old else 1
        lease = {"epoch": epoch, "pid": os.getpid(), "boot_id": _boot_id(), "start": _start_time(os.getpid())}
        temp = self.lease_path.with_suffix(".tmp")
        temp.write_text(json.dumps(lease), encoding="utf-8")
        temp.replace(self.lease_path)
        return epoch

    def check_epoch(self, epoch: int) -> None:
        """Refuse to write for an epoch that has been succeeded.

        Raises:
            PreflightError: another process took over.
        """
        lease = self._read_lease()
        if lease and int(lease["epoch"]) > epoch:
            raise PreflightError(
                f"run {self.path} was taken over (epoch {lease['epoch']} > {epoch}); this process stops"
            )

    def write_snapshot(self, seq: int, digest: str) -> None:
        """Note the state's digest after frame `seq`."""
        self.snapshot_path.write_text(
            json.dumps({"seq": seq, "state_digest": digest, "written_at": time.time()}), encoding="utf-8"
        )

    def read_snapshot(self) -> dict[str, Any] | None:
        """What `write_snapshot` noted last."""
        if not self.snapshot_path.is_file():
            return None
        data: dict[str, Any] = json.loads(self.snapshot_path.read_text(encoding="utf-8"))
        return data

    def _read_lease(self) -> dict[str, Any] | None:
        if not self.lease_path.is_file():
            return None
        data: dict[str, Any] = json.loads(self.lease_path.read_text(encoding="utf-8"))
        return data


def _boot_id() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.is_file() else "unknown"


def _start_time(pid: int) -> str:
    """The kernel's start time of a process: a pid that was reused has another one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _is_alive(pid: int, start: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _start_time(pid) == start
