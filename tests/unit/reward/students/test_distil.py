"""From judgments to a folder: what is fitted on, what decides, and what is written."""

import json
from pathlib import Path

import numpy as np
import pytest

from coharness.cli.main import main
from coharness.records.errors import ConfigError, PreflightError
from coharness.reward.students.distil import FILE, Cascade, Taught, distil, read_cascade, write_cascade
from coharness.reward.students.features import Item
from coharness.reward.training.gate import Ledger

WORDS = ("river", "stone", "cloud", "paper", "green", "seven", "north", "candle", "music", "winter")


def drawn(num: int, seed: int) -> tuple[list[Item], np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.random(num) < 0.5
    texts = [[*rng.choice(WORDS, 6), "because" if good else "whatever", f"n{seed}x{n}"] for n, good in enumerate(truth)]
    return [("why is it so", " ".join(text)) for text in texts], truth


def judged(error: float = 0.1) -> tuple[list[Taught], dict[Item, float]]:
    """300 judgments to learn from and 400 whose truth is settled; the teacher errs in some of each."""
    items, truth = drawn(700, 0)
    said = truth ^ (np.random.default_rng(1).random(700) < error)
    taught = [Taught(item=item, value=0.9 if good else 0.1) for item, good in zip(items, said, strict=True)]
    return taught, {item: float(good) for item, good in zip(items[300:], truth[300:], strict=True)}


def cascade() -> Cascade:
    taught, settled = judged()
    return distil(taught, settled, teacher="t@1")


def test_a_student_of_a_teacher_with_random_errors_is_promoted_and_spares_calls() -> None:
    made = cascade()
    assert made.verdict.promoted
    assert made.figures["student"] > made.figures["teacher"]
    assert made.figures["together"] >= made.figures["teacher"]
    assert made.figures["calls"] < 0.3
    assert made.figures["answered_wrong"] <= 0.1


def test_settled_items_are_never_fitted_on() -> None:
    taught, settled = judged()
    # Turning the teacher's word on settled items round changes no coefficient.
    turned = [Taught(item=t.item, value=1 - t.value) if t.item in settled else t for t in taught]
    one, two = (distil(rows, settled, teacher="t").student for rows in (taught, turned))
    np.testing.assert_array_equal(one.coefficients, two.coefficients)


def test_a_student_that_learned_nothing_hands_everything_up_and_proves_nothing_by_it() -> None:
    items, truth = drawn(400, 2)
    rng = np.random.default_rng(3)
    taught = [Taught(item=item, value=float(rng.random())) for item in items]
    settled = {item: float(good) for item, good in zip(items[200:], truth[200:], strict=True)}
    made = distil(taught, settled, teacher="t")
    assert made.figures["calls"] == 1.0
    assert made.figures["together"] == made.figures["teacher"]


def test_too_few_and_spent_items_are_refused() -> None:
    taught, settled = judged()
    with pytest.raises(ConfigError, match="expected at least 60 and 10"):
        distil(taught, dict(list(settled.items())[:30]), teacher="t")
    spent = distil(taught, settled, teacher="t").verdict.ledger
    with pytest.raises(ConfigError, match="decided about an earlier change"):
        distil(taught, settled, teacher="t", ledger=spent)
    assert spent.num_tests == Ledger().num_tests + 1


def test_a_folder_is_read_back_and_damage_is_named(tmp_path: Path) -> None:
    made = cascade()
    write_cascade(tmp_path, made)
    student, selection, promoted = read_cascade(tmp_path)
    assert (selection, promoted) == (made.selection, True)
    np.testing.assert_array_equal(student.coefficients, made.student.coefficients)
    data = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps({**data, "threshold": None}))
    assert read_cascade(tmp_path)[1].threshold == float("inf"), "what never answers survives JSON"
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(PreflightError, match="distil it again"):
        read_cascade(tmp_path)


def test_the_command_distils_from_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taught, settled = judged()
    judgments, truth = tmp_path / "judgments.jsonl", tmp_path / "settled.jsonl"
    judgments.write_text(
        "".join(json.dumps({"question": t.item[0], "candidate": t.item[1], "value": t.value}) + "\n" for t in taught)
    )
    truth.write_text(
        "".join(json.dumps({"question": q, "answer": a, "score": s}) + "\n" for (q, a), s in settled.items())
    )
    words = ["judge", "distil", str(judgments), "--settled", str(truth), "--out", str(tmp_path / "student"), "--json"]
    with pytest.raises(SystemExit) as end:
        main(words)
    told = json.loads(capsys.readouterr().out)
    assert end.value.code in (0, None)
    assert told["promoted"]
    assert told["figures"]["calls"] < 0.3
    assert read_cascade(tmp_path / "student")[2]
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert "not empty" in capsys.readouterr().err
