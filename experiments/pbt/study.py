"""Does evolving GRPO's hyperparameters find a better schedule than the best of as many fixed settings, at equal compute?

Owns the arms and how one cell is run; what the cells say together is in `summary`. A cell is a whole search under one seed and,
after it, its best member's path made again as a clean run from the base on fresh seeds:

    search ──▶ best by its own evidence ──▶ schedule ──▶ clean runs ──▶ sealed tasks

All arms begin with the same six settings for the same seed, and their clean runs use the same seeds. A killed cell goes on with
the search's journal and with the first clean run that is missing.
"""

import json
import logging
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coharness.config.load import load_config
from coharness.policy.bases import resolve_base
from coharness.records.errors import ConfigError
from coharness.records.ids import derive_seed
from coharness.studies.contract import Cell, StudyError, Summary
from coharness.tune.api import drive
from coharness.tune.config import TuneConfig, dump_tune_config, load_tune_config
from coharness.tune.core import Context, best_member
from coharness.tune.engine import SearchEnd, fold_journal
from coharness.tune.files import SearchDir, write_json
from coharness.tune.schedule import Schedule, play, schedule_of, write_schedule
from coharness.tune.state import SearchState
from coharness.tune.trainable import build, put_in_force
from experiments.pbt.member import GrpoMember, forget_workshop
from experiments.pbt.summary import summarise

logger = logging.getLogger(__name__)

CONFIG = Path(__file__).with_name("config.yaml")
SEARCH = Path(__file__).with_name("search.yaml")
EPISODES = 25_600
"""Of each member, readings included."""
INTERVALS = 10
FRESH = 3
"""Seeds that a schedule is made again with."""

ARMS: Mapping[str, Mapping[str, Any]] = {
    "random": {"selection": {"type": "none"}},
    "posterior": {"selection": {"type": "posterior", "threshold": 0.9}},
    "truncation": {"selection": {"type": "truncation", "quantile": 0.25, "bound": 0.25}},
    "selection_only": {"selection": {"type": "posterior", "threshold": 0.9}, "genes": "keep"},
}
"""Arm -> what stands in place of search.yaml's own; all else is the same."""

