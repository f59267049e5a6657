"""A toy study of numpy cells, the project around it, and how tests run it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from coharness.studies.place import StudyPlace
from coharness.studies.results import Results
from coharness.studies.runner import RunRequest, run_study

TOY = '''
"""A toy: the mean of some normal draws, better by `shift` in one arm."""

import os
import time
from dataclasses import dataclass

import numpy as np

from coharness.studies.contract import Cell, Figure, Summary, Table


@dataclass(frozen=True, kw_only=True)
class Toy:
    name: str = "toy"
    question: str = "Is the shifted arm better?"
    num_seeds: int = 2
    cell_deadline_s: float = 60.0

    def budget(self, *, quick, rollouts):
        return {"draws": (10 if quick else 100) if rollouts is None else rollouts}

    def cells(self, seeds, *, quick, rollouts):
        draws = self.budget(quick=quick, rollouts=rollouts)["draws"]
        return [
            Cell(arm=arm, seed=seed, config={"draws": draws, "shift": shift})
            for seed in seeds
            for arm, shift in (("plain", 0.0), ("shifted", 5.0))
        ]

    def run_cell(self, cell, folder):
        marker = folder / "runs.txt"
        with marker.open("a") as file:
            file.write("x")
        if (folder.parent / "fail").exists():
            raise RuntimeError("the toy was told to fail")
        if (folder.parent / "hang").exists():
            (folder / "pid").write_text(str(os.getpid()))
            time.sleep(60)
        rng = np.random.default_rng([cell.seed, int(cell.config["shift"])])
        return {
            "mean": float(rng.normal(cell.config["shift"], 1, cell.config["draws"]).mean()),
            "threads": os.environ["OMP_NUM_THREADS"],
        }

    def summarise(self, cells):
        mean = {(c.arm, c.seed): r["mean"] for c, r in cells.items()}
        seeds = tuple(sorted({c.seed for c in cells}))
        differences = [mean["shifted", s] - mean["plain", s] for s in seeds]
        low = high = None
        if len(seeds) > 1:
            from coharness.stats.paired import paired_t_interval

            interval = paired_t_interval(differences)
            low, high = interval.low, interval.high
        value = float(np.mean(differences))
        return Summary(
            figures=(Figure(name="gain", value=value, low=low, high=high, unit="sd", seeds=seeds),),
            tables=(Table(title="Gains", columns=("seed", "gain"), rows=tuple(zip(seeds, differences))),),
            plots={"gain.svg": "<svg/>"},
        )


STUDY = Toy()
'''
BARS = [{"figure": "gain", "above": 0, "on": "low", "source": "the toy", "seeds": 2}]


def git(root: Path, *words: str) -> None:
    names = {f"GIT_{who}_{what}": "toy@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(
        ["git", "-C", str(root), *words], check=True, capture_output=True, timeout=60, env={**os.environ, **names}
    )


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "as it stands")


def write_study(root: Path, name: str, source: str, bars: object) -> None:
    folder = root / "experiments" / name
    folder.mkdir(parents=True)
    for package in (root / "experiments", folder):
        (package / "__init__.py").touch()
    (folder / "study.py").write_text(source)
    (folder / "bars.json").write_text(json.dumps(bars))


def forget_studies() -> None:
    """Forget the imported studies, as a new process would."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "experiments"]:
        del sys.modules[name]


def run(place: StudyPlace, **wanted: object) -> tuple[Results, list[str]]:
    """Run a study; its results, and what it said."""
    said: list[str] = []
    results = run_study(RunRequest(place=place, **wanted), said.append)  # type: ignore[arg-type]
    return results, said


def write_project(root: Path) -> None:
    """A project with the toy in it, committed."""
    write_study(root, "toy", TOY, BARS)
    (root / ".gitignore").write_text("/runs/\n__pycache__/\n*.svg\n")
    git(root, "init", "-q")
    commit(root)


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
