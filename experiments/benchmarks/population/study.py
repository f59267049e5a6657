"""Population-based search against Ray Tune's PBT: cost of a step, quality for each step, a straggler, and kills.

The baseline needs `ray[tune]`, which the pinned environment does not hold: COHARNESS_RAY_TUNE_PYTHON names an interpreter that
has it (this one where left out). The smoke leaves the baseline out.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from coharness.records.errors import ConfigError
from coharness.studies.contract import Cell, Figure, StudyError, Summary, Table
from coharness.tune.api import drive, resume, search
from coharness.tune.config import TuneConfig, dump_tune_config, tune_config_from
from coharness.tune.events import Report
from coharness.tune.files import SearchDir
from coharness.tune.journal import read_journal
from coharness.tune.state import SearchState

HERE = Path(__file__).resolve().parent
PYTHON = "COHARNESS_RAY_TUNE_PYTHON"
MAX_STEPS = 1000
TARGET = 200.0
MEMBERS = 4
TRIANGLE = {
    "trainable": "experiments.benchmarks.population.toys:Triangle",
    "space": {"lr": {"type": "float", "low": 1e-4, "high": 0.02, "scale": "log"}},
    "initial": [{"lr": 1e-4}] * MEMBERS,
    "members": MEMBERS,
    "interval": 5,
    "budget": {"steps": MAX_STEPS},
    "score": {"target": TARGET},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulationStudy:
    """See `coharness.studies.contract.Study`."""

    name: str = "benchmarks/population"
    question: str = (
        "Is a population step cheaper than Ray Tune's, no worse for each step, and safe from stragglers and kills?"
    )
    num_seeds: int = 30
    cell_deadline_s: float = 1800.0

    def budget(self, *, quick: bool, rollouts: int | None) -> Mapping[str, float]:
        """Steps of each member."""
        if rollouts is not None:
            raise ConfigError(f"{self.name} spends steps, not rollouts; leave --rollouts out")
        return {"steps": 60 if quick else MAX_STEPS}

    def cells(self, seeds: Sequence[int], *, quick: bool, rollouts: int | None) -> list[Cell]:
        """Every seed climbs with both searches; the other arms need fewer seeds."""
        steps = int(self.budget(quick=quick, rollouts=rollouts)["steps"])
        base = {"steps": steps, "quick": quick}
        arms = ["triangle", "straggler", "kills"] if quick else ["tune", "triangle", "straggler", "kills"]
        few = {"straggler": 5, "kills": 10}
        return [
            Cell(arm=arm, seed=seed, config=base) for arm in arms for seed in seeds if seed < few.get(arm, len(seeds))
        ]

    def run_cell(self, cell: Cell, folder: Path) -> Mapping[str, Any]:
        """Run one search, in a folder of its own that is new at every attempt."""
        steps = int(cell.config["steps"])
        place = folder / f"search-{time.time_ns()}"
        match cell.arm:
            case "tune":
                return _tune(cell.seed, steps)
            case "triangle":
                return _triangle(place, cell.seed, steps)
            case "straggler":
                return _straggler(place, 20 if cell.config["quick"] else 100)
            case _:
                return _kills(place, cell.seed, steps if cell.config["quick"] else 200)

    def summarise(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
        """Figures and tables; see README."""
        return _summary(cells)


def _search(place: Path, seed: int, **settings: Any) -> TuneConfig:
    return tune_config_from({**TRIANGLE, "run_dir": str(place), "seed": seed, **settings})


def _timed(config: TuneConfig) -> tuple[dict[str, Any], float, float]:
    """Result, seconds in all, and seconds from the first report on."""
    folder = SearchDir.create(config.run_dir, dump_tune_config(config))
    began = time.perf_counter()
    first: list[float] = []

    def note(state: SearchState) -> None:
        if state.num_reports and not first:
            first.append(time.perf_counter())

    _, found = drive(folder, config, on_event=note)
    ended = time.perf_counter()
    return found, ended - began, ended - first[0]


def _reports(place: Path) -> list[Report]:
    return [e for frame in read_journal(place / "journal.jsonl") for e in frame if isinstance(e, Report)]


def _triangle(place: Path, seed: int, steps: int) -> dict[str, Any]:
    made = _search(place, seed, budget={"steps": steps}, pool={"type": "process", "workers": 2})
    found, seconds, marginal = _timed(made)
    reports = _reports(place)
    reached = found["why"].startswith("score reached")
    return {
        "steps_to_target": sum(r.steps for r in reports if r.slot == reports[-1].slot) if reached else None,
        "steps": found["steps"],
        "seconds": seconds,
        "marginal_seconds": marginal,
        "copies": found["copies"],
    }


def _tune(seed: int, steps: int) -> dict[str, Any]:
    python = os.environ.get(PYTHON, sys.executable)
    words = [python, str(HERE / "ray_tune_baseline.py"), str(MEMBERS), str(seed), str(steps), str(TARGET)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=1700)
    if done.returncode:
        tail = " ".join(done.stderr.strip().splitlines()[-1:])
        raise StudyError(f"Ray Tune did not run with {python} ({tail}); name an interpreter with ray[tune] in {PYTHON}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _straggler(place: Path, steps: int) -> dict[str, Any]:
    """Four members on two workers, one of them four times as slow, at equal steps; perfect packing is 4 members' time."""
    quick, slow = 0.02, 0.08
    initial = [{"seconds": slow}, *([{"seconds": quick}] * 3)]
    made = tune_config_from(
        {
            "run_dir": str(place),
            "trainable": "experiments.benchmarks.population.waiting:Waiting",
            "space": {"seconds": {"type": "float", "low": quick, "high": slow}},
            "initial": initial,
            "members": 4,
            "interval": 5,
            "budget": {"steps": steps},
            "selection": {"type": "none"},
            "pool": {"type": "process", "workers": 2},
        }
    )
    _, _, marginal = _timed(made)
    reports = _reports(place)
    # Work as it was measured, checkpoints included, without the interval of the first report, which the clock starts after.
    first = reports[0]
    work = {slot: sum(r.seconds for r in reports if r.slot == slot and r is not first) for slot in range(4)}
    return {"seconds": marginal, "perfect": max(sum(work.values()) / 2, max(work.values()))}


