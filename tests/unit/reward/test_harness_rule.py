"""The reward rule as a harness gene: from the config into the genome, its changes in words, its mistakes at load."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coharness.config.load import config_from
from coharness.harness.operators import TRAINING_MUTATIONS
from coharness.harness.space import gene_space, initial_harness
from coharness.records.errors import ConfigError
from coharness.records.harness import Harness, RewardGenes
from coharness.records.harness_diff import harness_diff
from coharness.records.protocols import Check
from coharness.reward.score import Attempted, score_group
from coharness.tasks.builtin import BuiltinSource
from coharness.tasks.sources import TaskSources

SOURCES = TaskSources([BuiltinSource(max_level=2)])
RULE = {"value": {"mean": {"of": {"exact": 1, "length": 0.2}}}, "floors": [{"part": "format", "at_least": 0.5}]}
JUDGE = {"endpoints": ["http://127.0.0.1:9/v1"], "model": "m", "rubric": "rubric.yaml"}


def harness_of(rule: Any, **reward: Any) -> Harness:
    config = config_from({"run_dir": "unused", "harness": {"reward_rule": rule}, "reward": reward})
    return initial_harness(config, SOURCES, gene_space(config, SOURCES))


def test_two_spellings_of_one_rule_are_one_genome() -> None:
    spelled = {
        **RULE,
        "value": {"mean": {"of": [{"value": "exact"}, {"value": "length", "weight": 0.2}], "quorum": 0.5}},
    }
    assert harness_of(RULE).id == harness_of(spelled).id
    assert harness_of(RULE).id != harness_of({}).id


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"value": "exakt"}, "reads 'exakt', which no attempt has"),
        ({"value": "code/time"}, "only attempts at code tasks have"),
        ({"value": "judge/score"}, "no judge is configured; set reward.judge"),
        ({"value": {"mean": {"of": {"exact": -1}}}}, "harness.reward_rule.value.mean.of.exact has weight -1"),
        ({"values": "exact"}, "did you mean value"),
    ],
)
def test_a_wrong_rule_is_refused_before_anything_runs(rule: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        harness_of(rule)


MIXED = {"value": {"verifier_first": {"check": "exact", "judge": {"mean": {"of": {"partial": 1, "code/runs": 9}}}}}}


def test_a_rule_may_read_code_where_other_tasks_have_a_reward_without_it() -> None:
    with pytest.raises(ConfigError, match="`quorum: 0`"):
        harness_of(MIXED)
    mixed = {"mean": {"of": {"partial": 1, "code/runs": 9}, "quorum": 0}}
    rule = harness_of({"value": {"verifier_first": {"check": "exact", "judge": mixed}}}).reward.rule
    told = Check(correct=True, partial=1.0)
    (score,) = score_group([Attempted(check=told, tokens_used=1, max_tokens=4)], RewardGenes(rule=rule))
    assert score.value == 1.0
    with pytest.raises(ConfigError, match="only attempts at code tasks have"):
        harness_of({"value": mixed, "floors": [{"part": "code/allowed", "at_least": 0.5}]})


def test_a_rule_may_read_a_judge_that_is_configured() -> None:
    assert harness_of({"value": "judge/score"}, judge=JUDGE).reward.rule["value"] == "judge/score"


def test_a_rubric_is_found_beside_its_config(tmp_path: Path) -> None:
    (tmp_path / "rubric.yaml").write_text("name: r\ncriteria: [{name: a, text: x y}]\n")
    config = config_from({"run_dir": "unused", "reward": {"judge": JUDGE}}, folder=tmp_path)
    assert config.reward.judge is not None
    assert config.reward.judge.rubric == str(tmp_path / "rubric.yaml")


def test_changes_of_a_rule_are_told_by_their_leaf() -> None:
    plain, ruled = harness_of({}), harness_of(RULE)
    assert harness_diff(plain, ruled) == ["reward rule: weights → a rule"]
    assert harness_diff(ruled, plain) == ["reward rule: a rule → weights"]
    assert harness_diff(ruled, ruled) == []
    child = TRAINING_MUTATIONS["reward"](ruled, gene_space_of(), np.random.default_rng(0))
    assert child is not None
    (phrase,) = harness_diff(ruled, child)
    assert phrase.startswith("reward rule, value.mean.of.")
    assert "→" in phrase


def gene_space_of() -> Any:
    return gene_space(config_from({"run_dir": "unused"}), SOURCES)


def test_the_preflight_reads_the_rubric_and_looks_for_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from coharness.loop.preflight import Level, _judge_findings

    monkeypatch.delenv("JUDGE_KEY", raising=False)
    path = tmp_path / "rubric.yaml"
    given = {**JUDGE, "rubric": str(path)}

    def levels(**more: Any) -> list[tuple[Level, str]]:
        config = config_from({"run_dir": "unused", "reward": {"judge": {**given, **more}}})
        return [(finding.level, finding.message) for finding in _judge_findings(config)]

    assert levels()[0][0] is Level.ERROR
    path.write_text("name: r\ncriteria: [{name: a, text: The answer mentions a theorem by name.}]\n")
    found = levels()
    assert [level for level, _ in found] == [Level.INFO, Level.WARNING]
    assert levels(api_key_env="JUDGE_KEY")[0][0] is Level.ERROR
