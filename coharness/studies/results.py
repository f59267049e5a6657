"""results.json: the figures of a study with all that is needed to know whether they still hold.

`sources` are the files that its cells depend on, each with a digest of what it did; `summary_sources` those besides that turned
cells into figures, which can be done again in seconds; `config_digest` is of the cells' records. What counts as a source, and
what its digest does not see, stands in `coharness.studies.sources`.
"""

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import coharness
from coharness.records.ids import canonical_json, content_hash
from coharness.studies.contract import Cell, Figure, StudyError, Table

RESULTS_SCHEMA = 2
PACKAGES = ("numpy", "scipy", "pyarrow", "torch", "transformers", "tokenizers", "peft", "ray")


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A study's results, as results.json holds them."""

    study: str
    created: str
    "UTC, ISO 8601."
    command: str
    "The command line that makes them again."
    seeds: tuple[int, ...]
    rollouts: int | None
    "What `--rollouts` said, None for the study's own budget."
    budget: Mapping[str, float]
    versions: Mapping[str, str]
    config_digest: str
    quick: bool
    num_cells: int
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...]
    sources: Mapping[str, str]
    "File below the project -> digest, of all that any of the cells depends on."
    summary_sources: Mapping[str, str]
    "The same of what the figures depend on besides."

    @property
    def code_digest(self) -> str:
        """Hash of what the cells' sources do."""
        return content_hash(self.sources, 32)

    def figure(self, name: str) -> Figure | None:
        """The figure of this name, None where there is none."""
        return next((figure for figure in self.figures if figure.name == name), None)


def write_results(path: Path, results: Results) -> None:
    """Write results.json, whole or not at all.

    Raises:
        StudyError: a figure is not finite.
    """
    data = {"schema": RESULTS_SCHEMA, **asdict(results)}
    try:
        text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        bad = [f.name for f in results.figures if not _is_plain(f)]
        raise StudyError(
            f"{results.study}: figures {', '.join(bad) or 'in a table'} are not finite numbers; mend `summarise`"
        ) from error
    write_whole(path, text + "\n")


def _is_plain(figure: Figure) -> bool:
    try:
        canonical_json(asdict(figure))
    except ValueError:
        return False
    return True


def write_whole(path: Path, text: str) -> None:
    """Replace a file's text so that a reader, and a crash, sees the old text or the new one."""
    temp = path.with_name(path.name + ".tmp")
    with temp.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temp.replace(path)


def read_results(path: Path) -> Results:
    """Read results.json.

    Raises:
        StudyError: it cannot be read, or has another schema.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        schema = data.pop("schema")
        if schema != RESULTS_SCHEMA:
            raise StudyError(
                f"{path} has schema {schema}, this code reads {RESULTS_SCHEMA}, which says which source files the results "
                "depend on; run the study again"
            )
        data["seeds"] = tuple(data["seeds"])
        data["figures"] = tuple(Figure(**{**f, "seeds": tuple(f["seeds"])}) for f in data["figures"])
        data["tables"] = tuple(
            Table(**{**t, "columns": tuple(t["columns"]), "rows": tuple(map(tuple, t["rows"]))}) for t in data["tables"]
        )
        return Results(**data)
    except (OSError, json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise StudyError(f"{path} cannot be read as results ({error}); run the study again") from error


def config_digest(cells: Iterable[Cell]) -> str:
    """Hash of the records of all cells, whatever their order."""
    return content_hash(sorted([cell.arm, cell.seed, cell.digest] for cell in cells), 32)


# Where it ran -------------------------------------------------------------------------------------------------------


def versions(root: Path) -> dict[str, str]:
    """Versions of Python and of the packages that figures may depend on, and the commit of the checkout."""
    found = {"coharness": coharness.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    found["machine"] = f"{platform.system()} {platform.machine()}"
    commit = git(root, "rev-parse", "HEAD")
    if commit is not None:
        found["commit"] = commit.strip() + ("" if dirty_sources(root) == [] else ", with changes")
    return found


SOURCES = ("*.py", "*.yaml", "*.toml", "bars.json")
"""Files whose change can move a figure or a bar; results, plots and READMEs are written after the fact."""


def dirty_sources(root: Path) -> list[str] | None:
    """Sources of the project that differ from its commit, new files included; None where it is no git checkout."""
    listed = git(root, "status", "--porcelain", "--untracked-files=all", "--", *SOURCES)
    return None if listed is None else [line[3:] for line in listed.splitlines()]


def git(root: Path, *words: str) -> str | None:
    """Standard output of a git command in `root`, None where there is no git or it fails."""
    try:
        done: subprocess.CompletedProcess[Any] = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return str(done.stdout) if done.returncode == 0 else None
