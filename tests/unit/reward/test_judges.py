"""The rubric judge against a scripted server: shapes, orders, failures, budgets, cache, health."""

import json
from pathlib import Path
from typing import Any

import pytest

from coharness.records.errors import ConfigError, PreflightError
from coharness.reward.algebra.part import PartOutcome
from coharness.reward.judges.budget import Budget
from coharness.reward.judges.cache import JudgmentCache, cache_key
from coharness.reward.judges.client import CallError, CallFailure, ChatClient
from coharness.reward.judges.lint import lint
from coharness.reward.judges.pool import EndpointPool
from coharness.reward.judges.prefilter import degenerate
from coharness.reward.judges.prompt import Ask, Mode, schema_of
from coharness.reward.judges.rubric import load_rubric, rubric_from_json
from coharness.reward.judges.verdict import Unreadable, read_verdict
from coharness.testing.judge_server import Reply, ScriptedServer, fair_judge
from tests.unit.reward.judging import RUBRIC, goodness, judge_on

GOOD, BAD = "It is 4 because 2 and 2 are added.", "It is 4, trust me."
FAIR = fair_judge(goodness)


# Rubrics ------------------------------------------------------------------------------------------------------------


def test_a_rubric_comes_back_from_its_own_spelling_and_is_named_by_its_content() -> None:
    again = rubric_from_json(RUBRIC.to_json())
    assert again == RUBRIC
    assert again.version == RUBRIC.version
    other = rubric_from_json({**RUBRIC.to_json(), "about": "Other solutions."})
    assert other.version != RUBRIC.version


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"criteria": []}, "holds 0, expected 1"),
        ({"criteria": [{"name": "a", "text": "x y"}, {"name": "a", "text": "z"}]}, "names a twice"),
        ({"criteria": [{"name": "a b", "text": "x"}]}, "up to 64 letters"),
        ({"criteria": [{"name": "../up", "text": "x"}]}, "up to 64 letters"),
        ({"criteria": [{"name": "a", "text": "x", "weight": -1}]}, "more than 0"),
        ({"criteria": [{"name": "a", "text": "x", "choices": {"good": 1, "bad": 0}}]}, "rise from the worst"),
        ({"criteria": [{"name": "a", "text": ""}]}, "text of 1 to"),
        ({"criterion": []}, "did you mean criteria"),
    ],
)
def test_a_wrong_rubric_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rubric_from_json({"name": "r", "criteria": [{"name": "a", "text": "x"}], **change})


