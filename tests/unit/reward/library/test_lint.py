"""The linter: each fault is found where it is, and a sound library has none."""

from pathlib import Path

import pytest

from coharness.reward.images.libraries import by_hand
from coharness.reward.judges.lint import Finding
from coharness.reward.library.criterion import Fn
from coharness.reward.library.entries import Entry
from coharness.reward.library.files import write_library
from coharness.reward.library.library import Library
from coharness.reward.library.lint import errors_of, lint_folder, lint_library
from tests.unit.reward.library.making import counting, skill, small, tool


def rules(*entries: Entry, features: tuple[str, ...] | None = None) -> set[tuple[str, str]]:
    return {(f.where, f.rule) for f in lint_library(Library.of("some", entries), features=features)}


def test_sound_libraries_have_no_finding() -> None:
    assert lint_library(small()) == []
    assert lint_library(by_hand()) == []


@pytest.mark.parametrize(
    "body",
    [
        "Image B often looks better than it is; check twice.",
        "Take the first image as a reference for light.",
        "Candidate A tends to win, so look at its flaws.",
        "Judges lean to the left-hand one without reason.",
    ],
)
def test_positional_language_is_an_error(body: str) -> None:
    assert ("x", "positional") in rules(skill("x", body))


def test_a_command_to_the_judge_is_an_error() -> None:
    assert ("x", "imperative") in rules(skill("x", "Always prefer the sharper picture of the two."))


def test_opposite_warnings_of_a_bias_contradict_each_other() -> None:
    one = skill("one", "There is a strong bias towards predicting Image B as the winner.")
    two = skill("two", "You have a systemic bias where you default to choosing Image A.")
    assert ("two", "contradiction") in rules(one, two)
    assert ("two", "contradiction") not in rules(one, skill("two", "A bias towards Image B was seen in every test."))


def test_rewarding_what_another_penalises_is_a_contradiction() -> None:
    assert ("two", "contradiction") in rules(
        skill("one", "Reward vivid saturated colours in skies."), skill("two", "Penalise vivid saturated colours.")
    )


def test_opposite_signs_on_one_figure_contradict_and_equal_ones_are_duplicates() -> None:
    down, up = (skill(n, criterion=counting("q@1/x", w, fn=Fn.SAT)) for n, w in (("down", 1.0), ("up", -1.0)))
    assert ("up", "contradiction") in rules(up, down)
    assert ("up", "duplicate") in rules(up, skill("down", criterion=counting("q@1/x", -2.0, fn=Fn.SAT)))
    apart = [
        skill(n, criterion=counting("q@1/x", w, contexts=(c,))) for n, w, c in (("m", 1.0, "move"), ("n", -1.0, "add"))
    ]
    assert rules(*apart) == set()


def test_near_duplicates_are_a_warning() -> None:
    body = "Text in the edited picture must be spelled exactly, letter by letter, with the requested font and colour."
    twin = body.replace("exactly", "precisely")
    assert ("two", "duplicate") in rules(skill("one", body), skill("two", twin))


def test_a_reference_to_nothing_is_an_error() -> None:
    caller = skill("caller", "Use the tool `target-object-verifier` for every named attribute of an object.")
    assert ("caller", "dangling") in rules(caller)
    assert ("caller", "dangling") not in rules(caller, tool("target-object-verifier"))


@pytest.mark.parametrize(
    ("prompt", "outputs", "rule"),
    [
        ('Return {"found": bool, "missing": str}', (("seen", "bool"),), "schema"),
        ('Return {"seen": bool}', (("seen", "bool"), ("where", "str")), "schema"),
        ("", (("seen", "bool"),), "no-prompt"),
        ("Look.", (), "no-schema"),
    ],
)
def test_a_tool_whose_prompt_and_schema_disagree_is_an_error(
    prompt: str, outputs: tuple[tuple[str, str], ...], rule: str
) -> None:
    assert ("t", rule) in rules(tool("t", prompt, outputs))


def test_an_unknown_figure_is_an_error_only_where_the_figures_are_known() -> None:
    entry = skill("x", criterion=counting("q@1/x", 1.0))
    assert ("x", "unknown-feature") in rules(entry, features=("q@2/x",))
    assert rules(entry) == set()


def test_a_file_without_a_line_in_the_registry_is_reported(tmp_path: Path) -> None:
    folder = write_library(small(), tmp_path / "small")
    lost = folder / "skills" / "lost" / "SKILL.md"
    lost.parent.mkdir()
    lost.write_text("---\nname: lost\n---\n")
    assert [f.where for f in lint_folder(folder, small())] == ["skills/lost/SKILL.md"]


def test_errors_come_first() -> None:
    findings = lint_library(Library.of("x", [skill("a", "short"), skill("b", "Image A is shown first here.")]))
    assert [f.level for f in findings] == sorted(f.level for f in findings)
    assert errors_of(findings) == [f for f in findings if isinstance(f, Finding) and f.level == "error"]
