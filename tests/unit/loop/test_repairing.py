"""A repair from a replay store: what was stored is what is learnt from, and the candidate is kept whatever becomes of it."""

import json
from pathlib import Path
from random import Random

import pytest

from coharness.config.schema import RunConfig
from coharness.loop.jobs import JobRunner
from coharness.loop.repairing import JudgeRepairer, stored_audits
from coharness.loop.replay_store import ArrowReplayStore
from coharness.loop.run_dir import RunDir
from coharness.policy.codec import RawCodec
from coharness.policy.tiny import build_tokenizer
from coharness.records.episode import Episode, JudgedPart, Score, StopReason, episodes_to_table
from coharness.records.errors import Boundary
from coharness.records.ids import ItemId, JobId, JudgeId
from coharness.records.training import JobStatus, RepairJob
from coharness.reward.linear.files import LinearShelf
from coharness.reward.linear.fit import Ordered, fit
from coharness.reward.linear.model import LinearModel
from coharness.reward.linear.rows import write_pairs
from coharness.tasks.builtin import BuiltinSource
from coharness.tasks.sources import TaskSources
from coharness.testing.runs import simulated_config

SOURCES = TaskSources([BuiltinSource(["reverse"], max_level=2)])
NUM_GROUPS = 40


def pairs(count: int, seed: int) -> list[Ordered]:
    rng, found = Random(seed), []
    while len(found) < count:
        task = SOURCES.make("reverse", 2, rng.getrandbits(40))
        if len(set(task.answer)) > 1:
            wrong = task.answer[1:] + task.answer[0]
            if wrong != task.answer:
                found.append(Ordered(question=task.question, better=task.answer, worse=wrong))
    return found


@pytest.fixture(scope="module")
def biased() -> LinearModel:
    return fit([], pairs(80, 1)).shifted({"longer": 60.0})


def codec() -> RawCodec:
    return RawCodec(build_tokenizer(), eos_id=1)


def episode(item: int, sample: int, judge: LinearModel, *, right: bool, scored: bool = True) -> Episode:
    task = SOURCES.make("reverse", 2, 1_000 + item)
    answer = task.answer if right else task.answer + "aa"
    prompt, written = codec().encode_prompt(f"{task.question}="), codec().encode_completion(answer)
    score = judge.score(task.question, answer)
    part = JudgedPart(name="judge/score", outcome="ok", value=score)
    failed = JudgedPart(name="judge/score", outcome="infra", value=None)
    return Episode(
        item=ItemId(item), sample=sample, policy="p0", step=1, harness="h-1", task=task.id, family="reverse", level=2,
        task_seed=1_000 + item, format="plain", purpose="train", temperature=1.0, token_ids=[*prompt, *written],
        loss_mask=[False] * len(prompt) + [True] * len(written), logprobs=[0.0] * (len(prompt) + len(written)),
        prompt_length=len(prompt), reference_ids=codec().encode_completion(task.answer), answer=answer,
        stop_reason=StopReason.EOS,
        score=Score(value=score, exact=float(right), partial=float(right), format=1.0, length=0.5),
        judge=judge.id, judged=(part if scored else failed,),
    )  # fmt: skip


def run_with_store(path: Path, judge: LinearModel) -> tuple[RunConfig, ArrowReplayStore]:
    path.mkdir(parents=True)
    write_pairs(path / "anchors.jsonl", pairs(40, 2))
    config = simulated_config(
        path / "run",
        tasks=[{"type": "builtin", "families": ["reverse"], "max_level": 2}],
        reward={"judge": {"type": "linear", "file": str(path / "judge.json"), "anchors": str(path / "anchors.jsonl")}},
    )
    run = RunDir.create(config)
    LinearShelf(run.judges_dir).add(judge)
    store = ArrowReplayStore(run.replay_dir, 1)
    rows = [episode(i, s, judge, right=s == 0 and i % 2 == 0) for i in range(NUM_GROUPS) for s in range(3)]
    store.append(episodes_to_table(rows))
    return config, store


def test_what_a_store_holds_comes_back_as_audits(biased: LinearModel) -> None:
    rows = [
        episode(0, 0, biased, right=True),
        episode(0, 1, biased, right=False),
        episode(1, 0, biased, right=True, scored=False),
    ]
    audited, references = stored_audits(episodes_to_table(rows), SOURCES, codec())
    task = SOURCES.make("reverse", 2, 1_000)
    assert [(a.question, a.answer, a.verified) for a in audited] == [
        (task.question, task.answer, True),
        (task.question, f"{task.answer}aa", False),
    ], "an attempt whose judge failed is no audit"
    assert audited[1].judged == pytest.approx(biased.score(task.question, f"{task.answer}aa"), abs=1e-6)
    assert references == {task.id: task.answer}


def test_a_repair_mends_from_the_store_and_keeps_the_candidate(tmp_path: Path, biased: LinearModel) -> None:
    config, store = run_with_store(tmp_path / "a", biased)
    repairer = JudgeRepairer(config, Path(config.run_dir), SOURCES)
    job = RepairJob(id=JobId(1), judge=biased.id, items=tuple(ItemId(i) for i in range(NUM_GROUPS)), seed=3)
    result = repairer.run(job, store.fetch(job.items))
    assert result.status is JobStatus.DONE
    assert result.mended is not None
    assert result.mended.incumbent == biased.id
    assert result.mended.fresh_conflicts_after < result.mended.fresh_conflicts_before
    shelf = LinearShelf(RunDir(Path(config.run_dir)).judges_dir)
    assert shelf.model(result.mended.judge).parent == biased.id
    again = repairer.run(job, store.fetch(job.items))
    assert again.mended == result.mended, "the same job gives the same judge, so a resumed run may repeat it"
    kept = sorted(p.name for p in RunDir(Path(config.run_dir)).judges_dir.iterdir())
    assert kept == sorted([f"{biased.id}.json", f"{result.mended.judge}.json"])


def test_a_job_runner_reports_what_it_cannot_mend(tmp_path: Path, biased: LinearModel) -> None:
    config, store = run_with_store(tmp_path / "b", biased)
    job = RepairJob(id=JobId(1), judge=JudgeId("j-0000"), items=(ItemId(0),), seed=3)
    without = JobRunner(tmp_path, config.policy, None, store)  # type: ignore[arg-type]
    ended = without.run(job)
    assert (ended.status, ended.boundary) == (JobStatus.FAILED, Boundary.TRAINING)
    assert "has no judge to mend" in ended.message
    runner = JobRunner(
        tmp_path,
        config.policy,
        None,  # type: ignore[arg-type]
        store,
        JudgeRepairer(config, Path(config.run_dir), SOURCES),
    )
    ended = runner.run(job)
    assert ended.status is JobStatus.FAILED
    assert "no judge in" in ended.message
    missing = runner.run(RepairJob(id=JobId(2), judge=biased.id, items=(ItemId(999),), seed=3))
    assert (missing.status, missing.boundary) == (JobStatus.FAILED, Boundary.REPLAY)


def test_the_judges_file_is_json_that_anyone_can_read(tmp_path: Path, biased: LinearModel) -> None:
    name = LinearShelf(tmp_path).add(biased)
    data = json.loads((tmp_path / f"{name}.json").read_text())
    assert data["about"]["shifts"] == {"longer": 60.0}
