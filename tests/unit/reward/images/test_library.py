"""The whole way from files of preferences to a library."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.testing

from coharness.reward.images.extra import INSTALL

pytest.importorskip("cv2", reason=f"needs the extra: {INSTALL}")
pytest.importorskip("skimage", reason=f"needs the extra: {INSTALL}")

import cv2

from coharness.cli.judge import app
from coharness.records.errors import TaskError
from coharness.reward.images.dataset import load
from coharness.reward.images.libraries import BY_HAND, by_hand
from coharness.reward.images.measure import NOTES
from coharness.reward.images.pixels import Image
from coharness.reward.images.synthetic.draw import draw
from coharness.reward.images.synthetic.scenes import (
    DrawnBackgrounds,
)
from coharness.reward.images.synthetic.write import Annotator, write
from coharness.reward.images.work import compare_file, instruments_of
from coharness.reward.library.evolution import EvolutionSettings
from coharness.reward.library.evolve import evolve
from coharness.reward.library.executor import score
from coharness.reward.library.fit import half_right
from coharness.reward.library.ideas import pool_of
from coharness.reward.library.library import Library
from coharness.reward.library.records import RecordKind
from coharness.reward.library.tagged import Call
from coharness.reward.library.vlm import PairTask
from coharness.testing.judge_server import Reply, ScriptedServer
from tests.unit.reward.images.scenes import scene_with


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(21)
    drawn = [draw(rng, f"s{index}", DrawnBackgrounds()) for index in range(40)]
    return write(drawn, tmp_path_factory.mktemp("demos") / "d", Annotator(ties=True), rng).parent


def test_files_give_the_table_that_the_images_give(folder: Path) -> None:
    data = load(folder / "preferences.jsonl")
    assert (len(data.table.names), len(data.pairs), data.unread) == (40, 240, ())
    assert len(data.table.group) == 160
    strict = data.pairs.where(data.pairs.target != 0.5)
    right = half_right(score(data.table, by_hand()).margin(strict.first, strict.second), strict.target)
    assert right.mean() > 0.75
    weighted = load(folder / "preferences.jsonl", use_strength=True).pairs.weight
    assert weighted.mean() == pytest.approx(1.0)
    assert weighted.std() > 0.1


def test_a_library_is_evolved_from_files(folder: Path) -> None:
    data = load(folder / "preferences.jsonl")
    found = evolve(data.table, data.pairs, EvolutionSettings(), start=Library.of("evolved"), notes=NOTES)
    assert found.confirmed is not None
    assert found.confirmed.challenger > 0.75
    assert {criterion.axis for _, criterion in found.library.criteria} <= {"instruction", "preservation", "quality"}
    assert len(pool_of(data.table).criteria) > 500


def test_instructions_that_nobody_understands_are_an_error(folder: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (folder / "preferences.jsonl").read_text().splitlines()]
    (tmp_path / "images").symlink_to(folder / "images")
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps({**row, "instruction": "make it better"}) + "\n" for row in rows))
    with pytest.raises(TaskError, match="leads out of the folder"):
        load(path)
    (folder / "p.jsonl").write_text(path.read_text())
    with pytest.raises(TaskError, match="none of its 240 instructions is understood"):
        load(folder / "p.jsonl", RecordKind.EDITREWARD_DATA)


def test_groups_of_a_benchmark_are_judged_whole(folder: Path) -> None:
    rows = []
    for line in (folder / "preferences.jsonl").read_text().splitlines():
        row = json.loads(line)
        first, second = ("ABCD"[int(row[f"{side}_model"])] for side in ("left", "right"))
        rows.append(
            {
                "id": f"{row['group']}_{first}{second}", "dataset": "4pair", "instruction": row["instruction"],
                "source_image": row["source_image"], "candidate_1": row["left_image"], "candidate_2": row["right_image"],
                "comparison_type": f"{first}vs{second}", "ranking": f"{first}>{second}",
            }
        )  # fmt: skip
    path = folder / "bench.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    results, figures = compare_file(BY_HAND, path, kind=RecordKind.EDITREWARD_BENCH)
    assert (figures["pairs"], figures["judged"], figures["k4"]["groups"], figures["k4"]["failed"]) == (240, 240, 40, 0)
    # One score a candidate: whatever is said of six pairs is one order, so that A > B > C > D is right exactly where it is that.
    whole = [all(r.right for r in results if r.group == f"4:s{index}") for index in range(40)]
    assert figures["k4"]["correct"] == sum(whole)
    assert "k2" not in figures


def test_instruments_measure_the_images_that_are_named() -> None:
    def encoded(image: Image) -> bytes:
        return bytes(cv2.imencode(".png", image[..., ::-1])[1])

    source, good = scene_with("red", "circle"), scene_with("blue", "circle")
    pair = PairTask(
        instruction="make the red circle blue", source=encoded(source), first=encoded(good), second=encoded(source)
    )
    tools = instruments_of(pair)
    got = tools["presence"](Call(name="presence", images=("source", "A", "B"), query=""))
    assert got["A"]["wanted"] > 0.9 > got["B"]["wanted"]
    assert "error" in tools["presence"](Call(name="presence", images=("source",), query=""))
    assert instruments_of(PairTask(instruction="better", source=b"", first=b"", second=b"")) == {}


def test_the_verbs_go_the_whole_way(tmp_path: Path) -> None:
    def run(*words: object) -> typer.testing.Result:
        return typer.testing.CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)

    assert run("demonstrations", tmp_path / "d", "--num", 40, "--seed", 5).exit_code == 0
    file, store = tmp_path / "d" / "preferences.jsonl", tmp_path / "store"
    done = run("evolve", file, store, "--shuffles", 2, "--json")
    assert done.exit_code == 0
    report = json.loads(done.stdout.splitlines()[-1])
    version = store / "versions" / report["library"]
    assert report["skills"]
    assert report["champion"] == report["library"]
    assert run("lint-library", version).exit_code == 0
    judged = run("compare", version, file)
    assert judged.exit_code == 0
    figures = json.loads(judged.stdout.splitlines()[-1])
    assert figures["right"] / figures["judged"] > 0.6
    again = run("evolve", file, store, "--shuffles", 0, "--json")
    assert json.loads(again.stdout.splitlines()[-1])["pairs"] == report["pairs"]


@pytest.mark.slow
def test_a_library_is_evolved_by_a_model_over_an_endpoint(tmp_path: Path) -> None:
    """The model prefers the smaller file, so that no skill can help it: proposals are judged and refused, nothing is crowned."""

    def script(request: dict[str, Any]) -> Reply:
        content = request["messages"][-1]["content"]
        if isinstance(content, str):
            skill = {
                "action": "add",
                "name": "look-at-shapes",
                "description": "Shapes.",
                "body": "Shapes keep their corners.",
            }
            text = json.dumps({"skill_updates": [skill], "tool_updates": []})
        else:
            _, a, b = (len(part["image_url"]["url"]) for part in content if part["type"] == "image_url")
            better = "tie" if a == b else "A" if a < b else "B"
            scores = {
                f"score_{side}_{axis}": 3 if side == better else 2
                for side in "AB"
                for axis in ("instruction", "quality")
            }
            text = f"<answer>{json.dumps({'reasoning': 'size', **scores, 'preference': better})}</answer>"
        message = {"content": json.dumps({"text": text})}
        body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {}}
        return Reply(body=json.dumps(body).encode())

    def run(*words: object) -> typer.testing.Result:
        return typer.testing.CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)

    assert run("demonstrations", tmp_path / "d", "--num", 4).exit_code == 0
    with ScriptedServer(script) as server:
        common = ("--endpoint", server.base, "--model", "m", "--cache", tmp_path / "judgments.sqlite")
        file, store = tmp_path / "d" / "preferences.jsonl", tmp_path / "store"
        done = run("evolve-model", file, store, *common, "--islands", 1, "--trials", 3)
        assert done.exit_code == 0
        report = json.loads(done.stdout.splitlines()[-1])
        assert (report["trials"], report["champion"], report["analyses_failed"]) == (1, None, 0)
        assert report["islands"][0]["refused"] == 1
        asked = len(server.requests)
        judged = run("compare", next((store / "versions").iterdir()), file, *common)
        figures = json.loads(judged.stdout.splitlines()[-1])
        assert figures["pairs"] == 24
        # Confirming pairs are in the cache from the evolution; the others were asked for as chains, but for those beyond the cut.
        assert len(server.requests) - asked <= 2 * 6
