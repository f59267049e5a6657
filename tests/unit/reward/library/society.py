"""A society over a model that judges well only by the right skill, and an analyser that proposes it among others."""

import base64
import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coharness.records.ids import JSON
from coharness.reward.judges.cache import JudgmentCache
from coharness.reward.judges.client import CallError, CallFailure
from coharness.reward.library.gate import Comparison, GateRule
from coharness.reward.library.library import Library
from coharness.reward.library.population import LibraryPopulation, LibraryTrial
from coharness.reward.library.preferences import Label
from coharness.reward.library.router import LexicalRouter
from coharness.reward.library.society import Analyser, LabelledPair, ModelTrials, Telling, improve
from coharness.reward.library.trial_pool import Judge, JudgeSpec, ThreadPool, TrialPool
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


def trials(model: Model) -> ModelTrials:
    """Trials over twelve confirming pairs, judgments kept."""
    cache = JudgmentCache(None)
    return ModelTrials(lambda library: VlmJudge(model, library, LexicalRouter(), model="m", cache=cache), pairs(12))


def society(
    model: Model,
    *,
    workers: int = 1,
    islands: int = 2,
    pool: TrialPool | None = None,
    telling: Telling = Telling.ARRIVAL,
) -> tuple[LibraryPopulation, Analyser]:
    """Let a population work to its end; on threads where no pool is given, and the pool is closed."""
    cache = JudgmentCache(None)

    def make(library: Library) -> VlmJudge:
        return VlmJudge(model, library, LexicalRouter(), model="m", cache=cache)

    analyser = Analyser(complete=model, make=make, pairs=pairs(10, offset=3))
    state = LibraryPopulation.of([Library.of("start")] * islands, GateRule(level=0.84), seed=3)
    pool = pool or ThreadPool(ModelTrials(make, pairs(12)).judge, workers)
    try:
        return improve(state, analyser.propose, pool, trials=30, telling=telling), analyser
    finally:
        pool.close()


# In a process of its own ------------------------------------------------------------------------------------------------


def spec(**settings: JSON) -> JudgeSpec:
    """How `trials(Model())` is built elsewhere; the settings are those of `judge_of`."""
    return JudgeSpec(factory=f"{__name__}:judge_of", settings=settings)


def judge_of(settings: Mapping[str, JSON]) -> Judge:
    """A factory. `die` names a file: whoever judges while it is there deletes it and dies; `hang` never ends; `fail` raises."""
    if settings.get("broken"):
        raise ValueError("no model here")
    inner = trials(Model()).judge

    def judge(trial: LibraryTrial) -> Comparison | None:
        if settings.get("hang"):
            threading.Event().wait()
        if settings.get("fail"):
            raise ValueError("the judge is at fault")
        if "die" in settings and Path(settings["die"]).exists():
            Path(settings["die"]).unlink()
            os._exit(1)
        return inner(trial)

    return judge
