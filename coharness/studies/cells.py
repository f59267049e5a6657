"""One cell's folder, and the process that fills it.

    spec.json   the cell, and the digest of the code that it is to run with
    log.txt     all that its process printed
    cell.json   its result; there only when it is finished
    lock        held by the process that runs it

The folder's name hashes the code's digest and the cell's record, so a finished cell is found again exactly when nothing that it
depends on has changed. Invariants: cell.json appears whole or not at all; one process runs a cell at a time; a process whose
sources changed under it leaves no result.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import coharness
from coharness.records.ids import content_hash
from coharness.studies.contract import JSON, Cell, StudyError
from coharness.studies.place import Place, PlanPlace, StudyPlace, load_study
from coharness.studies.results import code_digest, write_whole

CELL_SCHEMA = 1
GRACE_S = 10.0
"""Seconds a cell's process has to end by itself once it is asked to."""
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFolder:
    """Where one cell runs."""

    place: Place
    "The study that owns the cell."
    cell: Cell
    code: str
    "Digest of the code it is to run with."

    @property
    def path(self) -> Path:
        """The folder."""
        return self.place.cells_folder / content_hash([self.code, self.cell.digest])

    @property
    def log_path(self) -> Path:
        """What its process printed."""
        return self.path / "log.txt"

    def result(self) -> Mapping[str, JSON] | None:
        """The finished cell's result, None while there is none.

        Raises:
            StudyError: cell.json is there but is not this cell's.
        """
        path = self.path / "cell.json"
        if not path.is_file():
            return None
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            known = [data["schema"], data["code_digest"], data["cell_digest"]]
            result: Mapping[str, JSON] = data["result"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise StudyError(f"{path} is damaged ({error}); delete it and run the study again") from error
        if known != [CELL_SCHEMA, self.code, self.cell.digest]:
            raise StudyError(f"{path} is the result of another cell or other code; delete it and run the study again")
        return result

    def write_spec(self) -> None:
        """Write the cell down for its process."""
        self.path.mkdir(parents=True, exist_ok=True)
        spec = {
            "schema": CELL_SCHEMA,
            "study": self.place.name,
            "code_digest": self.code,
            "arm": self.cell.arm,
            "seed": self.cell.seed,
            "config": dict(self.cell.config),
        }
        if isinstance(self.place, PlanPlace):
            spec["plan"] = {"file": str(self.place.file), "folder": str(self.place.folder)}
        write_whole(self.path / "spec.json", json.dumps(spec, indent=1, allow_nan=False) + "\n")

    def log_tail(self, num_lines: int) -> list[str]:
        """The last lines of its log that hold anything."""
        if not self.log_path.is_file():
            return []
        with self.log_path.open("rb") as file:
            file.seek(max(0, self.log_path.stat().st_size - 16_384))
            text = file.read().decode(errors="replace")
        return [line.rstrip() for line in text.splitlines() if line.strip()][-num_lines:]


def read_spec(folder: Path) -> CellFolder:
    """The cell whose folder this is.

    Raises:
        StudyError: the folder is no cell's.
    """
    folder = folder.absolute()
    try:
        spec = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
        return CellFolder(
            place=_place_of(folder, spec),
            cell=Cell(arm=spec["arm"], seed=spec["seed"], config=spec["config"]),
            code=spec["code_digest"],
        )
    except (OSError, json.JSONDecodeError, KeyError, IndexError) as error:
        raise StudyError(f"{folder} is no folder of a cell ({error}); `coharness study run` makes them") from error


def _place_of(folder: Path, spec: Mapping[str, JSON]) -> Place:
    plan = spec.get("plan")
    if plan is not None:
        return PlanPlace(file=Path(plan["file"]), folder=Path(plan["folder"]))
    return StudyPlace(root=folder.parents[2 + len(spec["study"].split("/"))], name=spec["study"])


def carry_out(folder: Path) -> None:
    """Run the cell of a folder in this process and write its cell.json.

    Raises:
        StudyError: the sources are not those that the cell was made for, before it ran or after; or another process runs it.
    """
    here = read_spec(folder)
    _refuse_other_code(here, "before the cell ran")
    study = load_study(here.place)
    with _lock(here.path):
        started, cpu = time.monotonic(), time.process_time()
        result = study.run_cell(here.cell, here.path)
        _refuse_other_code(here, "while the cell ran")
        data = {
            "schema": CELL_SCHEMA,
            "study": here.place.name,
            "arm": here.cell.arm,
            "seed": here.cell.seed,
            "code_digest": here.code,
            "cell_digest": here.cell.digest,
            "wall_s": round(time.monotonic() - started, 3),
            "cpu_s": round(time.process_time() - cpu, 3),
            "result": dict(result),
        }
        write_whole(here.path / "cell.json", json.dumps(data, allow_nan=False, ensure_ascii=False) + "\n")


def _refuse_other_code(here: CellFolder, when: str) -> None:
    if code_digest(here.place) != here.code:
        raise StudyError(
            f"the sources of coharness or of {here.place}/study.py changed {when}; its result would belong to no version of "
            "the code. Run the study again, and leave the sources alone meanwhile (a second checkout helps)"
        )


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "(unknown)"
            raise StudyError(
                f"the cell in {folder} is being run by process {holder}; wait for it, or end it"
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


# Its process --------------------------------------------------------------------------------------------------------


class CellProcess(Protocol):
    """What carries a cell out, wherever it runs; the cell's folder says how it went."""

    def wait(self) -> int:
        """Block until it is over: 0, an exit code, or a signal's number negated."""
        ...

    def end(self) -> None:
        """End it now; a cell is resumable at every moment."""
        ...


Launch = Callable[[CellFolder], CellProcess]
"""Starts what carries a cell out."""


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """A process of this machine."""

    process: "subprocess.Popen[bytes]"

    def wait(self) -> int:
        """See `CellProcess.wait`."""
        return self.process.wait()

    def end(self) -> None:
        """See `CellProcess.end`."""
        end(self.process)


def start_here(here: CellFolder) -> CellProcess:
    """A cell in a process of this machine."""
    return LocalProcess(start(here))


def start(here: CellFolder) -> "subprocess.Popen[bytes]":
    """Start the process of a cell, with one thread for each library, its output going to the log."""
    here.write_spec()
    package_root = str(Path(coharness.__file__).resolve().parents[1])
    paths = [str(here.place.root), package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    with here.log_path.open("ab") as log:
        log.write(f"started {datetime.now(UTC).isoformat(timespec='seconds')}\n".encode())
        log.flush()
        # A session of its own: Ctrl-C in the terminal reaches the runner alone, which then ends its cells in order.
        return subprocess.Popen(
            [sys.executable, "-m", "coharness", "study", "cell", str(here.path)],
            cwd=here.place.root,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def end(process: "subprocess.Popen[bytes]", grace_s: float = GRACE_S) -> None:
    """End a cell's process and what it started, by their group; a cell is resumable at every moment."""
    _signal(process, signal.SIGTERM)
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGKILL)
        process.wait(grace_s)


def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    if process.poll() is None:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
