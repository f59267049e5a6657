"""A search's config: mistakes are told with their place, and what is written down is read back."""

from pathlib import Path
from typing import Any

import pytest

from coharness.records.errors import ConfigError
from coharness.spaces.ranges import Real
from coharness.spaces.space import Scale
from coharness.spaces.tree import Tree
from coharness.tune.config import dump_tune_config, load_tune_config
from tests.unit.tune.small import config


def test_the_resolved_config_is_read_back_the_same(tmp_path: Path) -> None:
    made = config(tmp_path / "a", selection={"type": "pb2"}, initial=[{"rate": 0.5}], constants={"width": 3})
    (tmp_path / "c.yaml").write_text(dump_tune_config(made))
    assert load_tune_config(tmp_path / "c.yaml") == made
    assert load_tune_config(tmp_path / "c.yaml", ["members=9", "--guard.clone-cap", "0.3"]).guard.clone_cap == 0.3


def test_a_space_may_stand_in_a_python_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from coharness.spaces.ranges import Real\nfrom coharness.spaces.space import Scale\n"
        "SPACE = {'rate': Real(low=1e-3, high=1.0, scale=Scale.LOG)}\n"
        "class Mine: pass\n"
    )
    (tmp_path / "c.yaml").write_text("run_dir: a\ntrainable: mine.py:Mine\nspace: mine.py:SPACE\nbudget: {steps: 3}\n")
    made = load_tune_config(tmp_path / "c.yaml")
    assert made.tree == Tree(fields={"rate": Real(low=1e-3, high=1.0, scale=Scale.LOG)})
    assert made.trainable == f"{tmp_path}/mine.py:Mine"


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"membres": 3}, "did you mean members"),
        ({"selection": {"type": "truncatoin"}}, "did you mean truncation"),
        ({"selection": {"type": "truncation", "quantile": 0.7}}, "selection.quantile: got 0.7, expected <= 0.5"),
        ({"selection": {"type": "lexicase"}}, "reads score.cases, which names no metric"),
        (
            {
                "selection": {"type": "map_elites", "lows": [0], "highs": [1], "bins": [4]},
                "score": {"descriptor": ["a", "b"]},
            },
            "has 1 dimensions, score.descriptor names 2",
        ),
        (
            {
                "selection": {"type": "map_elites", "lows": [0], "highs": [0], "bins": [4]},
                "score": {"descriptor": ["a"]},
            },
            "expected low < high",
        ),
        ({"initial": [{"rate": 2.0}]}, "initial.0: rate: 2.0 is not a number in"),
        ({"initial": [{"rate": 0.5}] * 5}, "raise members"),
        ({"constants": {"rate": 1}}, "stands in both space and constants"),
        ({"space": {"rate": {"type": "float", "low": 0, "high": 1, "scale": "log"}}}, "a log range lies above 0"),
        ({"budget": {}}, "budget.steps: missing"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        config(tmp_path / "a", **changes)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the config"):
        load_tune_config(tmp_path / "none.yaml")
