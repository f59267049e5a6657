"""One cell of an ablation: how its run is scored, and that an interrupted one goes on."""

from pathlib import Path

import numpy as np
import pytest

from coharness.config.load import load_config
from coharness.config.schema import RunConfig
from coharness.loop.engine import StopKind
from coharness.loop.local_run import run_local
from coharness.loop.run_dir import RunDir
from coharness.studies.ablation_cells import run_to_end, success
from experiments.coevolution.study import CONFIG, QUICK

ROLLOUTS = 300


def test_the_score_is_the_mean_over_cells_of_family_and_level() -> None:
    rng = np.random.default_rng(0)
    sizes = {("a", 1): 3, ("a", 2): 25, ("b", 1): 7}
    rows = [[*cell, str(i), int(rng.integers(2)), 9] for cell, size in sizes.items() for i in range(size)]
    expected = np.mean([np.mean([row[3] for row in rows if tuple(row[:2]) == cell]) for cell in sizes])
    assert success(rows) == pytest.approx(expected)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_and_is_read_at_its_end(tmp_path: Path) -> None:
    config = load_config(CONFIG, [*QUICK, f"budget.rollouts={ROLLOUTS}", "evaluation.best_of_k=0"])
    values = config.model_dump(mode="json")
    del values["run_dir"]
    run_dir = tmp_path / "run"
    RunDir.create(RunConfig.model_validate({**values, "run_dir": str(run_dir)}))
    stopped = run_local(run_dir, on_engine=lambda engine: engine.request_stop("by hand", hard=False))
    assert stopped is not StopKind.DONE
    began = sorted((run_dir / "journal").iterdir())[0].read_bytes()
    found = run_to_end(values, tmp_path)
    assert sorted((run_dir / "journal").iterdir())[0].read_bytes().startswith(began)
    assert 0 <= found["score"] <= 1
    assert found["score"] == pytest.approx(np.mean(list(found["families"].values())))
    assert 0 < found["spent"]["rollouts"] <= ROLLOUTS
    assert found["tokens_per_task"] > 0
