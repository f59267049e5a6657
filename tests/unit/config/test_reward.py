"""The `reward` section: which judge is meant, what its ladder is, what is refused."""

from pathlib import Path

import pytest

from coharness.config.load import config_from, dump_config, load_config
from coharness.config.reward import JudgeSection, LinearJudgeSection
from coharness.config.schema import RunConfig
from coharness.records.errors import ConfigError

LINEAR = {"type": "linear", "file": "judge.json"}
ENDPOINT = {"endpoints": ["http://127.0.0.1:1/v1"], "model": "m", "rubric": "r.yaml"}


def made(**reward: object) -> RunConfig:
    return config_from({"run_dir": "r", "reward": reward})


def test_a_judge_without_a_type_is_an_endpoint() -> None:
    assert isinstance(made(judge=ENDPOINT).reward.judge, JudgeSection)
    assert isinstance(made(judge=LINEAR).reward.judge, LinearJudgeSection)
    assert made().reward.judge is None


def test_paths_become_absolute_and_come_back_from_yaml(tmp_path: Path) -> None:
    config = made(judge={**LINEAR, "anchors": "a.jsonl"})
    judge = config.reward.judge
    assert isinstance(judge, LinearJudgeSection)
    assert judge.file == str(Path.cwd() / "judge.json")
    assert (judge.anchors, judge.pairs) == (str(Path.cwd() / "a.jsonl"), None)
    (tmp_path / "run.yaml").write_text(dump_config(config))
    assert load_config(tmp_path / "run.yaml", []) == config


def test_the_ladder_that_is_left_out_follows_from_the_judge() -> None:
    assert made(judge=ENDPOINT).reward.ladder == ("audit", "freeze", "roll_back")
    assert made(judge={**LINEAR, "anchors": "a"}).reward.ladder == ("audit", "repair", "freeze", "roll_back")
    assert made(judge=ENDPOINT, monitor={"ladder": []}).reward.ladder == ()


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ({"judge": {"type": "linaer", "file": "x"}}, "did you mean linear"),
        ({"judge": {**LINEAR, "model": "m"}}, "reward.judge.model: unknown key"),
        ({"judge": {"type": "linear"}}, "reward.judge.file: missing"),
        ({"judge": LINEAR, "monitor": {"ladder": ["repair"]}}, "needs reward.judge of type linear with anchors"),
        ({"judge": ENDPOINT, "monitor": {"ladder": ["audit", "repair"]}}, "needs reward.judge of type linear"),
        ({"monitor": {"ladder": ["audit", "audit"]}}, "name no rung twice"),
        ({"monitor": {"high": 0.2}}, "is not below reward.monitor.high"),
        ({"monitor": {"ladder": ["adit"]}}, "did you mean audit"),
    ],
)
def test_mistakes_are_named_with_their_fix(reward: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        made(**reward)
