"""Conflicts, pairs, blame and the audit queue."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from coharness.records.episode import EPISODE_SCHEMA
from coharness.records.errors import ConfigError
from coharness.reward.algebra.part import Part, PartOutcome
from coharness.reward.judges.rubric import rubric_from_json
from coharness.reward.monitors.audit import AuditQueue, Case, chance_of, weighted_mean
from coharness.reward.reflection.concentration import Edit, blame_criteria
from coharness.reward.reflection.conflicts import Audited, audit_episodes, mine
from coharness.reward.reflection.minhash import drop_near_copies, shingles, signature, similarity
from coharness.reward.reflection.pairs import Origin, Preference, preference_pairs


def attempt(answer: str, judged: float, verified: bool, task: str = "t", **fields: Any) -> Audited:
    return Audited(
        task=task, question=f"question {task}", answer=answer, format=fields.pop("format", "plain"), judged=judged,
        verified=verified, **fields,
    )  # fmt: skip


# Conflicts ----------------------------------------------------------------------------------------------------------


def test_conflicts_go_both_ways_and_their_rates_have_intervals() -> None:
    attempts = [attempt(f"a{i}", 0.9, i >= 7) for i in range(59)] + [attempt("low", 0.1, True)]
    found = mine(attempts)
    assert (len(found.lenient), len(found.strict)) == (7, 1)
    assert (found.lenient_rate.low, found.lenient_rate.high) == pytest.approx((0.058, 0.222), abs=1e-3)
    with pytest.raises(ValueError, match="0 attempts"):
        mine([])


def episodes(*rows: tuple[str, str | None, float]) -> pa.Table:
    blank: dict[str, Any] = {
        "item": 1, "sample": 0, "policy": "p0", "step": 0, "harness": "h", "task": "t", "family": "f", "level": 1,
        "task_seed": 0, "format": "plain", "purpose": "train", "temperature": 1.0, "token_ids": [1], "loss_mask": [True],
        "logprobs": [0.0], "prompt_length": 0, "reference_ids": [1], "answer": None, "stop_reason": "eos", "score": 0.0,
        "exact": 0.0, "partial": 0.0, "format_ok": 1.0, "length_left": 0.0, "feedback": "",
    }  # fmt: skip
    made = [{**blank, "task": task, "answer": answer, "exact": exact} for task, answer, exact in rows]
    return pa.Table.from_pylist(made, schema=EPISODE_SCHEMA)


def test_a_replay_store_is_judged_by_its_questions_and_failures_are_left_out() -> None:
    def judge(question: str, answers: Sequence[str]) -> list[tuple[Part, ...]]:
        assert question == "what?"
        return [
            (Part.failed("judge/score", PartOutcome.INFRA, "x"),)
            if text == "down"
            else (Part.ok("judge/score", 0.8), Part.ok("judge/steps", 1.0))
            for text in answers
        ]

    table = episodes(("t", "good", 1.0), ("t", None, 0.0), ("t", "down", 0.0), ("other", "x", 0.0), ("t", "bad", 0.0))
    audited = audit_episodes(table, {"t": "what?"}, judge)
    assert [(a.answer, a.verified, a.judged, dict(a.criteria)) for a in audited] == [
        ("good", True, 0.8, {"steps": 1.0}),
        ("bad", False, 0.8, {"steps": 1.0}),
    ]
    assert len(mine(audited).lenient) == 1


# Pairs --------------------------------------------------------------------------------------------------------------


def test_conflicts_are_paired_first_and_partners_match_in_format_and_length() -> None:
    attempts = [
        attempt("a long right answer with many words", 0.5, True),
        attempt("short right", 0.5, True),
        attempt("short right in boxes", 0.5, True, format="boxed"),
        attempt("short wrong", 0.9, False, partial=0.25),
        attempt("another wrong answer that is long", 0.2, False),
    ]
    pairs = preference_pairs(attempts)
    assert [(p.better, p.worse, p.origin) for p in pairs] == [
        ("short right", "short wrong", Origin.CONFLICT),
        ("a long right answer with many words", "another wrong answer that is long", Origin.FAILED),
    ]
    assert [p.margin for p in pairs] == [0.75, 1.0]


def test_where_nothing_failed_a_worse_side_is_made_and_never_a_right_one() -> None:
    pairs = preference_pairs([attempt("the sum is 12", 0.9, True), attempt("the sum i", 0.9, True)])
    assert {p.origin for p in pairs} <= {Origin.CUT, Origin.CORRUPTED}
    assert all(p.worse not in ("the sum is 12", "the sum i") for p in pairs)
    corrupted = next(p for p in pairs if p.origin is Origin.CORRUPTED)
    assert corrupted.worse.startswith("the sum is ")
    assert corrupted.worse != "the sum is 12"
    assert preference_pairs([attempt("wrong", 0.9, False)]) == [], "without a right answer there is no pair"


def test_questions_stay_in_one_split_and_replay_has_its_share() -> None:
    attempts = [
        attempt(f"{word} number {i} of task {t}", 0.9, word == "right", task=f"t{t}")
        for t in range(60)
        for i, word in enumerate(("right", "wrong", "false"))
    ]
    clean = [
        Preference(task="old", question=f"old {i}", better=f"b {i}", worse=f"w {i}", margin=1.0, origin=Origin.FAILED)
        for i in range(200)
    ]
    pairs = preference_pairs(attempts, replay=clean, seed=3)
    own = [p for p in pairs if p.origin is not Origin.REPLAY]
    training = [p for p in pairs if not p.held_out]
    assert len({(p.question, p.held_out) for p in own}) == len({p.question for p in own})
    assert 0.05 < np.mean([p.held_out for p in own]) < 0.4
    assert np.mean([p.origin is Origin.REPLAY for p in training]) == pytest.approx(0.3, abs=0.01)
    assert pairs == preference_pairs(list(attempts), replay=clean, seed=3)


def test_minhash_estimates_jaccard_and_drops_near_copies() -> None:
    words = [f"w{i}" for i in range(200)]
    a, b = " ".join(words[:150]), " ".join(words[30:180])
    exact = len(shingles(a) & shingles(b)) / len(shingles(a) | shingles(b))
    assert similarity(signature(a), signature(b)) == pytest.approx(exact, abs=0.15)
    assert similarity(signature(a), signature(a)) == 1.0
    texts = [a, a + " end", b, "something else entirely here", a]
    assert drop_near_copies(texts, key=str) == [a, b, "something else entirely here"]


# Blame --------------------------------------------------------------------------------------------------------------

RUBRIC = rubric_from_json(
    {
        "name": "r",
        "criteria": [
            {"name": "theorem", "text": "The answer mentions the theorem."},
            {"name": "steps", "text": "Each step follows from the one before."},
            {"name": "polite", "text": "The tone suits the reader."},
        ],
    }
)


def graded(n: int, judged: float, verified: bool, **met: float) -> list[Audited]:
    rng = np.random.default_rng(n)
    return [
        attempt(f"{judged} {i}", judged, verified, criteria={k: float(rng.random() < p) for k, p in met.items()})
        for i in range(n)
    ]


def test_the_criterion_that_lets_the_wrong_through_is_blamed_by_its_wording() -> None:
    attempts = [
        *graded(30, 0.9, False, theorem=0.95, steps=0.2, polite=0.5),
        *graded(40, 0.2, False, theorem=0.1, steps=0.2, polite=0.5),
        *graded(50, 0.8, True, theorem=0.5, steps=0.9, polite=0.5),
    ]
    blamed = blame_criteria(RUBRIC, attempts)
    assert (blamed[0].criterion, blamed[0].edit) == ("theorem", Edit.MECHANISM)
    assert blamed[0].lift > 3
    assert [b.edit for b in blamed[1:]] == [None, None]
    assert next(b for b in blamed if b.criterion == "steps").discrimination > 0.5


def test_without_concentration_nothing_is_blamed_and_few_conflicts_are_refused() -> None:
    even = {"theorem": 0.5, "steps": 0.5, "polite": 0.5}
    spread = [*graded(30, 0.9, False, **even), *graded(31, 0.2, False, **even), *graded(32, 0.8, True, **even)]
    assert [b.edit for b in blame_criteria(RUBRIC, spread)] == [None] * 3
    with pytest.raises(ValueError, match="audit more"):
        blame_criteria(RUBRIC, spread[28:])


# The audit queue ----------------------------------------------------------------------------------------------------


def case(index: int, chance: float = 1.0) -> Case:
    return Case(id=f"c{index}", question="q", answer=f"a{index}", judged=0.5, chance=chance)


def test_the_queue_outlives_its_process_and_keeps_a_persons_last_word(tmp_path: Path) -> None:
    path = tmp_path / "audit" / "queue.jsonl"
    queue = AuditQueue(path)
    assert all(queue.offer(case(i)) for i in range(3))
    queue.settle("c1", "ann", 0.0)
    queue.settle("c1", "ann", 1.0)
    queue.settle("c1", "bob", 0.5)
    again = AuditQueue(path)
    assert [c.id for c in again.waiting] == ["c0", "c2"]
    assert again.settled[0].label == 0.75
    assert again.offer(case(0))
    with pytest.raises(ValueError, match="a waiting case"):
        again.settle("c9", "ann", 1.0)
    path.write_text(path.read_text() + "{oops\n")
    with pytest.raises(ConfigError, match="line 7 is no JSON"):
        AuditQueue(path)


def test_drawing_by_doubt_leaves_the_corrected_mean_unbiased(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    queue = AuditQueue(tmp_path / "q.jsonl")
    truth = {}
    for i in range(1500):
        doubt = float(rng.random())
        label = float(rng.random() < 0.9 - 0.8 * doubt)
        truth[f"c{i}"] = label
        queue._apply(
            {"case": f"c{i}", "question": "q", "answer": "a", "judged": 0.5, "chance": chance_of(doubt, rate=0.3)}
        )
    drawn = [c for c in queue.waiting if rng.random() < c.chance]
    for c in drawn:
        queue._apply({"settles": c.id, "by": "ann", "label": truth[c.id]})
    plain = np.mean([s.label for s in queue.settled])
    assert abs(weighted_mean(queue.settled) - np.mean(list(truth.values()))) < 0.06
    assert plain < np.mean(list(truth.values())) - 0.06


def test_chances_rise_with_doubt_and_every_attempt_has_one() -> None:
    assert chance_of(0.0, rate=0.1) == pytest.approx(0.02)
    assert chance_of(0.5, rate=0.1) == pytest.approx(0.1)
    assert chance_of(1.0, rate=0.9) == 1.0
    with pytest.raises(ValueError, match="disagreement"):
        chance_of(1.5, rate=0.1)
