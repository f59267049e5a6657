"""What models say to a library: routes, analyses, tagged turns, and judgments over an endpoint."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from coharness.records.errors import ConfigError
from coharness.reward.algebra.part import PartOutcome
from coharness.reward.judges.budget import Budget
from coharness.reward.judges.cache import JudgmentCache
from coharness.reward.judges.client import CallError, CallFailure, ChatClient
from coharness.reward.judges.pool import EndpointPool
from coharness.reward.library.library import Library
from coharness.reward.library.preferences import Label
from coharness.reward.library.proposals import Action, Proposal, read_signals
from coharness.reward.library.router import CachedRouter, LexicalRouter, ModelRouter, Route, RouteUnreadable, context_of
from coharness.reward.library.tagged import Answer, Call, TurnUnreadable, converse, read_turn
from coharness.reward.library.vlm import PairTask, VlmJudge, over_endpoints
from coharness.testing.judge_server import Reply, ScriptedServer
from tests.unit.reward.library.making import counting, skill, small, tool

# Router -------------------------------------------------------------------------------------------------------------


def test_words_that_an_instruction_shares_choose_entries() -> None:
    route = LexicalRouter().route("Change the text on the sign", small())
    assert route == Route(skills=("no-noise",), tools=("text-finder",))  # what counts for every task is always there
    assert LexicalRouter(most=1).route("change the text", small()) == Route(tools=("text-finder",))


def test_a_route_is_asked_for_once_whatever_the_bodies_say() -> None:
    asked = []

    def complete(prompt: str) -> str:
        asked.append(prompt)
        return '{"skills": ["crisp-edges"], "tools": []}'

    router = CachedRouter(ModelRouter(complete, model="m"), JudgmentCache(None))
    assert router.route("make it blue", small()) == Route(skills=("crisp-edges",))
    assert router.route("make it blue", small().updated(skill("crisp-edges", "Another body."))) == Route(
        skills=("crisp-edges",)
    )
    assert router.asked == len(asked) == 1
    router.route("make it red", small())
    assert router.asked == 2
    assert "Another body" not in asked[0]


def test_a_failed_route_is_not_kept() -> None:
    answers = ["nonsense", '{"skills": []}']
    router = CachedRouter(ModelRouter(lambda prompt: answers.pop(0), model="m"), JudgmentCache(None))
    with pytest.raises(RouteUnreadable):
        router.route("x", small())
    assert router.route("x", small()) == Route()


def test_an_empty_library_is_not_asked_about() -> None:
    def complete(prompt: str) -> str:
        raise AssertionError(prompt)

    assert ModelRouter(complete, model="m").route("x", Library.of("empty")) == Route()


def test_a_context_is_bounded_and_hides_system_prompts() -> None:
    route = Route(skills=("crisp-edges", "no-noise"), tools=("text-finder",))
    text = context_of(route, small())
    assert "## Skill: crisp-edges" in text
    assert "Answer as JSON" not in text
    assert len(context_of(route, small(), limit=100)) <= 100


# Proposals ----------------------------------------------------------------------------------------------------------


def test_an_analysis_gives_proposals_and_says_what_it_dropped() -> None:
    text = json.dumps({
        "skill_updates": [
            {"action": "add", "name": "count-objects", "description": "Numbers.", "body": "Count what was asked for."},
            {"action": "update", "name": "no-noise", "description": "Grain."},
            {"action": "delete", "name": "nothing"},
            {"action": "explode", "name": "x"},
            "nonsense",
        ],
        "tool_updates": [{"action": "delete", "name": "text-finder"}, {"action": "add", "name": "Bad Name", "description": "d"}],
        "analysis_summary": "said",
    })  # fmt: skip
    found = read_signals(f"```json\n{text}\n```", small())
    assert [(p.action, p.name) for p in found.skills] == [(Action.ADD, "count-objects"), (Action.UPDATE, "no-noise")]
    assert [(p.action, p.name) for p in found.tools] == [(Action.DELETE, "text-finder")]
    assert len(found.dropped) == 4
    assert found.summary == "said"
    updated = found.skills[1].applied(small()).entry("no-noise")
    assert (updated.description, updated.criterion) == ("Grain.", counting("q@1/noise", -1.0))


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"analysis_summary": "only"}'])
def test_an_answer_that_is_no_analysis_is_a_failure_and_not_an_empty_list(text: str) -> None:
    with pytest.raises(ValueError, match="the analysis is"):
        read_signals(text, small())


def test_a_proposal_that_the_linter_refuses_does_not_reach_the_library() -> None:
    entry = skill("lean-left", "Image A is better more often than not, so lean to it.")
    with pytest.raises(ConfigError, match="speaks of a place"):
        Proposal(action=Action.ADD, name="lean-left", entry=entry).applied(small())
    with pytest.raises(ConfigError, match="stands beside add and update alone"):
        Proposal(action=Action.DELETE, name="no-noise", entry=skill("no-noise"))


# The tagged protocol ------------------------------------------------------------------------------------------------

GOOD = {
    "reasoning": "A follows the instruction.", "score_A_instruction": 4, "score_A_quality": 3, "score_B_instruction": 1,
    "score_B_quality": 3, "preference": "A",
}  # fmt: skip


def answer(**changes: Any) -> str:
    return f"<think>well</think><answer>{json.dumps({**GOOD, **changes})}</answer>"


def ask_tool(**changes: Any) -> str:
    return f"<tool>{json.dumps({'name': 'colour', 'images': ['source', 'A'], 'query': 'q', **changes})}</tool>"


def test_an_answer_outranks_a_call_and_thoughts_are_skipped() -> None:
    turn = read_turn(f"<think><answer>not yet</answer></think>{ask_tool()}{answer()}")
    assert turn == Answer(preference=Label.A, scores=(4, 3, 1, 3), reasoning="A follows the instruction.")
    assert read_turn(ask_tool()) == Call(name="colour", images=("source", "A"), query="q")


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        answer() + answer(),
        ask_tool() + ask_tool(),
        answer(score_A_quality=4.9),
        answer(score_A_quality=True),
        answer(score_A_quality=0),
        answer(preference="C"),
        answer(preference="B"),
        answer(preference="tie"),
        answer(reasoning=" "),
        "<answer>{</answer>",
        "<answer>[]</answer>",
        '<answer>{"preference": "A"',
        ask_tool(images=["iVBORw0KGgo="]),
        ask_tool(images=[]),
        ask_tool(images="A"),
        ask_tool(name=3),
    ],
)
def test_what_is_no_turn_is_a_failure_and_never_a_tie(text: str) -> None:
    with pytest.raises(TurnUnreadable):
        read_turn(text)
    found = converse(lambda turns: text, lambda call: {}, {"colour": 1})
    assert (found.outcome, found.answer) == (PartOutcome.PARSE, None)


def test_tools_are_called_at_most_five_times_and_unknown_ones_are_told_apart() -> None:
    seen: list[Sequence[str]] = []

    def say(turns: Sequence[str]) -> str:
        seen.append(list(turns))
        return ask_tool() if len(turns) < 8 else ask_tool(name="nothing") if len(turns) < 10 else answer()

    found = converse(say, lambda call: {"error_de": 3.5}, {"colour": 1})
    assert (found.outcome, found.calls) == (PartOutcome.OK, ("colour",) * 4 + ("nothing",))
    assert seen[1][1] == '<obs>{"error_de": 3.5}</obs>'
    assert "there is no tool 'nothing'" in seen[-1][-1]
    endless = converse(lambda turns: ask_tool(), lambda call: {}, {"colour": 1})
    assert (endless.outcome, len(endless.calls)) == (PartOutcome.PARSE, 5)


# Over an endpoint ---------------------------------------------------------------------------------------------------

PAIR = PairTask(
    instruction="make the red circle blue", source=b"\x89PNG source", first=b"\x89PNG good", second=b"\x89PNG bad"
)


def shown(messages: Sequence[Mapping[str, Any]]) -> list[bytes]:
    import base64

    parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    return [base64.b64decode(p["image_url"]["url"].partition(",")[2]) for p in parts if p["type"] == "image_url"]


class Seer:
    """A model that sees which image is the good one; `bias` makes it say A whatever it sees."""

    def __init__(self, *, bias: bool = False, tool: str = "") -> None:
        self.bias, self.tool, self.messages = bias, tool, []

    def __call__(self, messages: Sequence[Mapping[str, Any]]) -> str:
        self.messages.append(list(messages))
        if messages[0]["content"].startswith("Look"):
            return json.dumps({"seen": b"good" in shown(messages)[-1], "more": 1})
        images = shown(messages)
        if self.tool and len(messages) == 2:
            return ask_tool(name=self.tool, images=["source", "A"])
        if self.bias or b"good" in images[1]:
            return answer()
        return answer(preference="B", score_A_instruction=1, score_B_instruction=4)


def judge(seer: Any, library: Library | None = None, cache: JudgmentCache | None = None, **more: Any) -> VlmJudge:
    return VlmJudge(seer, library or small(), LexicalRouter(), model="seer", cache=cache, **more)


def test_a_pair_is_judged_in_both_orders_and_the_good_one_wins_in_either_place() -> None:
    found = judge(Seer()).judge(PAIR)
    assert (found.outcome, found.label, found.scores) == (PartOutcome.OK, Label.A, (4.0, 3.0, 1.0, 3.0))
    swapped = PairTask(instruction=PAIR.instruction, source=PAIR.source, first=PAIR.second, second=PAIR.first)
    assert judge(Seer()).judge(swapped).label is Label.B


def test_a_judge_that_says_a_whatever_it_sees_abstains() -> None:
    found = judge(Seer(bias=True)).judge(PAIR)
    assert (found.outcome, found.label) == (PartOutcome.ABSTAIN, None)


def test_a_verdict_is_paid_for_once_until_something_that_it_depends_on_changes() -> None:
    cache, seer = JudgmentCache(None), Seer()
    first = judge(seer, cache=cache).judge(PAIR)
    asked = len(seer.messages)
    again = judge(seer, cache=cache).judge(PAIR)
    assert (again.label, again.cached, len(seer.messages)) == (first.label, True, asked)
    # An entry that is not routed to changes nothing; one that is, does.
    judge(seer, small().updated(skill("crisp-edges", "Another body.")), cache).judge(PAIR)
    assert len(seer.messages) == asked
    judge(seer, small().updated(skill("no-noise", "Another body.")), cache).judge(PAIR)
    assert len(seer.messages) == asked + 2


def test_tools_get_the_images_that_their_handles_name() -> None:
    look = tool("circle-finder", prompt="Look at the last image.")
    seer = Seer(tool="circle-finder")
    found = judge(seer, Library.of("x", [look])).judge(PAIR)
    assert (found.label, found.tools) == (Label.A, ("circle-finder", "circle-finder"))
    calls = [messages for messages in seer.messages if messages[0]["content"] == look.system_prompt]
    assert [shown(messages) for messages in calls] == [[PAIR.source, PAIR.first], [PAIR.source, PAIR.second]]
    told = [messages[-1]["content"] for messages in seer.messages if len(messages) == 4]
    assert told == ['<obs>{"seen": true}</obs>', '<obs>{"seen": false}</obs>']


def test_instruments_are_really_run() -> None:
    seen: list[tuple[PairTask, Call]] = []

    def instruments(pair: PairTask) -> dict[str, Any]:
        return {"ruler": lambda call: seen.append((pair, call)) or {"length": 3}}

    judge(Seer(tool="ruler"), instruments=instruments).judge(PAIR)
    assert [(pair.first, call.images) for pair, call in seen] == [
        (PAIR.first, ("source", "A")),
        (PAIR.second, ("source", "A")),
    ]


def test_an_outage_is_no_vote() -> None:
    def down(messages: Sequence[Mapping[str, Any]]) -> str:
        raise CallError(CallFailure.TIMEOUT, "no answer within 1 s")

    found = judge(down).judge(PAIR)
    assert (found.outcome, found.label) == (PartOutcome.INFRA, None)


def test_over_a_real_connection_with_budget_and_failures() -> None:
    def script(request: dict[str, Any]) -> Reply:
        assert request["response_format"]["json_schema"]["schema"]["required"] == ["text"]
        message = {"content": json.dumps({"text": Seer()(request["messages"])})}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return Reply(
            body=json.dumps({"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}).encode()
        )

    with ScriptedServer(script) as server:
        pool = EndpointPool([ChatClient(base=server.base, model="seer")])
        budget = Budget(max_calls=3, max_tokens=10**9)
        vlm = judge(over_endpoints(pool, budget))
        assert vlm.judge(PAIR).label is Label.A
        assert vlm.judge(PAIR).outcome is PartOutcome.ABSTAIN  # the fourth call would be over the budget
        assert budget.spent.calls == 3
    with ScriptedServer(lambda request: Reply(status=500)) as server:
        pool = EndpointPool([ChatClient(base=server.base, model="seer")], attempts=2, sleep=lambda s: None)
        found = judge(over_endpoints(pool, Budget(max_calls=10, max_tokens=10**9))).judge(PAIR)
        assert (found.outcome, found.label) == (PartOutcome.INFRA, None)