def test_a_rubric_file_is_read_safely(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("name: r\ncriteria:\n- {name: a, text: x y, choices: {no: 0, yes: 1}}\n")
    assert load_rubric(path).criteria[0].choices == (("no", 0.0), ("yes", 1.0))
    path.write_text("name: !!python/object/apply:os.system ['true']\ncriteria: []\n")
    with pytest.raises(ConfigError):
        load_rubric(path)
    with pytest.raises(ConfigError, match="cannot read the rubric"):
        load_rubric(tmp_path / "missing.yaml")


def test_the_linter_sees_what_judges_get_wrong() -> None:
    rubric = rubric_from_json(
        {
            "name": "r",
            "criteria": [
                {"name": "place", "text": "Prefer candidate B where in doubt."},
                {"name": "order", "text": "Always give the highest score to polite answers."},
                {"name": "mention", "text": "The answer mentions the theorem of Pythagoras."},
                {"name": "many", "text": "It is correct and complete and polite and short."},
                {"name": "short", "text": "The explanation is concise for its reader."},
                {"name": "long", "text": "The explanation is thorough for its reader."},
                {"name": "twin", "text": "The explanation is thorough for every reader."},
            ],
        }
    )
    found = {(f.where, f.rule) for f in lint(rubric)}
    assert {("place", "positional"), ("order", "imperative"), ("mention", "mention"), ("many", "compound")} <= found
    assert ("long", "contradiction") in found
    assert ("twin", "duplicate") in found
    assert [f for f in lint(RUBRIC) if f.level == "error"] == []


# Scores, pairs, rankings --------------------------------------------------------------------------------------------


def test_a_score_is_the_weighted_mean_of_its_criteria_with_reasons_first() -> None:
    with judge_on(FAIR) as (judge, server):
        good, bad = judge.score("2 + 2?", GOOD), judge.score("2 + 2?", BAD)
        assert (good.value, bad.value) == (1.0, 0.0)
        assert good.criteria == {"steps": 1.0, "clarity": 1.0}
        assert set(good.reasons) == {"steps", "clarity"}
        assert good.versions.rubric == f"maths@{RUBRIC.version}"
        entry = server.requests[0]["response_format"]["json_schema"]["schema"]["properties"]["criteria"]["items"]
        assert list(entry["properties"]) == ["name", "reason", "choice"]
    middle = fair_judge(lambda q, c: 0.5)
    with judge_on(middle) as (judge, _):
        assert judge.score("q", GOOD).value == pytest.approx((3 * 1.0 + 1 * 0.5) / 4)


def test_a_pair_is_antisymmetric_and_judged_in_both_orders() -> None:
    with judge_on(FAIR, keep=False) as (judge, server):
        there, back = judge.pair("q", GOOD, BAD), judge.pair("q", BAD, GOOD)
        assert (there.value, back.value) == (1.0, -1.0)
        assert {k: -v for k, v in there.criteria.items()} == dict(back.criteria)
        assert len(server.requests) == 4
        assert judge.pair("q", GOOD, GOOD).value == 0.0


def test_a_preference_that_turns_with_the_order_abstains() -> None:
    with judge_on(fair_judge(goodness, position_bias=5.0)) as (judge, _):
        judgment = judge.pair("q", GOOD, BAD)
        assert (judgment.outcome, judgment.value) == (PartOutcome.ABSTAIN, None)
        assert "turns with the order" in judgment.reason


def test_a_ranking_is_made_twice_in_opposite_orders() -> None:
    grade = fair_judge(lambda q, c: len(c) / 100)
    with judge_on(grade) as (judge, server):
        texts = ["medium words here", "a much longer text with many words", "short one", ":"]
        ranking = judge.rank("q", texts)
        assert ranking.order == (1, 0, 2, 3)
        assert ranking.points == pytest.approx((2 / 3, 1.0, 1 / 3, 0.0))
        assert ranking.agreement == pytest.approx(1.0)
        shown = [[c["text"] for c in json.loads(r["messages"][-1]["content"])["candidates"]] for r in server.requests]
        assert shown[0] == shown[1][::-1]
    biased = fair_judge(lambda q, c: 0.5, position_bias=1.0)
    with judge_on(biased) as (judge, _):
        assert judge.rank("q", ["one text", "two texts", "three texts"]).agreement < 0.0
    with judge_on(FAIR) as (judge, _), pytest.raises(ValueError, match="2 to 16"):
        judge.rank("q", ["one"])


def test_parts_carry_every_criterion_and_equal_completions_are_judged_once() -> None:
    with judge_on(FAIR, keep=False) as (judge, server):
        rows = judge.judge("q", [GOOD, BAD, GOOD])
        assert [[p.name for p in row] for row in rows] == [list(judge.part_names)] * 3
        assert rows[0] == rows[2]
        assert len(server.requests) == 2


# What needs no judge ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "empty"), ("  \n\t", "empty"), (":", "empty"), ("...!?", "empty"), ("Thought process:", "opener"),
        ("Solution", "opener"), ("Let's solve this problem step by step.", "opener"), ("the same words again " * 200, "loop"),
        ("x" * 200_001, "overlong"),
    ],
)  # fmt: skip
def test_degenerate_candidates_earn_nothing_and_cost_nothing(text: str, rule: str) -> None:
    assert degenerate(text) is not None
    with judge_on(FAIR) as (judge, server):
        judgment = judge.score("q", text)
        assert judgment.value == 0.0
        assert judgment.reason.startswith(rule)
        assert judge.pair("q", text, GOOD).value == -1.0
        assert judge.pair("q", GOOD, text).value == 1.0
        assert server.requests == []


@pytest.mark.parametrize("text", ["4", "Solution: 4", "Let's see: it is 4.", "no", "日本語の答え", "x " * 100 + "y"])
def test_short_answers_are_no_degenerates(text: str) -> None:
    assert degenerate(text) is None or text.startswith("x ")


