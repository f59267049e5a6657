"""`judge evolve-model` on Ray: workers read the preferences and ask the endpoint themselves, and decide as threads do."""

import base64
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coharness.reward.images.extra import INSTALL

pytest.importorskip("cv2", reason=f"needs the extra: {INSTALL}")
pytest.importorskip("skimage", reason=f"needs the extra: {INSTALL}")

from actors.library import RayTrialPool
from coharness.reward.images.endpoint_model import EndpointModel
from coharness.reward.images.society import MakePool, evolve_by_model
from coharness.reward.images.synthetic.draw import draw
from coharness.reward.images.synthetic.scenes import DrawnBackgrounds
from coharness.reward.images.synthetic.write import Annotator, write
from coharness.reward.library.records import RecordKind
from coharness.reward.library.society import Telling
from coharness.reward.library.trial_pool import ThreadPool
from coharness.testing.judge_server import Reply, ScriptedServer

SKILL = "what-was-asked-for"


@pytest.fixture(scope="module")
def preferences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(4)
    drawn = [draw(rng, f"s{index}", DrawnBackgrounds()) for index in range(6)]
    return write(drawn, tmp_path_factory.mktemp("drawn") / "d", Annotator(), rng)


def seeing(preferences: Path) -> Callable[[dict[str, Any]], Reply]:
    """A model that prefers what people prefer where it is told the right skill, and else whatever stands first."""
    worth: Counter[str] = Counter()
    for row in map(json.loads, preferences.read_text().splitlines()):
        better = row["left_image" if row["vote_type"] == "leftvote" else "right_image"]
        worth[base64.b64encode((preferences.parent / better).read_bytes()).decode()] += 1

    def script(request: dict[str, Any]) -> Reply:
        content = request["messages"][-1]["content"]
        if isinstance(content, str):
            names = ("nothing-in-particular", SKILL)
            skill = {
                "action": "add",
                "description": "To add, erase, shift or move a shape.",
                "body": "An edit does what was asked.",
            }
            text = json.dumps({"skill_updates": [{**skill, "name": name} for name in names], "tool_updates": []})
        else:
            seen = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
            a, b = (worth[url.partition("base64,")[2]] for url in seen[1:])
            better = "B" if SKILL in json.dumps(request["messages"][0]) and b > a else "A"
            scores = {
                f"score_{side}_{axis}": 4 if side == better else 1
                for side in "AB"
                for axis in ("instruction", "quality")
            }
            text = f"<answer>{json.dumps({'reasoning': 'seen', **scores, 'preference': better})}</answer>"
        message = {"content": json.dumps({"text": text})}
        body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {}}
        return Reply(body=json.dumps(body).encode())

    return script


def test_a_library_evolves_on_actors_as_it_does_on_threads(
    ray_session: object, preferences: Path, tmp_path: Path
) -> None:
    def evolved(name: str, base: str, make_pool: MakePool) -> dict[str, Any]:
        model = EndpointModel(endpoints=(base,), name="m").shared_by(3, tmp_path / name / "judgments.sqlite")
        return evolve_by_model(
            preferences, tmp_path / name, model, make_pool, kind=RecordKind.EDITREWARD_DATA, start=None, islands=2,
            trials=12, seed=0, telling=Telling.ASKED,
        )  # fmt: skip

    with ScriptedServer(seeing(preferences)) as server:
        there = evolved("ray", server.base, lambda spec, _: RayTrialPool(spec, 2, deadline_s=300.0))
        asked = len(server.requests)
        here = evolved("threads", server.base, lambda _, judge: ThreadPool(judge, 2))
    assert asked > 0
    assert there == here
    assert there["champion"] in there["kept"]
    assert {island["accuracy"] for island in there["islands"]} == {1.0}
    assert there["analyses_failed"] == 0
