"""A search's folder.

    config.yaml   journal.jsonl   checkpoints/<segment>/   schedules/   logs/   result.json   lock

Invariants: a checkpoint's folder is there only when it is whole and durable; one process at a time holds the lock.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coharness.records.errors import ConfigError, PreflightError
from coharness.tune.events import SegmentId


@dataclass(frozen=True, slots=True)
class SearchDir:
    """Paths of one search."""

    path: Path

    @classmethod
    def create(cls, path: Path | str, config_text: str) -> "SearchDir":
        """Make the folder of a new search.

        Raises:
            ConfigError: the folder exists.
        """
        search = cls(Path(path).absolute())
        if search.path.exists():
            raise ConfigError(
                f"run_dir {search.path} exists already; go on with `coharness tune resume {path}`, or choose another "
                "folder with run_dir=..."
            )
        for folder in (search.checkpoints, search.logs):
            folder.mkdir(parents=True)
        search.config_path.write_text(config_text, encoding="utf-8")
        return search

    @classmethod
    def open(cls, path: Path | str) -> "SearchDir":
        """The folder of a search that exists.

        Raises:
            ConfigError: there is none.
        """
        search = cls(Path(path).absolute())
        if not (search.config_path.is_file() and search.checkpoints.is_dir()):
            raise ConfigError(f"{path} is not a search's folder: it holds no config.yaml and no checkpoints")
        return search

    @property
    def config_path(self) -> Path:
        """The resolved config."""
        return self.path / "config.yaml"

    @property
    def journal_path(self) -> Path:
        """All events."""
        return self.path / "journal.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Saved members."""
        return self.path / "checkpoints"

    @property
    def logs(self) -> Path:
        """What workers printed."""
        return self.path / "logs"

    @property
    def result_path(self) -> Path:
        """The best member, once the search is over."""
        return self.path / "result.json"

    def checkpoint(self, segment: SegmentId) -> Path:
        """The folder of a saved member."""
        return self.checkpoints / segment

    def forget(self, keep: frozenset[SegmentId]) -> None:
        """Delete all checkpoints but these, half-written ones included."""
        for folder in self.checkpoints.iterdir():
            if folder.name not in keep:
                shutil.rmtree(folder, ignore_errors=True)

    def drop(self, segments: frozenset[SegmentId]) -> None:
        """Delete these checkpoints."""
        for segment in segments:
            shutil.rmtree(self.checkpoint(segment), ignore_errors=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the search for this process.

        Raises:
            PreflightError: another process holds it.
        """
        with (self.path / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise PreflightError(
                    f"another process drives the search in {self.path}; wait for it, or end it"
                ) from error
            yield


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace a JSON file so that a reader, and a crash, sees the old one or the new one."""
    temp = path.with_name(path.name + ".tmp")
    with temp.open("w", encoding="utf-8") as file:
        json.dump(data, file, indent=1, ensure_ascii=False, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temp.replace(path)


def make_durable(folder: Path) -> None:
    """Wait until all files below a folder, and the folder itself, are on disk."""
    for root, _, names in os.walk(folder):
        for name in names:
            _sync(os.path.join(root, name))
        _sync(root)


def publish(temp: Path, final: Path) -> None:
    """Give a durable folder its name; what an attempt that came to nothing left there is replaced."""
    if final.exists():
        shutil.rmtree(final)
    temp.rename(final)
    _sync(final.parent)


def _sync(path: str | Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