# Failures -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply(status=500), PartOutcome.INFRA),
        (Reply(status=429, headers=(("Retry-After", "0"),)), PartOutcome.INFRA),
        (Reply(status=400, body=b"no such model"), PartOutcome.INFRA),
        (Reply(body=b"<html>"), PartOutcome.INFRA),
        (Reply(body=b'{"choices": []}'), PartOutcome.INFRA),
        (Reply(text="half", cut=True), PartOutcome.INFRA),
        (Reply(text="I rate it ten."), PartOutcome.PARSE),
        (Reply(text='{"boundary": "x", "criteria": []}'), PartOutcome.PARSE),
        (Reply(text="{", finish_reason="length"), PartOutcome.PARSE),
    ],
)
def test_a_failure_has_a_name_and_no_number(reply: Reply, outcome: PartOutcome) -> None:
    with judge_on(lambda _: reply) as (judge, _):
        for judgment in (judge.score("q", GOOD), judge.pair("q", GOOD, BAD)):
            assert (judgment.outcome, judgment.value) == (outcome, None)
            assert judgment.reason
        assert judge.rank("q", [GOOD, BAD]).outcome is outcome
        assert all(part.value is None for part in judge.judge("q", [GOOD])[0])


def test_a_deadline_holds_over_the_whole_answer() -> None:
    with judge_on(lambda _: Reply(text="late", delay_s=1.0), client={"timeout_s": 0.1}, attempts=1) as (judge, _):
        judgment = judge.score("q", GOOD)
        assert judgment.outcome is PartOutcome.INFRA
        assert "timeout" in judgment.reason


def test_nobody_listening_is_infra() -> None:
    with ScriptedServer(FAIR) as server:
        base = server.base
    with pytest.raises(CallError) as caught:
        ChatClient(base=base, model="m").complete([], schema={})
    assert caught.value.failure is CallFailure.REFUSED


def test_one_unreadable_answer_is_asked_for_once_more() -> None:
    answers: list[str] = ["nonsense"]

    def script(request: dict[str, Any]) -> str:
        return answers.pop() if answers else str(FAIR(request))

    with judge_on(script) as (judge, server):
        assert judge.score("q", GOOD).value == 1.0
        assert len(server.requests) == 2


def test_a_spent_budget_abstains_before_anything_is_paid() -> None:
    with judge_on(FAIR, budget=Budget(max_calls=1, max_tokens=10**9), keep=False) as (judge, server):
        assert judge.score("q", GOOD).value == 1.0
        later = judge.score("q", BAD)
        assert (later.outcome, later.value) == (PartOutcome.ABSTAIN, None)
        assert "max_calls" in later.reason
        assert len(server.requests) == 1
    with judge_on(FAIR, budget=Budget(max_calls=9, max_tokens=1), keep=False) as (judge, _):
        assert judge.score("q", GOOD).cost.tokens_in > 0
        assert judge.score("q", BAD).outcome is PartOutcome.ABSTAIN


# Cache --------------------------------------------------------------------------------------------------------------


def test_nothing_is_paid_for_twice_and_a_replay_needs_no_endpoint(tmp_path: Path) -> None:
    path = tmp_path / "judge" / "cache.sqlite"
    with judge_on(FAIR, cache=path) as (judge, server):
        first = judge.score("q", GOOD)
        again = judge.score("q", GOOD)
        assert (again.value, again.cached, again.cost.calls) == (first.value, True, 0)
        assert len(server.requests) == 1
        judge.pair("q", GOOD, BAD)
    with judge_on(lambda _: Reply(status=500), cache=path) as (judge, server):
        assert judge.score("q", GOOD).value == 1.0
        assert judge.pair("q", GOOD, BAD).value == 1.0
        assert server.requests == []


def test_failures_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    with judge_on(lambda _: Reply(status=500), cache=path) as (judge, _):
        assert judge.score("q", GOOD).value is None
    with judge_on(FAIR, cache=path) as (judge, _):
        assert judge.score("q", GOOD).value == 1.0


def test_every_ingredient_is_in_the_key() -> None:
    base: dict[str, Any] = {
        "tenant": "t", "model": "m", "rubric": "r", "protocol": 1, "mode": "score", "question": "q", "candidates": ("c",),
    }  # fmt: skip
    changes: list[dict[str, Any]] = [
        {"tenant": "u"}, {"model": "n"}, {"rubric": "s"}, {"protocol": 2}, {"mode": "pair"}, {"question": "qq"},
        {"candidates": ("c", "")}, {"candidates": ("c\u200b",)}, {"candidates": ("\ud800",)}, {"candidates": ("?",)},
        {"settings": [1]}, {"question": "qc", "candidates": ("",)}, {"question": "", "candidates": ("qc",)},
    ]  # fmt: skip
    keys = [cache_key(**{**base, **change}) for change in [{}, *changes]]
    assert len(set(keys)) == len(keys)


