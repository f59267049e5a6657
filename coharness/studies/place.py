"""Where a study stands, and how its module is loaded.

A study is a folder `experiments/<name>` of a project, with `study.py` in it; the name may have two parts (`benchmarks/trl`).
It is imported as `experiments.<name>.study` from the project's root, so that its modules can import each other.
Everything a study writes while it runs lies under `runs/studies/<name>` of the same project. An ablation that is a YAML file
alone stands anywhere; its place is a `PlanPlace`.
"""

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coharness.records.errors import ConfigError
from coharness.studies.contract import Study

PACKAGE = "experiments"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlace:
    """A study's folder and all paths that follow from it."""

    root: Path
    "The project: the folder that holds `experiments`."
    name: str
    "The study's path below `experiments`, with slashes."

    @property
    def folder(self) -> Path:
        """What is checked in: study.py, bars.json, README.md, results.json."""
        return self.root / PACKAGE / self.name

    @property
    def module(self) -> str:
        """The name that its module is imported by."""
        return ".".join([PACKAGE, *self.name.split("/"), "study"])

    @property
    def cells_folder(self) -> Path:
        """Where its cells run; not checked in."""
        return self.root / "runs" / "studies" / self.name

    @property
    def bars_path(self) -> Path:
        """The accepted ranges."""
        return self.folder / "bars.json"

    @property
    def command(self) -> str:
        """The words of a command line that runs it."""
        return f"coharness study run {self}"

    def results_path(self, *, quick: bool) -> Path:
        """The figures; those of a smoke stand in a file of their own, so that they can never pass for the real ones."""
        return self.folder / ("results.quick.json" if quick else "results.json")

    def sibling(self, name: str) -> "StudyPlace":
        """Another study of the same project."""
        return StudyPlace(root=self.root, name=name)

    def __str__(self) -> str:
        return f"{PACKAGE}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPlace:
    """An ablation's YAML file, and where its results and cells lie."""

    file: Path
    "Absolute."
    folder: Path
    "Absolute; holds the results. Its cells lie beside it, where other ablations find them by their content."

    @property
    def name(self) -> str:
        """The file's name."""
        return self.file.stem

    @property
    def root(self) -> Path:
        """Where its cells' processes work; all paths of a cell are absolute."""
        return self.folder.parent

    @property
    def cells_folder(self) -> Path:
        """Where its cells run."""
        return self.folder.parent / "cells"

    @property
    def command(self) -> str:
        """The words of a command line that runs it."""
        return f"coharness ablate {self.file}"

    def results_path(self, *, quick: bool) -> Path:
        """The figures; those of a smoke stand in a file of their own."""
        return self.folder / ("results.quick.json" if quick else "results.json")

    def sibling(self, name: str) -> StudyPlace:
        """A plan's cells are its own.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"{self} shares no cells with the study {name!r}; leave out the owner")

    def __str__(self) -> str:
        return str(self.file)


Place = StudyPlace | PlanPlace


def locate(path: Path | str, here: Path | None = None) -> StudyPlace:
    """The study that `path` names.

    Args:
        path: `experiments/NAME`, `NAME`, or an absolute path of the study's folder.
        here: the folder that a relative path starts from, i.e. the project's root; the working directory where left out.

    Raises:
        ConfigError: there is no study.
    """
    given = Path(path)
    parts = list(given.parts[:-1] if given.name == "study.py" else given.parts)
    root = Path(here or Path.cwd()).absolute()
    if given.is_absolute():
        if PACKAGE not in parts:
            raise ConfigError(f"{given} lies in no folder named {PACKAGE}; name a study as {PACKAGE}/NAME")
        cut = len(parts) - 1 - parts[::-1].index(PACKAGE)
        root, parts = Path(*parts[:cut]), parts[cut:]
    if parts and parts[0] == PACKAGE:
        parts = parts[1:]
    place = StudyPlace(root=root, name="/".join(parts))
    if not parts or not (place.folder / "study.py").is_file():
        known = ", ".join(found.name for found in all_studies(root)) or "none"
        raise ConfigError(
            f"no study at {place.folder}: it holds no study.py; studies of this project: {known} "
            f"(commands are run from the folder that holds {PACKAGE}/)"
        )
    return place


def all_studies(root: Path) -> Iterator[StudyPlace]:
    """All studies of a project, by name."""
    folder = root / PACKAGE
    found = [*folder.glob("*/study.py"), *folder.glob("*/*/study.py")]
    for name in sorted(path.parent.relative_to(folder).as_posix() for path in found):
        yield StudyPlace(root=root, name=name)


def load_study(place: Place) -> Study:
    """Import a study's module and take its `STUDY`; or read an ablation's file.

    Raises:
        ConfigError: the module needs a package that is not installed, holds no STUDY, or STUDY is not one; or another
            project's `experiments` was imported into this process before.
    """
    if isinstance(place, PlanPlace):
        from coharness.studies.ablation_study import open_ablation

        return open_ablation(place)
    if str(place.root) not in sys.path:
        # A console script starts with its own folder on the path, not with the working directory.
        sys.path.insert(0, str(place.root))
    try:
        module = importlib.import_module(place.module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if place.module.startswith(missing) and missing:
            raise ConfigError(
                f"{place.module} cannot be imported from {place.root}: each folder from {PACKAGE} down to the study needs "
                f"an __init__.py ({error})"
            ) from error
        raise ConfigError(f"{place} needs the module {missing!r}, which is not installed ({error})") from error
    file = Path(str(module.__file__)).resolve()
    if file != (place.folder / "study.py").resolve():
        raise ConfigError(f"{place.module} was imported from {file}, expected {place.folder}; use a process a project")
    study = getattr(module, "STUDY", None)
    if study is None:
        raise ConfigError(f"{place}/study.py defines no STUDY; end it with STUDY = YourStudy(...)")
    if not isinstance(study, Study):
        lacking = [name for name in vars(Study) if not name.startswith("_") and not hasattr(study, name)]
        raise ConfigError(f"STUDY of {place} lacks {', '.join(lacking)}; see coharness.studies.contract.Study")
    if study.name != place.name:
        raise ConfigError(f"STUDY of {place} is named {study.name!r}, expected {place.name!r}: its path")
    return study
