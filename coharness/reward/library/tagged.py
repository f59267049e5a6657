"""The tagged protocol of a judge that calls tools: one pair, at most five calls, one answer.

    <think>…</think>   <tool>{"name", "images": ["source", "A", "B"], "query"}</tool>   ◄── <obs>{…}</obs>
                       <answer>{"reasoning", "score_A_instruction", …, "preference"}</answer>

Invariants: images are named by handle and resolved here, whatever a model writes never becomes image data; an answer that is
cut off, contradicts itself or has a score that is no whole number from 1 to 4 is a failure, never a tie; the turn after the last
call must be an answer.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coharness.records.ids import JSON
from coharness.reward.algebra.part import PartOutcome
from coharness.reward.library.preferences import Label

MAX_CALLS = 5
HANDLES = ("source", "A", "B")
_AXES = ("instruction", "quality")
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_TOOL = re.compile(r"<tool>(.*?)</tool>", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_SCORES = tuple(f"score_{side}_{axis}" for side in ("A", "B") for axis in _AXES)


class TurnUnreadable(Exception):
    """A turn that is neither a call nor an answer; the message is a reason for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request for a tool."""

    name: str
    images: tuple[str, ...]
    "Handles."
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A judge's final word on a pair."""

    preference: Label
    scores: tuple[int, int, int, int]
    "Of A and then B, instruction and quality, 1 to 4."
    reasoning: str

    @property
    def swapped(self) -> "Answer":
        """The same answer about the pair the other way round."""
        a, b = self.scores[:2], self.scores[2:]
        return Answer(preference=self.preference.swapped, scores=(*b, *a), reasoning=self.reasoning)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a pair."""

    outcome: PartOutcome
    answer: Answer | None = None
    calls: tuple[str, ...] = ()
    "Tools that were used, in order."
    reason: str = ""
    "Why there is no answer."


def read_turn(text: str) -> Call | Answer:
    """Read one turn; an answer outranks a call that stands beside it, and thoughts are skipped.

    Raises:
        TurnUnreadable: it is neither.
    """
    spoken = _THOUGHT.sub("", text)
    answers = _ANSWER.findall(spoken)
    if len(answers) > 1:
        raise TurnUnreadable("the turn holds more than one answer")
    if answers:
        return _answer(_object(answers[0], "answer"))
    calls = _TOOL.findall(spoken)
    if len(calls) != 1:
        raise TurnUnreadable(f"the turn holds {len(calls)} calls and no answer, expected one of either")
    return _call(_object(calls[0], "tool"))


def observation(result: JSON) -> str:
    """A tool's result as the next message."""
    return f"<obs>{json.dumps(result, ensure_ascii=True, sort_keys=True)}</obs>"


def converse(
    say: Callable[[Sequence[str]], str],
    call: Callable[[Call], JSON],
    tools: Mapping[str, object],
    limit: int = MAX_CALLS,
) -> Verdict:
    """Let a judge work on one pair.

    Args:
        say: gets the turns so far, its own and the observations in turn, and gives the next one.
        call: runs a tool; whatever it returns is shown.
        tools: names that may be called.
        limit: calls at most.

    Returns:
        The verdict; PARSE where the judge does not keep to the protocol. What `say` and `call` raise is not caught.
    """
    turns: list[str] = []
    used: list[str] = []
    while True:
        text = say(turns)
        try:
            turn = read_turn(text)
        except TurnUnreadable as error:
            return Verdict(outcome=PartOutcome.PARSE, calls=tuple(used), reason=str(error))
        if isinstance(turn, Answer):
            return Verdict(outcome=PartOutcome.OK, answer=turn, calls=tuple(used))
        if len(used) >= limit:
            return Verdict(outcome=PartOutcome.PARSE, calls=tuple(used), reason=f"no answer after {limit} calls")
        if turn.name not in tools:
            result: JSON = {"error": f"there is no tool {turn.name[:80]!r}; there are {', '.join(sorted(tools))}"}
        else:
            result = call(turn)
        used.append(turn.name)
        turns += [text, observation(result)]


def _answer(data: Mapping[str, Any]) -> Answer:
    scores = []
    for key in _SCORES:
        value = data.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 4:
            raise TurnUnreadable(f"{key} is {value!r:.20}, expected a whole number from 1 to 4")
        scores.append(value)
    try:
        preference = Label.of(str(data.get("preference")))
    except ValueError as error:
        raise TurnUnreadable(str(error)) from error
    reasoning = data.get("reasoning")
    if not isinstance(reasoning, str) or not reasoning.strip():
        raise TurnUnreadable("the answer has no reasoning")
    a, b = sum(scores[:2]), sum(scores[2:])
    contradicts = {Label.A: a < b, Label.B: b < a, Label.TIE: abs(a - b) > 1}[preference]
    if contradicts:
        raise TurnUnreadable(f"the preference is {preference}, the scores are {a} for A and {b} for B")
    return Answer(
        preference=preference, scores=(scores[0], scores[1], scores[2], scores[3]), reasoning=reasoning.strip()
    )


def _call(data: Mapping[str, Any]) -> Call:
    name, images, query = data.get("name"), data.get("images", []), data.get("query", "")
    if not isinstance(name, str) or not isinstance(query, str):
        raise TurnUnreadable("a call needs a name and a query, both texts")
    if not isinstance(images, list) or not images or not all(isinstance(i, str) and i in HANDLES for i in images):
        raise TurnUnreadable(f"a call names the images {images!r:.80}, expected handles out of {', '.join(HANDLES)}")
    return Call(name=name, images=tuple(images), query=query[:4000])


def _object(text: str, what: str) -> Mapping[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TurnUnreadable(f"the {what} is no JSON: {error!s:.100}") from error
    if not isinstance(data, dict):
        raise TurnUnreadable(f"the {what} is a {type(data).__name__}, expected an object")
    return data
