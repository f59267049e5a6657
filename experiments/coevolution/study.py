"""Is evolving weights and harness together better than each control schedule, at equal cost?

Owns the arms and how one cell is run and read; what the cells say together is in `summary`, which can change without a cell
being run again. A cell is one whole run on the in-process fleet, with its journal, in the cell's folder; an interrupted one is
resumed from that journal.
"""

import logging
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coharness.config.load import load_config
from coharness.config.schema import RunConfig
from coharness.loop.build import fold_run
from coharness.loop.engine import Engine, StopKind
from coharness.loop.journal import last_seq
from coharness.loop.local_run import run_local
from coharness.loop.run_dir import RunDir
from coharness.loop.sealed import measure_sealed
from coharness.policy.bases import resolve_base
from coharness.studies.contract import Cell, StudyError, Summary
from coharness.studies.coverage import Count, count_run
from experiments.coevolution.summary import ASYNC, summarise

logger = logging.getLogger(__name__)

CONFIG = Path(__file__).with_name("config.yaml")
MAX_LEVEL = 8
VOTE_K = 64
STATUS_S = 20.0
"""Seconds between two lines of a cell's log about its run."""

ARMS: Mapping[str, tuple[str, ...]] = {
    ASYNC: ("schedule=async", f"evaluation.best_of_k={VOTE_K}"),
    "randomized": ("schedule=randomized",),
    "weights_only": ("schedule=weights_only",),
    "weights_only_full_range": ("schedule=weights_only", f"harness.level_high={MAX_LEVEL}"),
    "stagewise_harness_first": ("schedule=stagewise", "stagewise.order=harness_first"),
    "stagewise_weights_first": ("schedule=stagewise", "stagewise.order=weights_first"),
    "harness_only": ("schedule=harness_only",),
    "frozen": ("schedule=frozen",),
}
"""Arm -> what it lays over config.yaml; the longest first."""

QUICK_ARMS = (ASYNC, "randomized")
QUICK_ROLLOUTS = 600
QUICK: tuple[str, ...] = (
    "tasks=[{type: builtin, max_level: 2, families: [parity, maximum]}]",
    "harness.level_high=2",
    "harness.formats=[plain, trace]",
    "harness.templates=[bare, bracketed]",
    "harness.hints=[none]",
    "harness.max_distractors=0",
    "population.num_policies=2",
    "population.num_harnesses=2",
    "training.groups_per_update=32",
    "evaluation.track_tasks=8",
    "evaluation.sealed_per_cell=4",
    "evaluation.best_of_k=2",
    "gate.max_pairs=32",
    "gate.null_tests=1",
    "gate.null_pairs=32",
)
"""What the smoke lays over every arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoevolutionStudy:
    """Eight schedules under the same seeds and budget; see `coharness.studies.contract.Study`."""

    name: str = "coevolution"
    question: str = (
        "Is evolving weights and harness together better than each control, at equal episodes, tokens and CPU?"
    )
    num_seeds: int = 5
    cell_deadline_s: float = 24 * 3600.0

    def budget(self, *, quick: bool, rollouts: int | None) -> Mapping[str, float]:
        """Episodes of each arm."""
        own = QUICK_ROLLOUTS if quick else load_config(CONFIG).budget.rollouts
        return {"rollouts": own if rollouts is None else rollouts}

    def cells(self, seeds: Sequence[int], *, quick: bool, rollouts: int | None) -> list[Cell]:
        """Each arm under each seed; seed by seed, so that the first seeds are complete early."""
        budget = int(self.budget(quick=quick, rollouts=rollouts)["rollouts"])
        base = resolve_base(load_config(CONFIG).policy.base).digest
        arms = QUICK_ARMS if quick else tuple(ARMS)
        return [
            Cell(
                arm=arm,
                seed=seed,
                config={"run": run_config(arm, seed, rollouts=budget, quick=quick), "base_digest": base},
            )
            for seed in seeds
            for arm in arms
        ]

    def run_cell(self, cell: Cell, folder: Path) -> dict[str, Any]:
        """Run, or go on with, one run; then read its sealed tasks once.

        Raises:
            StudyError: the run stopped before its budget was spent.
        """
        run_dir = folder / "run"
        config = RunConfig.model_validate({**cell.config["run"], "run_dir": str(run_dir)})
        resume = _holds_a_run(run_dir)
        if not resume:
            shutil.rmtree(run_dir, ignore_errors=True)
            RunDir.create(config)
        with _log_status() as watch:
            kind = run_local(run_dir, resume=resume, on_engine=watch)
        if kind is not StopKind.DONE:
            raise StudyError(f"the run in {run_dir} ended as {kind}; run the study again, it will go on")
        logger.info("the run is over; reading the sealed tasks, once")
        return read_cell(run_dir, measure_sealed(run_dir))

    def summarise(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
        """Differences to each control at equal episodes, tokens and CPU seconds; see `summary`."""
        return summarise(cells)


def run_config(arm: str, seed: int, *, rollouts: int, quick: bool) -> dict[str, Any]:
    """The resolved config of one cell's run as JSON values, but for the run's folder, which is the cell's."""
    words = (*ARMS[arm], *(QUICK if quick else ()), f"seed={seed}", f"budget.rollouts={rollouts}")
    config = load_config(CONFIG, words).model_dump(mode="json")
    del config["run_dir"]
    return config


