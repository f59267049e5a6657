"""One cell of an ablation: a whole run on the in-process fleet, and what is read of it afterwards.

The score is J of the last champion: greedy success on the sealed tasks, which are read once, after the run; the mean over
(family, level) cells. Invariants: a cell's result is a function of its config; an interrupted run goes on from its journal; a run
that ended before its rollouts were spent has no result, since arms would not compare.
"""

import logging
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coharness.config.schema import RunConfig
from coharness.loop.build import fold_run
from coharness.loop.engine import StopKind
from coharness.loop.journal import last_seq
from coharness.loop.local_run import run_local
from coharness.loop.run_dir import RunDir
from coharness.loop.sealed import measure_sealed
from coharness.records.ids import content_hash
from coharness.studies.contract import StudyError

logger = logging.getLogger(__name__)


def run_to_end(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Run, or go on with, the run of a cell, and read it.

    Args:
        values: the run's config without its folder.
        folder: the cell's.

    Raises:
        StudyError: the run stopped, or its time was up, before its rollouts were spent.
    """
    run_dir = folder / "run"
    run = RunDir(run_dir)
    resume = run.config_path.is_file() and run.journal_dir.is_dir() and last_seq(run.journal_dir) > 0
    if not resume:
        shutil.rmtree(run_dir, ignore_errors=True)
        RunDir.create(RunConfig.model_validate({**values, "run_dir": str(run_dir)}))
    kind = run_local(run_dir, resume=resume)
    if kind is not StopKind.DONE:
        raise StudyError(f"the run in {run_dir} ended as {kind}; start the ablation again, it will go on")
    state = fold_run(RunDir.open(run_dir)).state
    if "time" in state.finished:
        raise StudyError(f"the run in {run_dir} ended because {state.finished}; raise budget.minutes")
    logger.info("the run is over; reading the sealed tasks, once")
    rows = measure_sealed(run_dir)["arms"]["theta_h"]["rows"]
    return {
        "score": success(rows),
        "families": {
            family: success([row for row in rows if row[0] == family]) for family in sorted({row[0] for row in rows})
        },
        "tasks": content_hash([row[2] for row in rows]),
        "tokens_per_task": sum(row[4] for row in rows) / len(rows),
        "spent": {"rollouts": state.charged, "tokens": state.tokens, "cpu_s": state.cpu_s},
        "champion": str(state.champion),
        "operators": state.operator_counts,
    }


def success(rows: Sequence[Sequence[Any]]) -> float:
    """J: the mean over (family, level) of the share of their tasks that are solved.

    Args:
        rows: (family, level, task, whether it is solved, tokens) each.
    """
    cells: dict[tuple[str, int], list[int]] = defaultdict(list)
    for family, level, _, correct, _ in rows:
        cells[family, level].append(int(correct))
    return sum(sum(solved) / len(solved) for solved in cells.values()) / len(cells)
