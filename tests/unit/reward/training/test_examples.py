"""Settled examples: the shapes that files have, what is refused, and that a question is in one split alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from coharness.records.errors import ConfigError
from coharness.reward.training.examples import Example, Settled, Shares, comparisons, read_examples, split


def written(tmp_path: Path, *rows: Any, name: str = "examples.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def many(num: int, *, held_out: int = 0) -> list[Example]:
    answers = (Settled(text="good", score=1.0), Settled(text="bad", score=0.0))
    return [Example(question=f"q{n}", answers=answers, held_out=n < held_out) for n in range(num)]


def test_all_shapes_are_read_and_answers_of_one_question_belong_together(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"question": "q", "better": "a", "worse": "b", "margin": 0.5, "held_out": True, "better_reason": "right"},
        {"input": "p", "output_1": "x", "output_2": "y", "label": 2},
        {"input": "t", "output_1": "x", "output_2": "y", "label": 0},
        {"question": "s", "answer": "one", "score": 0.25, "reason": "half"},
        {"question": "s", "candidate": "two", "value": 0.75},
    )
    q, p, t, s = read_examples(path)
    assert q.answers == (Settled(text="a", score=0.75, reason="right"), Settled(text="b", score=0.25))
    assert q.held_out
    assert [a.score for a in p.answers] == [0.0, 1.0]
    assert [a.score for a in t.answers] == [0.5, 0.5]
    assert s.answers == (Settled(text="one", score=0.25, reason="half"), Settled(text="two", score=0.75))
    assert not s.held_out


def test_an_array_is_read_as_lines_are(tmp_path: Path) -> None:
    row = {"input": "p", "output_1": "x", "output_2": "y", "label": 1}
    path = tmp_path / "set.json"
    path.write_text(json.dumps([row, row]))
    assert read_examples(path) == read_examples(written(tmp_path, row))


def test_pairs_of_an_audit_are_read_as_they_are_written(tmp_path: Path) -> None:
    from dataclasses import asdict

    from coharness.reward.reflection.conflicts import Audited
    from coharness.reward.reflection.pairs import preference_pairs

    attempts = [
        Audited(task="t", question="2+2", answer=answer, format="plain", judged=judged, verified=right, partial=partial)
        for answer, judged, right, partial in (("it is 4", 0.9, True, 1.0), ("it is 5", 0.9, False, 0.4))
    ]
    (pair,) = preference_pairs(attempts)
    (example,) = read_examples(written(tmp_path, asdict(pair)))
    (found,) = comparisons([example])
    assert (found.better.text, found.worse.text, found.gap) == ("it is 4", "it is 5", pytest.approx(pair.margin))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "q", "answer": "a"}, "line 1 has the fields question, answer"),
        ({"question": "q", "answer": "a", "score": 1.5}, r"score is 1.5, expected a number in \[0, 1\]"),
        ({"question": "q", "answer": "a", "score": True}, "score is True"),
        ({"question": "q", "better": 3, "worse": "b"}, "better is 3, expected text"),
        ({"question": "q", "better": "\ud800", "worse": "b"}, "half of a surrogate pair"),
        ({"input": "p", "output_1": "x", "output_2": "y", "label": 3}, "label is 3"),
        ("words", "line 1 is a str"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_examples(written(tmp_path, row))


def test_files_without_examples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no example"):
        read_examples(written(tmp_path))
    with pytest.raises(ConfigError, match="cannot read"):
        read_examples(tmp_path / "absent")
    (tmp_path / "bad").write_text("{")
    with pytest.raises(ConfigError, match="is no JSON"):
        read_examples(tmp_path / "bad")


def test_comparisons_put_the_better_first_and_keep_ties_only_where_there_is_nothing_else() -> None:
    answers = tuple(Settled(text=t, score=s) for t, s in (("a", 0.2), ("b", 0.9), ("c", 0.9), ("d", 0.0)))
    found = comparisons([Example(question="q", answers=answers)])
    assert len(found) == 4
    assert all(c.better.score > c.worse.score for c in found)
    assert [c.gap for c in found] == sorted((c.gap for c in found), reverse=True)
    tied = comparisons([Example(question="q", answers=(answers[1], answers[2]))])
    assert [(c.better.text, c.worse.text, c.is_tie) for c in tied] == [("b", "c", True)]


def test_splits_are_disjoint_whole_and_about_as_large_as_asked() -> None:
    found = split(many(2000), seed=3)
    parts = [found.train, found.calibrate, found.anchors, found.fresh]
    names = [{e.question for e in part} for part in parts]
    assert sum(map(len, names)) == len(set().union(*names)) == 2000
    for part, share in zip(parts, (0.55, 0.1, 0.1, 0.25), strict=True):
        assert len(part) / 2000 == pytest.approx(share, abs=0.03)
    assert split(list(reversed(many(2000))), seed=3).fresh == tuple(reversed(found.fresh)), "by content, not by place"
    assert split(many(2000), seed=4).fresh != found.fresh


def test_what_was_held_out_is_fresh_and_frozen_anchors_are_nowhere_else() -> None:
    found = split(many(300, held_out=50), seed=0)
    assert {e.question for e in found.fresh} == {f"q{n}" for n in range(50)}
    assert found.anchors
    frozen = many(20)
    found = split(many(300), seed=0, anchors=frozen)
    assert found.anchors == tuple(frozen)
    drawn = split(many(300), seed=0)
    assert {e.question for e in found.calibrate} == {e.question for e in drawn.calibrate} - {e.question for e in frozen}
    again = split(many(300), seed=0, anchors=drawn.anchors)
    assert (again.calibrate, again.fresh) == (drawn.calibrate, drawn.fresh), (
        "a later change splits as the first one did"
    )
    rest = {e.question for part in (found.train, found.calibrate, found.fresh) for e in part}
    assert rest == {f"q{n}" for n in range(20, 300)}


def test_shares_that_leave_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to train on"):
        Shares(calibrate=0.5, anchors=0.3, fresh=0.2)