def _kills(place: Path, seed: int, steps: int) -> dict[str, Any]:
    """A search killed twice at random moments and resumed, against the same one in peace."""
    generator = np.random.default_rng([seed, 7])
    pool = {"workers": 2, "order": "rounds"}
    settings: dict[str, Any] = {"budget": {"steps": steps}, "score": {}}
    made = _search(place, seed, pool={"type": "process", **pool}, **settings)
    text = place.with_suffix(".yaml")
    text.write_text(dump_tune_config(made), encoding="utf-8")
    words, num_kills = [str(text)], 0
    for _ in range(2):
        running = subprocess.Popen(
            [sys.executable, "-m", "coharness", "tune", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        goal = _size(place) + int(generator.integers(500, 6000))
        while _size(place) < goal and running.poll() is None:
            time.sleep(0.002)
        if running.poll() is None:
            os.kill(running.pid, signal.SIGKILL)
            num_kills += 1
        running.wait()
        if not (place / "journal.jsonl").exists():
            raise StudyError(f"the search in {place} wrote no journal; run `coharness tune {text}` to see why")
        words = ["resume", str(place)]
    resume(place)
    peace = place.with_name(place.name + "-peace")
    search(_search(peace, seed, pool={"type": "inline", **pool}, **settings))
    return {"same": _decisions(place) == _decisions(peace), "kills": num_kills}


def _size(place: Path) -> int:
    path = place / "journal.jsonl"
    return path.stat().st_size if path.exists() else 0


def _decisions(place: Path) -> list[Any]:
    found = [e for frame in read_journal(place / "journal.jsonl") for e in frame]
    return [(e.slot, e.segment, dict(e.metrics)) if isinstance(e, Report) else e for e in found]


def _summary(cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
    def of(arm: str) -> dict[int, Mapping[str, Any]]:
        return {
            cell.seed: result
            for cell, result in sorted(cells.items(), key=lambda item: item[0].seed)
            if cell.arm == arm
        }

    ours, theirs, straggler, kills = (of(arm) for arm in ("triangle", "tune", "straggler", "kills"))
    seeds = tuple(ours)
    figures = [
        _mean("ours/ms_per_step", [1e3 * r["seconds"] / r["steps"] for r in ours.values()], "ms", seeds,
              "wall time of a whole search by its steps: start of the processes, journal and durable checkpoints included"),
        _mean("ours/marginal_ms_per_step", [1e3 * r["marginal_seconds"] / r["steps"] for r in ours.values()], "ms", seeds,
              "from the first report on"),
        _mean("straggler/over_perfect", [r["seconds"] / r["perfect"] for r in straggler.values()], "ratio", tuple(straggler),
              "wall time of a search with one member four times as slow, by perfect packing of the measured work"),
        _mean("kills/same_decisions", [float(r["same"]) for r in kills.values()], "share", tuple(kills),
              f"searches that decide as in peace after {sum(r['kills'] for r in kills.values())} kills"),
    ]  # fmt: skip
    if theirs:
        both = tuple(seed for seed in ours if seed in theirs)
        ratio = [(theirs[s]["seconds"] / theirs[s]["steps"]) / (ours[s]["seconds"] / ours[s]["steps"]) for s in both]
        # A search that never gets there counts as the whole budget, which favours the worse of the two.
        log = [np.log(_steps(theirs[s]) / _steps(ours[s])) for s in both]
        figures += [
            _mean("tune/ms_per_step", [1e3 * r["seconds"] / r["steps"] for r in theirs.values()], "ms", tuple(theirs), "as ours"),
            _mean("tune/marginal_ms_per_step", [1e3 * r["marginal_seconds"] / r["steps"] for r in theirs.values()], "ms",
                  tuple(theirs), "from the first report on"),
            _mean("speed/tune_by_ours", ratio, "ratio", both, "Tune's wall time for each step by ours, paired by seed"),
            _mean("quality/log_steps_tune_by_ours", [float(x) for x in log], "log ratio", both,
                  "log of Tune's steps to an accuracy of 200 by ours; above 0, ours needs fewer"),
        ]  # fmt: skip
    rows = tuple(
        (name, _median(arm), sum(r["steps_to_target"] is not None for r in arm.values()), len(arm))
        for name, arm in (("coharness", ours), ("Ray Tune PBT", theirs))
        if arm
    )
    table = Table(
        title="Triangle toy: steps of each member to an accuracy of 200",
        columns=("search", "median steps", "reached", "seeds"),
        rows=rows,
    )
    return Summary(figures=tuple(figures), tables=(table,))


def _steps(result: Mapping[str, Any]) -> float:
    return float(MAX_STEPS if result["steps_to_target"] is None else result["steps_to_target"])


def _median(arm: Mapping[int, Mapping[str, Any]]) -> float:
    return float(np.median([_steps(result) for result in arm.values()]))


def _mean(name: str, values: list[float], unit: str, seeds: tuple[int, ...], note: str) -> Figure:
    """Mean over seeds with one-sided 95 % t bounds on either side."""
    mean = float(np.mean(values))
    low = high = None
    if len(values) > 1:
        half = float(stats.t(len(values) - 1).ppf(0.95) * np.std(values, ddof=1) / np.sqrt(len(values)))
        low, high = mean - half, mean + half
    return Figure(name=name, value=mean, low=low, high=high, unit=unit, seeds=seeds, note=note)


STUDY = PopulationStudy()
