"""The worker with a reward rule and a judge: paid in training alone, silence earns nothing, an outage fails its group."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from coharness.loop.worker import EpisodeWorker
from coharness.policy.generation.scripted import ScriptedGenerator
from coharness.records.episode import Episode, episodes_from_table
from coharness.records.errors import Boundary
from coharness.records.harness import Harness, RewardGenes
from coharness.records.ids import ItemId, JudgeId, PolicyId
from coharness.records.policy import VersionRef, WeightsKind, WeightsRef
from coharness.records.work import Judging, Outcome, OutcomeStatus, Purpose, WorkBatch, WorkItem
from coharness.reward.algebra import Part, PartOutcome
from coharness.reward.judges.protocol import OneJudge
from coharness.reward.monitors.shortcut import FEATURES
from coharness.reward.verify import VerifierRouter
from coharness.tasks.builtin import BuiltinSource
from coharness.tasks.sources import TaskSources

SOURCES = TaskSources([BuiltinSource(["count"], max_level=2)])
REF = VersionRef(PolicyId("p0"), 0)
WEIGHTS = WeightsRef(uri="", digest="base", kind=WeightsKind.BASE, num_bytes=0, has_optimizer=False, canary=0.0)
TASK = SOURCES.make("count", 1, 5)
JUDGE = JudgeId("j-1")
RULE = {"value": {"verifier_first": {"check": "exact", "judge": "judge/score"}}}


class LengthJudge:
    """Rates short completions high; fails on request."""

    def __init__(self, outcome: PartOutcome = PartOutcome.OK) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.closed = False
        self._outcome = outcome

    @property
    def part_names(self) -> tuple[str, ...]:
        return ("judge/score",)

    def judge(self, question: str, completions: Sequence[str]) -> list[tuple[Part, ...]]:
        self.asked.append((question, tuple(completions)))
        if self._outcome is not PartOutcome.OK:
            return [(Part.failed("judge/score", self._outcome, "down"),) for _ in completions]
        return [(Part.ok("judge/score", 1.0 / (1 + len(text))),) for text in completions]

    def close(self) -> None:
        self.closed = True


def run(judge: LengthJudge | None, rule: Any = RULE, **fields: Any) -> tuple[Outcome, list[Episode]]:
    harness = Harness(tasks=(), reward=RewardGenes(rule=rule or {}))
    texts = [TASK.answer, "zz", ""]
    judging = Judging(judge=JUDGE) if judge is not None else None
    made: dict[str, Any] = {
        "purpose": Purpose.TRAIN,
        "group_size": 3,
        "temperature": 1.0,
        "judging": judging,
        **fields,
    }
    item = WorkItem(
        id=ItemId(0), version=REF, harness=harness.id, task=TASK.ref, format="plain", seed=1, max_tokens=16, **made
    )
    turns = iter(texts * 2)
    generator = ScriptedGenerator(lambda prompt, seed: next(turns))
    worker = EpisodeWorker(
        "w", SOURCES, generator, VerifierRouter(), 128, judges=None if judge is None else OneJudge(judge)
    )
    batch = WorkBatch(id=0, items=(item,), harnesses={harness.id: harness}, weights={REF: WEIGHTS}, lease_s=60.0)
    result, table = worker.run(batch)
    worker.close()
    assert judge is None or judge.closed
    return result.outcomes[0], episodes_from_table(table)


def test_a_rule_weighs_check_and_judge_and_silence_earns_nothing() -> None:
    judge = LengthJudge()
    outcome, episodes = run(judge)
    right, wrong, silent = (e.score.value for e in episodes)
    assert right == pytest.approx(0.5 + 0.5 / (1 + len(TASK.answer)))
    assert wrong == pytest.approx(0.5 / 3)
    assert silent == 0.0
    assert judge.asked == [(TASK.question, (TASK.answer, "zz"))], "what could not be read is not paid for"
    assert outcome.num_correct == 1


@pytest.mark.parametrize("purpose", [p for p in Purpose if p is not Purpose.TRAIN])
def test_evaluation_applies_no_rule_and_pays_no_judge(purpose: Purpose) -> None:
    judge = LengthJudge()
    _, episodes = run(judge, purpose=purpose, judging=None)
    assert judge.asked == []
    assert [e.score.value for e in episodes] == [1.0, 0.0, 0.0]


def test_a_rule_that_reads_no_judge_pays_none() -> None:
    judge = LengthJudge()
    run(judge, rule={"value": {"mean": {"of": {"exact": 1, "length": 1}}}}, judging=None)
    assert judge.asked == []


def test_the_store_says_which_judge_gave_what() -> None:
    outcome, episodes = run(LengthJudge())
    assert {episode.judge for episode in episodes} == {JUDGE}
    assert [(p.name, p.outcome) for e in episodes for p in e.judged] == [("judge/score", "ok")] * 3
    assert episodes[1].judged[0].value == pytest.approx(1 / 3)
    assert outcome.audits == (), "nobody asked for an audit"
    _, unjudged = run(LengthJudge(), judging=None, rule={"value": "exact"})
    assert [(e.judge, e.judged) for e in unjudged] == [("", ())] * 3


def test_an_audited_group_shows_judge_and_verifier_side_by_side() -> None:
    outcome, _ = run(LengthJudge(), judging=Judging(judge=JUDGE, audited=True))
    right, wrong = outcome.audits
    assert (right.verified, wrong.verified) == (True, False), "what could not be read is no observation of the judge"
    assert wrong.judged == pytest.approx(1 / 3, abs=1e-6)
    assert wrong.features[FEATURES.index("length")] == pytest.approx(math.log1p(2), abs=1e-6)


def test_a_judge_that_does_not_count_leaves_the_plain_weights_and_is_still_audited() -> None:
    judge = LengthJudge()
    outcome, episodes = run(judge, judging=Judging(judge=JUDGE, counts=False, audited=True))
    assert [e.score.value for e in episodes] == [1.0, 0.0, 0.0]
    assert len(outcome.audits) == 2
    unaudited = LengthJudge()
    run(unaudited, judging=Judging(judge=JUDGE, counts=False))
    assert unaudited.asked == [], "where it neither counts nor is audited, nobody pays for it"


def test_a_failing_judge_that_does_not_count_fails_nothing() -> None:
    judge = LengthJudge(PartOutcome.INFRA)
    outcome, episodes = run(judge, judging=Judging(judge=JUDGE, counts=False, audited=True))
    assert outcome.status is OutcomeStatus.DONE
    assert outcome.audits == ()
    assert {p.outcome for e in episodes[:2] for p in e.judged} == {"infra"}
    assert {p.value for e in episodes[:2] for p in e.judged} == {None}


@pytest.mark.parametrize("outcome", [PartOutcome.INFRA, PartOutcome.PARSE, PartOutcome.ABSTAIN])
def test_a_failing_judge_fails_the_group_and_never_scores_it(outcome: PartOutcome) -> None:
    ended, episodes = run(LengthJudge(outcome))
    assert (ended.status, ended.boundary, episodes) == (OutcomeStatus.FAILED, Boundary.VERIFIER, [])
    assert "no reward" in ended.message


def test_without_a_judge_a_rule_that_wants_one_fails_by_name() -> None:
    ended, _ = run(None)
    assert ended.status is OutcomeStatus.FAILED
    assert "judge/score (not given)" in ended.message
