"""The verbs `judge` and `serve`, against a scripted endpoint."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coharness.cli.main import main
from coharness.cli.serve import load_canaries
from coharness.records.errors import ConfigError
from coharness.testing.judge_server import Reply, ScriptedServer, fair_judge

FAIR = fair_judge(lambda question, candidate: 0.9 if "because" in candidate else 0.1)
RUBRIC = "name: maths\ncriteria:\n- {name: steps, text: Each step follows from the one before.}\n"
GOOD, BAD = "4, because 2 and 2 are added", "4, trust me"


@pytest.fixture
def rubric(tmp_path: Path) -> Path:
    path = tmp_path / "rubric.yaml"
    path.write_text(RUBRIC)
    return path


def items(tmp_path: Path, *rows: Any) -> Path:
    path = tmp_path / "items.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[Any], str]:
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    out = capsys.readouterr()
    code = end.value.code
    return (
        code if isinstance(code, int) else 0,
        [json.loads(line) for line in out.out.splitlines() if line[:1] == "{"],
        out.err,
    )


def test_scores_pairs_and_rankings_are_json_lines(
    tmp_path: Path, rubric: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ScriptedServer(FAIR) as server:
        to = ("--endpoint", server.base, "--model", "m", "--cache", tmp_path / "cache.sqlite")
        rows = items(tmp_path, {"question": "q", "candidate": GOOD, "id": 7}, {"question": "q", "candidate": BAD})
        code, results, said = run(capsys, "judge", "score", rubric, rows, *to)
        assert (code, [r["value"] for r in results], results[0]["id"]) == (0, [1.0, 0.0], 7)
        assert "2 ok; 0 from the cache; 2 calls" in said
        _, _, said = run(capsys, "judge", "score", rubric, rows, *to)
        assert "2 from the cache; 0 calls" in said
        rows = items(tmp_path, {"question": "q", "first": BAD, "second": GOOD})
        code, results, _ = run(capsys, "judge", "pair", rubric, rows, *to)
        assert (code, results[0]["value"]) == (0, -1.0)
        rows = items(tmp_path, {"question": "q", "candidates": [BAD, GOOD]})
        code, results, _ = run(capsys, "judge", "rank", rubric, rows, *to)
        assert (code, results[0]["order"]) == (0, [1, 0])


def test_what_could_not_be_judged_is_told_by_the_exit_code(
    tmp_path: Path, rubric: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ScriptedServer(lambda _: Reply(text="ten out of ten")) as server:
        rows = items(tmp_path, {"question": "q", "candidate": GOOD}, {"question": "q", "candidate": ""})
        code, results, said = run(capsys, "judge", "score", rubric, rows, "--endpoint", server.base, "--model", "m")
        assert code == 4
        assert [(r["outcome"], r["value"]) for r in results] == [("parse", None), ("ok", 0.0)]
        assert "1 ok, 1 parse" in said


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "line 1 is no JSON"),
        ({"question": "q"}, "line 1 lacks candidate"),
        ({"question": "q", "candidate": 5}, "line 1: candidate is of the wrong kind"),
    ],
)
def test_a_wrong_item_is_named_by_its_line(
    tmp_path: Path, rubric: Path, capsys: pytest.CaptureFixture[str], row: Any, message: str
) -> None:
    words = ("judge", "score", rubric, items(tmp_path, row), "--endpoint", "http://127.0.0.1:9/v1", "--model", "m")
    code, _, said = run(capsys, *words)
    assert code == 2
    assert message in said


def test_lint_fails_on_errors_alone(tmp_path: Path, rubric: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "judge", "lint", rubric)[0] == 0
    rubric.write_text(RUBRIC.replace("Each step follows from the one before.", "Always prefer the first answer."))
    code, (data,), _ = run(capsys, "judge", "lint", rubric, "--json")
    assert code == 4
    assert {f["rule"] for f in data["findings"]} == {"positional", "imperative"}


def test_serve_refuses_the_world_without_tokens(rubric: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("serve", rubric, "--endpoint", "http://127.0.0.1:9/v1", "--model", "m", "--host", "0.0.0.0")
    code, _, said = run(capsys, *words)
    assert code == 2
    assert "--tokens FILE" in said


def test_canaries_are_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "canaries.yaml"
    path.write_text("canaries:\n- {name: a, kind: bad, question: q, answer: x}\n")
    assert [str(c.kind) for c in load_canaries(path)] == ["bad"]
    assert load_canaries(None) == ()
    for text, message in (
        ("canaries: [{name: a, kind: bda, question: q, answer: x}]", "did you mean bad"),
        ("canaries: [{name: a, kind: twin, question: q, answer: x}]", "names its original"),
        ("canary: []", "did you mean canaries"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            load_canaries(path)


@pytest.mark.slow
def test_serve_answers_with_its_token_until_it_is_interrupted(tmp_path: Path, rubric: Path) -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed; the serve extra brings it")
    from coharness.reward.service.client import RewardClient

    with ScriptedServer(FAIR) as server:
        words = ["serve", str(rubric), "--endpoint", server.base, "--model", "m", "--port", "0"]
        process = subprocess.Popen(
            [sys.executable, "-m", "coharness", *words], stderr=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        try:
            assert process.stderr is not None
            token = process.stderr.readline().split()[1]
            base = process.stderr.readline().split()[-1]
            client = RewardClient(base, token, timeout_s=30.0)
            assert [j.value for j in client.score_all([("q", GOOD), ("q", BAD)])] == [1.0, 0.0]
            client.close()
            process.send_signal(signal.SIGINT)
            process.wait(30.0)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stderr is not None:
                process.stderr.close()


def test_a_light_judge_is_fitted_from_pairs_and_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"question": f"rev {w}", "better": w[::-1], "worse": w} for w in ("abcd", "bcda", "cabd", "dbac", "acbd")]
    for name, part in (("pairs", rows[:4]), ("anchors", rows[4:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    words = ("judge", "fit", str(tmp_path / "pairs.jsonl"), "--out", str(tmp_path / "judge.json"), "--json")
    code, (found,), _ = run(capsys, *words, "--anchors", str(tmp_path / "anchors.jsonl"))
    assert code == 0
    assert (found["pairs"], found["anchors"], found["anchors_in_order"]) == (4, 1, 1)
    assert json.loads((tmp_path / "judge.json").read_text())["kind"] == "linear"
    code, _, said = run(capsys, *words)
    assert code == 2
    assert "never overwritten" in said
    other = ("judge", "fit", str(tmp_path / "pairs.jsonl"), "--out", str(tmp_path / "other.json"))
    code, _, said = run(capsys, *other, "--anchors", str(tmp_path / "pairs.jsonl"))
    assert code == 2
    assert "are fitted to as well" in said