def read_cell(run_dir: Path, sealed: Mapping[str, Any]) -> dict[str, Any]:
    """What the summary needs of a finished run, as JSON values.

    Correctness of all tasks is a text of 0 and 1 in the order of `tasks`, the same in all arms.

    Raises:
        StudyError: the time was up before the rollouts were spent, so that arms would not compare.
    """
    state = fold_run(RunDir.open(run_dir)).state
    if "time" in state.finished:
        raise StudyError(f"the run in {run_dir} ended because {state.finished}; raise budget.minutes in config.yaml")
    champion = state.champion
    if champion is None:
        raise StudyError(f"the run in {run_dir} ended without a champion; its journal is not that of a whole run")
    arms = sealed["arms"]
    null = count_run(run_dir / "journal").get(("selector", "null"), Count())
    return {
        "spent": {"rollouts": state.charged, "tokens": state.tokens, "cpu_s": state.cpu_s},
        "tasks": [row[:3] for row in arms["theta_h"]["rows"]],
        "base": _answers(arms["theta0_h0"]),
        "champion": {"serving": str(champion), **_answers(arms["theta_h"])},
        "milestones": [
            {**{key: m[key] for key in ("rollouts", "tokens", "cpu_s", "serving")}, **_answers(m["arm"])}
            for m in sealed["milestones"]
        ],
        "votes": {name: {"k": arm["k"], **_answers(arm)} for name, arm in arms.items() if name.startswith("vote_")},
        "harness": state.harnesses[champion.harness].to_json(),
        "null": {"accepted": null.accepted, "decided": null.accepted + null.rejected},
        "operators": state.operator_counts,
    }


def _answers(arm: Mapping[str, Any]) -> dict[str, Any]:
    rows = arm["rows"]
    return {
        "correct": "".join(str(int(row[3])) for row in rows),
        "tokens_per_task": sum(row[4] for row in rows) / len(rows),
    }


def _holds_a_run(run_dir: Path) -> bool:
    run = RunDir(run_dir)
    return run.config_path.is_file() and run.journal_dir.is_dir() and last_seq(run.journal_dir) > 0


@contextmanager
def _log_status() -> Iterator[Any]:
    over = threading.Event()

    def watch(engine: Engine) -> None:
        def loop() -> None:
            while not over.wait(STATUS_S):
                status = engine.status()
                logger.info(
                    "%s of %s rollouts, %s updates, %s accepted, %s rejected",
                    *(status.get(key, "?") for key in ("rollouts", "budget", "updates", "accepted", "rejected")),
                )

        threading.Thread(target=loop, name="status", daemon=True).start()

    try:
        yield watch
    finally:
        over.set()


STUDY = CoevolutionStudy()
