"""One cell's folder, and the process that fills it.

    spec.json   the cell, and the digest of the whole code as it was when the cell was asked for
    begun.txt   the digest of the whole code that began it
    log.txt     all that its process printed
    cell.json   its result and its sources; there only when it is finished
    lock        held by the process that runs it

The folder's name is the digest of the cell's record and that of the code. A half-written cell goes on with the very code that
began it, under any other it is begun anew. A finished one is found again under any code exactly when each of its own sources
(`coharness.studies.sources`) does what it did. Invariants: cell.json appears whole or not at all; one process runs a cell at a
time; a process whose sources changed under it leaves no result.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import coharness
from coharness.studies.contract import JSON, Cell, StudyError
from coharness.studies.place import Place, PlanPlace, StudyPlace, load_study
from coharness.studies.processes import watch_processes
from coharness.studies.results import write_whole
from coharness.studies.sources import Tree, cell_sources, code_digest

CELL_SCHEMA = 2
SHOWN_FILES = 5
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
class Finished:
    """What a finished cell left."""

    result: Mapping[str, JSON]
    sources: Mapping[str, str]
    "Digests of the files that it depends on."


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFolder:
    """Where one cell runs."""

    place: Place
    "The study that owns the cell."
    cell: Cell
    code: str
    "Digest of the whole code as it was when the cell was asked for."

    @property
    def path(self) -> Path:
        """The folder."""
        return self.place.cells_folder / f"{self.cell.digest}-{self.code[:16]}"

    @property
    def log_path(self) -> Path:
        """What its process printed."""
        return self.path / "log.txt"

    def finished(self, tree: Tree) -> Finished | None:
        """What the cell left, None where it is not finished, or where a file that it depends on does something else now.

        Raises:
            StudyError: cell.json is there but is not this cell's.
        """
        path = self.path / "cell.json"
        if not path.is_file():
            return None
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            known = [data["schema"], data["cell_digest"]]
            found = Finished(result=data["result"], sources=dict(data["sources"]))
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise StudyError(f"{path} is damaged ({error}); delete it and run the study again") from error
        if known != [CELL_SCHEMA, self.cell.digest]:
            raise StudyError(f"{path} is of another cell or another schema; delete it and run the study again")
        return None if tree.changed(found.sources) else found

    def result(self) -> Mapping[str, JSON] | None:
        """The finished cell's result under the sources as they are now, None where there is none; see `finished`."""
        found = self.finished(Tree(self.place.root))
        return None if found is None else found.result

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
    spec = _spec_of(folder)
    try:
        return CellFolder(
            place=_place_of(folder, spec),
            cell=Cell(arm=spec["arm"], seed=spec["seed"], config=spec["config"]),
            code=spec["code_digest"],
        )
    except (KeyError, IndexError) as error:
        raise StudyError(f"{folder} is no folder of a cell ({error}); `coharness study run` makes them") from error


def find_folder(place: Place, cell: Cell, code: str, tree: Tree) -> CellFolder:
    """The folder of the cell's result that still holds; where there is none, that in which it runs under this code.

    Raises:
        StudyError: a folder of this cell is damaged.
    """
    here = CellFolder(place=place, cell=cell, code=code)
    for path in sorted(place.cells_folder.glob(f"{cell.digest}-*/spec.json")):
        if path.parent != here.path:
            other = replace(here, code=_spec_of(path.parent)["code_digest"])
            if other.path == path.parent and other.finished(tree) is not None:
                return other
    return here


def _spec_of(folder: Path) -> Mapping[str, JSON]:
    try:
        spec: Mapping[str, JSON] = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
        return {**spec, "code_digest": str(spec["code_digest"])}
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise StudyError(f"{folder} is no folder of a cell ({error}); `coharness study run` makes them") from error


def _place_of(folder: Path, spec: Mapping[str, JSON]) -> Place:
    plan = spec.get("plan")
    if plan is not None:
        return PlanPlace(file=Path(plan["file"]), folder=Path(plan["folder"]))
    return StudyPlace(root=folder.parents[2 + len(spec["study"].split("/"))], name=spec["study"])


def carry_out(folder: Path) -> None:
    """Run the cell of a folder in this process and write its cell.json.

    Raises:
        StudyError: files that the cell depends on changed while it ran, or another process runs it.
    """
    here = read_spec(folder)
    tree = Tree(here.place.root)
    tree.read_all()
    with _lock(here.path), watch_processes() as processes:
        code = code_digest(here.place, tree)
        _begin(here.path, code)
        study = load_study(here.place)
        started, cpu = time.monotonic(), time.process_time()
        result = study.run_cell(here.cell, here.path)
        wall_s, cpu_s = time.monotonic() - started, time.process_time() - cpu
        sources = cell_sources(here.place, Tree(here.place.root), processes.started())
        changed = tree.changed(sources)
        if changed:
            raise StudyError(
                f"{shown(changed)} changed while the cell ran; its result would belong to no version of the code. Run the "
                "study again, and leave the sources alone meanwhile (a second checkout helps)"
            )
        data = {
            "schema": CELL_SCHEMA,
            "study": here.place.name,
            "arm": here.cell.arm,
            "seed": here.cell.seed,
            "code_digest": code,
            "cell_digest": here.cell.digest,
            "wall_s": round(wall_s, 3),
            "cpu_s": round(cpu_s, 3),
            "processes": processes.started(),
            "sources": sources,
            "result": dict(result),
        }
        write_whole(here.path / "cell.json", json.dumps(data, allow_nan=False, ensure_ascii=False) + "\n")


def _begin(folder: Path, code: str) -> None:
    """Leave what a process of this code has half written, and nothing of other code or of a result that no longer holds."""
    begun = folder / "begun.txt"
    if not begun.is_file() or begun.read_text(encoding="utf-8") != code or (folder / "cell.json").is_file():
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in ("spec.json", "log.txt", "lock"):
                path.unlink()
        write_whole(begun, code)


def shown(files: Sequence[str]) -> str:
    """Some files in words."""
    more = f" and {len(files) - SHOWN_FILES} more" if len(files) > SHOWN_FILES else ""
    return ", ".join(files[:SHOWN_FILES]) + more


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
