"""Which source files a result depends on, each with a digest of what it does (`source_file`).

The sources of a cell are the modules of coharness, actors, clusters and experiments that its process has imported by its end, but
for what cannot change its result:

- of the studies layer, what starts, finds, checks and shows cells (`RUNS_CELLS`) and what builds their records, which are hashed
  themselves, and makes figures of results (`SUMS_UP`); a new module there counts until it is listed;
- the command line and the report, unless the study imports them;
- every study's `summary.py`, and what was imported through these alone. A study keeps there what sums its cells up, and takes
  nothing from there into `run_cell`.

What a process imports that a cell starts, nobody sees. Where `processes` saw one start, every file that it could reach counts:
all of the three packages, the study's whole folder, and all that its modules import or name in a string. Data files are no
sources: a cell's record holds digests of those that it reads.
"""

import hashlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import coharness
from coharness.studies.place import PACKAGE, Place, PlanPlace
from coharness.studies.source_file import PACKAGES, Source, read_source

STUDIES = "coharness/studies"
RUNS_CELLS = frozenset(
    f"{STUDIES}/{name}.py"
    for name in (
        "__init__", "bars", "cells", "check", "listing", "place", "processes", "results", "runner", "source_file", "sources",
        "table",
    )
)  # fmt: skip
SUMS_UP = frozenset(
    f"{STUDIES}/{name}.py"
    for name in (
        "contract", "ablation_config", "ablation_fraction", "ablation_plan", "ablation_statistics", "ablation_study",
        "ablation_summary",
    )
)  # fmt: skip
AROUND = ("coharness/__main__.py", "coharness/cli/", "coharness/report/")
"""Layers beside or above the studies."""


# A project's files ---------------------------------------------------------------------------------------------------


class Tree:
    """The source files of a project, each as it was when it was first asked for."""

    def __init__(self, root: Path) -> None:
        """Nothing is read yet.

        Args:
            root: the folder that holds `experiments`; the other packages are those that this process runs.
        """
        self._root, self._packages = root.resolve(), Path(coharness.__file__).resolve().parents[1]
        self._data: dict[str, bytes | None] = {}

    def name_of(self, file: Path, package: str) -> str:
        """A file's name in records: its path below the project, with slashes; the absolute path where it stands elsewhere."""
        root = self._root_of(package)
        return file.relative_to(root).as_posix() if file.is_relative_to(root) else file.as_posix()

    def data(self, name: str) -> bytes | None:
        """A file's bytes, None where there is none."""
        if name not in self._data:
            path = self._root_of(name.partition("/")[0]) / name
            try:
                self._data[name] = path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                self._data[name] = None
        return self._data[name]

    def source(self, name: str) -> Source | None:
        """What a file does, None where there is none."""
        data = self.data(name)
        return None if data is None else read_source(data, ".".join(name.split("/")[:-1]))

    def digest(self, name: str) -> str | None:
        """Digest of what a file does, None where there is none."""
        found = self.source(name)
        return None if found is None else found.digest

    def digests(self, names: Iterable[str]) -> dict[str, str]:
        """Digests of files that are there, by name."""
        return {name: digest for name in sorted(names) if (digest := self.digest(name)) is not None}

    def names(self, *packages: str) -> list[str]:
        """All source files of these packages."""
        return sorted(
            path.relative_to(self._root_of(package)).as_posix()
            for package in packages
            for path in (self._root_of(package) / package).rglob("*.py")
        )

    def changed(self, recorded: Mapping[str, str]) -> tuple[str, ...]:
        """Those of the recorded files that are gone, or do something else."""
        return tuple(name for name, digest in sorted(recorded.items()) if self.digest(name) != digest)

    def read_all(self) -> None:
        """Read every file now: the tree is of this moment."""
        for name in self.names(*PACKAGES):
            self.data(name)

    def _root_of(self, package: str) -> Path:
        return self._root if package == PACKAGE else self._packages


