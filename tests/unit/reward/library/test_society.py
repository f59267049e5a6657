"""A population over a model that judges well only by the right skill, and an analyser that proposes it among others."""

import base64
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from coharness.reward.judges.cache import JudgmentCache
from coharness.reward.judges.client import CallError, CallFailure
from coharness.reward.library.gate import GateRule
from coharness.reward.library.library import Library
from coharness.reward.library.population import LibraryPopulation
from coharness.reward.library.preferences import Label
from coharness.reward.library.router import LexicalRouter
from coharness.reward.library.society import Analyser, LabelledPair, ModelTrials, improve
from coharness.reward.library.vlm import PairTask, VlmJudge


def image(worth: int) -> bytes:
    return b"\x89PNG" + bytes([worth])


def pairs(num: int, offset: int = 0) -> list[LabelledPair]:
    made = []
    for index in range(num):
        a, b = (index * 7 + offset) % 50, (index * 13 + offset + 1) % 50
        b += a == b
        task = PairTask(instruction="make the star blue", source=image(99), first=image(a), second=image(b))
        made.append(LabelledPair(task=task, label=Label.A if a > b else Label.B, group=f"g{index}"))
    return made


class Model:
    """Judges by worth where the context holds the right skill; else it says A in every order. It also analyses."""

    def __init__(self, *, outage: bool = False) -> None:
        self.calls, self.outage, self.lock = 0, outage, threading.Lock()

    def __call__(self, messages: Sequence[Mapping[str, Any]]) -> str:
        with self.lock:
            self.calls += 1
        content = messages[-1]["content"]
        if isinstance(content, str):
            assert '"people"' in content
            skill = {
                "action": "add",
                "description": "For any star.",
                "body": "An edit is good where the star is as it was asked for.",
            }
            names = ("useless-star", "worth-of-a-star", "idle-star")
            return json.dumps({"skill_updates": [{**skill, "name": name} for name in names], "tool_updates": []})
        if self.outage:
            raise CallError(CallFailure.SERVER, "the endpoint answered 500")
        seen = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
        a, b = (base64.b64decode(url.partition(",")[2])[-1] for url in seen[1:])
        better = "A" if a > b or "worth-of-a-star" not in messages[0]["content"] else "B"
        scores = {
            f"score_{side}_{axis}": 4 if side == better else 1 for side in "AB" for axis in ("instruction", "quality")
        }
        return f"<answer>{json.dumps({'reasoning': 'seen', **scores, 'preference': better})}</answer>"


def society(model: Model, *, workers: int, islands: int = 2) -> tuple[LibraryPopulation, Analyser]:
    cache = JudgmentCache(None)

    def make(library: Library) -> VlmJudge:
        return VlmJudge(model, library, LexicalRouter(), model="m", cache=cache)

    analyser = Analyser(complete=model, make=make, pairs=pairs(10, offset=3))
    state = LibraryPopulation.of([Library.of("start")] * islands, GateRule(level=0.84), seed=3)
    trials = ModelTrials(make, pairs(12))
    return improve(state, analyser.propose, trials.judge, trials=30, workers=workers), analyser


@pytest.mark.parametrize("workers", [1, 4])
def test_every_island_comes_by_the_skill_that_helps_and_by_no_other(workers: int) -> None:
    state, analyser = society(Model(), workers=workers)
    for island in state.islands:
        assert [entry.name for entry in island.library.entries] == ["worth-of-a-star"]
        assert island.accuracy == 1.0
    assert analyser.failures == 0
    assert not state.out


def test_answers_that_are_kept_are_not_asked_for_again() -> None:
    model = Model()
    society(model, workers=1, islands=1)
    one_version = 2 * 12
    # Start, three challengers of it and two of the next version on 12 confirming pairs in two orders; two analyses of 10 pairs.
    assert model.calls <= 6 * one_version + 2 * (2 * 10 + 1)


def test_an_outage_decides_nothing() -> None:
    state, _ = society(Model(outage=True), workers=2, islands=1)
    assert state.islands[0].accepted == 0
    assert state.islands[0].refused == ()
    assert state.next_number == 30


def test_an_analysis_that_fails_is_counted() -> None:
    def make(library: Library) -> VlmJudge:
        return VlmJudge(Model(), library, LexicalRouter(), model="m")

    analyser = Analyser(complete=lambda messages: "no JSON", make=make, pairs=pairs(2))
    assert analyser.propose(Library.of("x"), 0) == []
    assert analyser.failures == 1