QUICK_ARMS = ("random", "posterior")
QUICK_RUN = ("training.groups_per_update=8", "evaluation.sealed_per_cell=8")
QUICK_SEARCH = (
    "members=2",
    "interval=1",
    "budget.steps=2",
    "constants.updates_per_reading=1",
    "constants.reading_per_cell=4",
)
"""What the smoke lays over every arm: two members, two updates of 64 episodes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PbtStudy:
    """Searches with and without selection from the same settings; see `coharness.studies.contract.Study`."""

    name: str = "pbt"
    question: str = (
        "Does population-based search find a better schedule for GRPO than the best setting of a random search?"
    )
    num_seeds: int = 5
    cell_deadline_s: float = 6 * 3600.0

    def budget(self, *, quick: bool, rollouts: int | None) -> Mapping[str, float]:
        """Episodes of each member, and how many members there are; `--rollouts` is of each member."""
        members = load_tune_config(SEARCH, QUICK_SEARCH if quick else ()).members
        own = 160 if quick else EPISODES
        return {"rollouts": own if rollouts is None else rollouts, "members": members}

    def cells(self, seeds: Sequence[int], *, quick: bool, rollouts: int | None) -> list[Cell]:
        """Each arm under each seed; seed by seed, so that the first seeds are complete early."""
        run = run_config(quick=quick)
        budget = int(self.budget(quick=quick, rollouts=rollouts)["rollouts"])
        fixed = {"base_digest": resolve_base(load_config(CONFIG).policy.base).digest, "fresh": 1 if quick else FRESH}
        return [
            Cell(arm=arm, seed=seed, config={**fixed, "search": search_config(arm, seed, run, budget, quick=quick)})
            for seed in seeds
            for arm in (QUICK_ARMS if quick else ARMS)
        ]

    def run_cell(self, cell: Cell, folder: Path) -> dict[str, Any]:
        """Search, then make the best member's schedule again; goes on where an earlier process stopped."""
        return SearchCell(cell, folder).run()

    def summarise(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
        """Sealed success of what was found, against the best fixed setting; see `summary`."""
        return summarise(cells)


class SearchCell:
    """One cell and its folder: `search/`, `schedule.json`, a file a clean run, and `cpu.json`."""

    def __init__(self, cell: Cell, folder: Path) -> None:
        self._cell, self._folder = cell, folder
        self._cpu = CpuMeter(folder / "cpu.json")

    def run(self) -> dict[str, Any]:
        """All of it; the result as JSON values."""
        with temporary_files_in(self._folder / "scratch"):
            return self._run()

    def _run(self) -> dict[str, Any]:
        search = self._opened()
        config = load_tune_config(search.config_path)
        ctx = Context.of(config)
        end, found = drive(search, config, on_event=self._note)
        if end is not SearchEnd.DONE:
            raise StudyError(f"the search in {search.path} ended as {end}; run the study again to go on")
        self._cpu.note("search")
        state = fold_journal(search, ctx)
        best = best_member(state)
        if best is None:
            raise StudyError(f"no member of the search in {search.path} ever reported; see its journal")
        schedule = schedule_of(state, config, best[0])
        write_schedule(self._folder / "schedule.json", schedule)
        clean = [self._clean(schedule, place) for place in range(int(self._cell.config["fresh"]))]
        return {
            "sealed": self._sealed(search, config, best[0], state),
            "clean": clean,
            "best": found["best"],
            "path": [{**stretch.hyperparameters, "updates": stretch.steps} for stretch in schedule.stretches],
            "readings": rounds(state),
            "episodes": sum(made.metrics["episodes"] for made in state.segments.values()),
            "intervals": len(state.segments),
            "copies": found["copies"],
            "failures": found["failures"],
            "cpu_s": self._cpu.spent,
        }

    def _opened(self) -> SearchDir:
        """The cell's search: what an earlier process began, or a new one."""
        place = self._folder / "search"
        if (place / "journal.jsonl").is_file():
            return SearchDir.open(place)
        shutil.rmtree(place, ignore_errors=True)
        config = TuneConfig.model_validate({**self._cell.config["search"], "run_dir": str(place.absolute())})
        return SearchDir.create(place, dump_tune_config(config))

    def _note(self, state: SearchState) -> None:
        self._cpu.note("search")
        if state.best is not None:
            logger.info("%d steps, %d copies, highest reading %.3f", state.num_steps, state.num_copies, state.best[0])

    def _clean(self, schedule: Schedule, place: int) -> dict[str, float]:
        """Numbers of the last step of the schedule's run on fresh seed number `place`, sealed tasks among them."""
        path = self._folder / f"clean-{place}.json"
        if not path.is_file():
            told = replace(schedule, constants={**schedule.constants, "sealed_at": schedule.num_steps})
            played = play(told, seed=derive_seed("clean", self._cell.seed, place))
            self._cpu.note("clean")
            logger.info("clean run %d: sealed %.3f", place, played.metrics["sealed"])
            write_json(path, dict(played.metrics))
        metrics: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
        return metrics

    def _sealed(self, search: SearchDir, config: TuneConfig, checkpoint: str, state: SearchState) -> dict[str, Any]:
        """(family, level) -> sealed success of the base and of the search's best member, read once, in one go."""
        made = state.segments[checkpoint]
        wanted = {**config.constants, **made.hyperparameters}
        base, best = (build(GrpoMember, wanted, made.seed) for _ in range(2))
        best.load(search.checkpoint(checkpoint))
        put_in_force(best, wanted)
        assert isinstance(base, GrpoMember)
        assert isinstance(best, GrpoMember)
        before, after = base.sealed(), best.sealed()
        return {
            "cells": [list(cell) for cell in before],
            "base": list(before.values()),
            "best": [after[cell] for cell in before],
        }


@contextmanager
def temporary_files_in(folder: Path) -> Iterator[None]:
    """Let members keep their versions below `folder`, where the next process clears away what a killed one left."""
    forget_workshop()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before
        forget_workshop()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(slots=True)
class CpuMeter:
    """CPU seconds by purpose, over all processes that worked on a cell; what a killed one did since its last note is lost."""

    path: Path
    spent: dict[str, float] = field(default_factory=dict)
    _at: float = field(default_factory=time.process_time)

    def __post_init__(self) -> None:
        if self.path.is_file():
            self.spent = json.loads(self.path.read_text(encoding="utf-8"))

    def note(self, purpose: str) -> None:
        """Charge what was used since the last note."""
        now = time.process_time()
        self.spent[purpose] = self.spent.get(purpose, 0.0) + now - self._at
        self._at = now
        write_json(self.path, self.spent)


def rounds(state: SearchState) -> list[list[float]]:
    """Readings of all members after the same number of updates, which read the same tasks; in the order of updates."""
    found: dict[float, list[float]] = {}
    for made in state.segments.values():
        found.setdefault(made.metrics["updates"], []).append(made.metrics["score"])
    return [found[updates] for updates in sorted(found)]


def run_config(*, quick: bool) -> dict[str, Any]:
    """What members are made of, as JSON values, but for the folder, which is each process's own."""
    config = load_config(CONFIG, QUICK_RUN if quick else ()).model_dump(mode="json")
    del config["run_dir"]
    return config


def search_config(arm: str, seed: int, run: Mapping[str, Any], episodes: int, *, quick: bool) -> dict[str, Any]:
    """The resolved config of one cell's search as JSON values, but for its folder, which is the cell's.

    Args:
        arm: which.
        seed: of the search, and of the tasks that its members are read on.
        run: what members are made of.
        episodes: of each member, readings included; cut to whole updates.
        quick: whether it is the smoke.
    """
    words = [f"seed={seed}", f"constants.reading_seed={seed}"]
    if quick:
        words += QUICK_SEARCH
    else:
        updates = updates_per_reading(run, episodes)
        words += [
            f"interval={updates}",
            f"constants.updates_per_reading={updates}",
            f"budget.steps={INTERVALS * updates}",
        ]
    found = {**load_tune_config(SEARCH, words).model_dump(mode="json"), **ARMS[arm]}
    found = TuneConfig.model_validate(found).model_dump(mode="json")
    del found["run_dir"]
    return {**found, "constants": {**found["constants"], "run": dict(run)}}


def updates_per_reading(run: Mapping[str, Any], episodes: int) -> int:
    """Updates in a tenth of a member's episodes, beside the reading that ends it.

    Raises:
        ConfigError: there is none.
    """
    training = run["training"]
    update = training["group_size"] * training["groups_per_update"]
    cells = sum(len(source["families"]) * source["max_level"] for source in run["tasks"])
    reading = cells * load_tune_config(SEARCH).constants["reading_per_cell"]
    found: int = (episodes // INTERVALS - reading) // update
    if found < 1:
        raise ConfigError(
            f"{episodes} episodes of a member leave no update of {update} between {INTERVALS} readings of {reading}; use "
            f"--rollouts {INTERVALS * (reading + update)} or more"
        )
    return found


STUDY = PbtStudy()