def _closure(
    tree: Tree, entries: Iterable[str], within: Collection[str], stop: Collection[str] = frozenset()
) -> set[str]:
    """Files that these reach by imports, themselves included."""
    found: set[str] = set()
    waiting = [name for name in entries if name in within and name not in stop]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        source = tree.source(name)
        for dotted in source.names if source else ():
            parts = dotted.split(".")
            paths = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
            files = [file for path in paths for file in (f"{path}.py", f"{path}/__init__.py")]
            waiting += [file for file in files if file in within and file not in stop]
    return found


# Of what -------------------------------------------------------------------------------------------------------------


def code_digest(place: Place, tree: Tree) -> str:
    """SHA-256 over the bytes of all that a study's cells, and processes that they start, can import.

    A half-written cell goes on with this very code alone: what its first half had imported, nobody knows.
    """
    digest = hashlib.sha256()
    for name in sorted(_within_reach(place, tree, set(tree.names(PACKAGE))) - RUNS_CELLS - SUMS_UP):
        data = tree.data(name) or b""
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def cell_sources(place: Place, tree: Tree, processes: Sequence[str]) -> dict[str, str]:
    """Digests of the files that the result of the cell which this process has run depends on; see the module.

    Args:
        place: the study that owns the cell.
        tree: the files as they are now.
        processes: processes that the cell has started; see `watch_processes`.
    """
    names = set(_loaded(tree))
    if processes:
        studies = {*tree.names(PACKAGE), *(name for name in names if name.startswith(f"{PACKAGE}/"))}
        # The closure of a study's imports does not see what it imports by a computed name; what is loaded here does.
        summed_up = _closure(tree, _summaries(studies), studies) - _runs(place, tree, studies)
        names = _within_reach(place, tree, studies) | (names - summed_up)
    else:
        runs = _runs(place, tree, names)
        summed_up = _closure(tree, [*_summaries(names), *SUMS_UP], names) - runs
        names -= summed_up | ({name for name in names if name.startswith(AROUND)} - runs)
    return tree.digests(names - RUNS_CELLS - SUMS_UP)


def summary_sources(place: Place, tree: Tree) -> dict[str, str]:
    """Digests of the files that figures may depend on once the cells are there: all that the study has imported here."""
    names = set(_loaded(tree))
    entry = f"{STUDIES}/ablation_study.py" if isinstance(place, PlanPlace) else _entry(place)
    found = _closure(tree, [entry], names, RUNS_CELLS)
    return tree.digests(name for name in found if not name.startswith(AROUND))


def _runs(place: Place, tree: Tree, within: Collection[str]) -> set[str]:
    """Those of some files that a study imports, but not by way of its summary."""
    return _closure(tree, [_entry(place)], within, _summaries(within) | SUMS_UP | RUNS_CELLS)


def _within_reach(place: Place, tree: Tree, studies: set[str]) -> set[str]:
    """Files that processes of a cell can import: the packages, the study's folder, and what it imports of other studies."""
    runs = _runs(place, tree, studies)
    folder = _entry(place).rpartition("/")[0] + "/"
    own = {name for name in studies if name.startswith(folder)} - _closure(tree, _summaries(studies), studies)
    return {*tree.names("coharness", "actors", "clusters"), *runs, *own}


def _entry(place: Place) -> str:
    """The file that carries a study's cells out."""
    return f"{STUDIES}/ablation_cells.py" if isinstance(place, PlanPlace) else f"{PACKAGE}/{place.name}/study.py"


def _summaries(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if name.startswith(f"{PACKAGE}/") and name.endswith("/summary.py"))


def _loaded(tree: Tree) -> Iterator[str]:
    for module_name, module in list(sys.modules.items()):
        package = module_name.partition(".")[0]
        file = getattr(module, "__file__", None) if package in PACKAGES else None
        if file is not None and file.endswith(".py"):
            yield tree.name_of(Path(file).resolve(), package)
