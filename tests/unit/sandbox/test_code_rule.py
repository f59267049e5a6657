"""A rule over what the sandbox saw, through a rollout worker: what each kind of answer earns, held against the rule by hand."""

import re
from pathlib import Path

import pytest

from coharness.config.load import load_config
from coharness.config.sandbox import SandboxSection
from coharness.loop.build import run_sources
from coharness.loop.context import build_context
from coharness.loop.worker import EpisodeWorker
from coharness.policy.generation.scripted import ScriptedGenerator
from coharness.records.episode import episodes_from_table
from coharness.records.ids import ItemId, PolicyId
from coharness.records.policy import VersionRef, WeightsKind, WeightsRef
from coharness.records.work import OutcomeStatus, Purpose, WorkBatch, WorkItem
from coharness.reward.sandbox import Sandbox
from coharness.reward.verify import VerifierRouter

EXPERIMENT = Path(__file__).resolve().parents[3] / "experiments" / "code"
TIMEOUT_S = 10.0


def test_both_configs_reward_alike() -> None:
    real, tiny = (load_config(EXPERIMENT / name) for name in ("config.yaml", "config-tiny.yaml"))
    assert real.harness.reward_rule == tiny.harness.reward_rule
    assert real.reward == tiny.reward
    assert {section.type for section in (*real.tasks, *tiny.tasks)} == {"code"}
    assert real.training.objective == tiny.training.objective == "grpo"


def test_what_answers_earn(sandbox: Sandbox) -> None:
    config = load_config(EXPERIMENT / "config.yaml")
    sources = run_sources(config)
    harness = build_context(config, sources).h0
    task = sources.make("code", 1, 5)
    assert "at most 771" in task.question
    cases = re.findall(r"candidate\((-?\d+)\) == (-?\d+)", task.verifier.params["test"])
    share = sum(given == value for given, value in cases) / 6
    assert len(cases) == 6
    assert 0.0 < share < 1.0
    define = "def at_most_771(x):\n    "
    replies = {
        "right": f"Here:\n```python\n{define}return min(x, 771)\n```\nIt takes the smaller one.",
        "partly": f"```python\n{define}return x\n```",
        "loads": f"```python\n{define}return x + ''\n```",
        "no python": "```python\ndef at_most_771(x) return x\n```",
        "forbidden": f"```python\nimport os\n{define}os.fork()\n    return min(x, 771)\n```",
        "too slow": f"```python\n{define}while True:\n        pass\n```",
        "no block": f"{define}return min(x, 771)",
        "around": f"```python\n{define}return x\n```\nor rather:\n{define}return min(x, 771)",
    }
    answers = iter(replies.values())
    router = VerifierRouter(sandbox=SandboxSection(timeout_s=TIMEOUT_S))
    worker = EpisodeWorker("w", sources, ScriptedGenerator(lambda prompt, seed: next(answers)), router, 100_000)
    version = VersionRef(PolicyId("p0"), 1)
    item = WorkItem(
        id=ItemId(1), version=version, harness=harness.id, task=task.ref, format="fenced", purpose=Purpose.TRAIN, seed=1,
        group_size=len(replies), temperature=1.0, max_tokens=4_000,
    )  # fmt: skip
    weights = WeightsRef(uri="", digest="b", kind=WeightsKind.BASE, num_bytes=0, has_optimizer=False, canary=0.0)
    batch = WorkBatch(id=1, items=(item,), harnesses={harness.id: harness}, weights={version: weights}, lease_s=600.0)
    result, table = worker.run(batch)
    worker.close()
    (outcome,) = result.outcomes
    assert outcome.status is OutcomeStatus.DONE, outcome.message
    scores = dict(zip(replies, (episode.score for episode in episodes_from_table(table)), strict=True))
    # Weights 1, 1, 1, 1, .5, .5 of format, loads, runs, allowed, time, overlong; the place of failed attempts is below .45.
    shares = {
        "partly": (4 + 1.0, share),
        "loads": (1 + 1 + 0 + 1 + 0.5, 0.0),
        "no python": (1 + 0 + 0 + 1 + 0.5, 0.0),
        "too slow": (1 + 0 + 0 + 1 + 0.5, 0.0),
        "no block": (0.0, 0.0),
    }
    for name, (most, partial) in shares.items():
        most, least = 0.5 * min(0.9, 0.5 * (most / 5 + partial)), 0.5 * min(0.9, 0.5 * ((most - 0.5) / 5 + partial))
        assert least - 1e-9 <= scores[name].value <= most + 1e-9, name
        assert scores[name].partial == pytest.approx(partial), name
    assert 0.95 <= scores["right"].value <= 1.0
    assert scores["right"].exact == 1.0
    assert scores["around"].value == pytest.approx(scores["partly"].value, abs=0.03), "the text around was executed"
    assert scores["forbidden"].exact == 0.0
    assert scores["forbidden"].value < scores["loads"].value
    assert scores["no block"].value == 0.0