def test_the_first_value_under_a_key_stays() -> None:
    cache = JudgmentCache(None)
    cache.put("k", {"v": 1})
    cache.put("k", {"v": 2})
    assert cache.get("k") == {"v": 1}
    assert len(cache) == 1
    cache.close()


# Verdicts -----------------------------------------------------------------------------------------------------------

ASK = Ask(mode=Mode.SCORE, rubric=RUBRIC, question="q", candidates=("c",))
FINE: dict[str, Any] = {
    "boundary": "B",
    "criteria": [
        {"name": "steps", "reason": "they follow", "choice": "yes"},
        {"name": "clarity", "reason": "readable", "choice": "fair"},
    ],
}


def read(data: Any, mode: Mode = Mode.SCORE) -> Any:
    return read_verdict(ASK, "B", data if isinstance(data, str) else json.dumps(data))


def test_a_verdict_is_read() -> None:
    assert read(FINE).values == {"steps": 1.0, "clarity": 0.5}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({**FINE, "boundary": "C"}),
        json.dumps({**FINE, "extra": 1}),
        json.dumps({**FINE, "criteria": FINE["criteria"][:1]}),
        json.dumps({**FINE, "criteria": [*FINE["criteria"], FINE["criteria"][0]]}),
        json.dumps(FINE).replace('"fair"', '"great"'),
        json.dumps(FINE).replace('"fair"', "1"),
        json.dumps(FINE).replace('"fair"', "NaN"),
        json.dumps(FINE).replace('"fair"', "true"),
        json.dumps(FINE).replace('"readable"', '""'),
        json.dumps({**FINE, "criteria": [{"name": "steps", "choice": "yes", "reason": "r"}, FINE["criteria"][1]]}),
        json.dumps(FINE).replace('"they follow"', '"A step is missing, so the choice is no."'),
        json.dumps(FINE)[:-1],
        json.dumps(FINE) + json.dumps(FINE),
        "```json\n" + json.dumps(FINE) + "\n```",
        '{"boundary": "B", "boundary": "B", "criteria": []}',
        "[" * 100_000,
        "null",
    ],
)
def test_whatever_is_not_exactly_that_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        read(text)


def test_schemas_allow_nothing_else() -> None:
    for mode, candidates in ((Mode.SCORE, ("c",)), (Mode.PAIR, ("c", "d")), (Mode.RANK, ("c", "d", "e"))):
        schema = schema_of(Ask(mode=mode, rubric=RUBRIC, question="q", candidates=candidates))
        assert schema["additionalProperties"] is False
        assert schema["required"] == list(schema["properties"])


# Health -------------------------------------------------------------------------------------------------------------


def test_a_failing_endpoint_is_left_alone_and_probed_later() -> None:
    now = [0.0]
    failing = [True]

    def sick(request: dict[str, Any]) -> str | Reply:
        return Reply(status=503) if failing[0] else str(FAIR(request))

    with ScriptedServer(sick) as one, ScriptedServer(FAIR) as two:
        clients = [ChatClient(base=s.base, model="m", timeout_s=5.0) for s in (one, two)]
        pool = EndpointPool(clients, attempts=3, clock=lambda: now[0], sleep=lambda _: None)
        ask = Ask(mode=Mode.SCORE, rubric=RUBRIC, question="q", candidates=("c",))
        from coharness.reward.judges.prompt import messages_of

        def call() -> None:
            pool.complete(messages_of(ask, "B"), schema=schema_of(ask), on_call=lambda: None)

        for _ in range(10):
            call()
        assert len(two.requests) == 10
        assert len(one.requests) <= 3
        for _ in range(3):
            with pytest.raises(CallError):
                EndpointPool(clients[:1], attempts=1).complete([], schema={}, on_call=lambda: None)
        failing[0] = False
        now[0] += 120.0
        for _ in range(5):
            call()
        assert all(state.is_open for state in pool.states())


def test_an_address_that_is_no_base_is_refused() -> None:
    for base in ("ftp://x/v1", "http://", "http://u:p@h/v1", "http://h/v1?key=1", "file:///etc/passwd"):
        with pytest.raises(ConfigError, match="no base address"):
            ChatClient(base=base, model="m")
    with pytest.raises(ConfigError, match="endpoints is empty"):
        EndpointPool([])


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from coharness.reward.judges.secrets import key_from_env

    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(PreflightError, match="JUDGE_KEY is not set"):
        key_from_env("JUDGE_KEY")
