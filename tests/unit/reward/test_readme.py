"""The rules and the rubric of the README are read as they stand there."""

import re
from pathlib import Path

import pytest

import coharness.reward
from coharness.config.yaml_text import read_mapping
from coharness.reward.algebra import Part, rule_from_json
from coharness.reward.judges.lint import lint
from coharness.reward.judges.rubric import rubric_from_json

TEXT = (Path(coharness.reward.__file__).parent / "README.md").read_text(encoding="utf-8")
RULES = re.findall(r"```yaml rule\n(.*?)```", TEXT, re.DOTALL)
RUBRICS = re.findall(r"```yaml rubric\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("text", RULES)
def test_a_rule_of_the_readme_gives_a_reward(text: str) -> None:
    rule = rule_from_json(read_mapping(text, "README"))
    names = ("exact", "partial", "format", "length", "overlong", "brevity")
    judged = ("judge/honest", "judge/verbose", "judge/steps", "judge/clarity")
    better = rule.evaluate([Part.ok(n, 0.0 if n == "judge/verbose" else 1.0) for n in (*names, *judged)]).value
    worse = rule.evaluate([Part.ok(n, 1.0 if n == "judge/honest" else 0.0) for n in (*names, *judged)]).value
    assert better is not None
    assert worse is not None
    assert better > worse


def test_the_rubric_of_the_readme_has_nothing_to_mend() -> None:
    (text,) = RUBRICS
    assert lint(rubric_from_json(read_mapping(text, "README"))) == []
    assert len(RULES) == 3
