"""Reading a judge's answer: exactly the object that was asked for, or a failure that says what is wrong with it.

Every criterion once and no other; each reason before its verdict, since a verdict written first is justified afterwards; the
boundary repeated; no number where a label is asked for. A reason that ends in another label than the verdict contradicts it.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from coharness.reward.judges.prompt import Ask, Mode, ids_of

MAX_ANSWER_CHARS = 100_000
MAX_REASON_CHARS = 4_000


class Unreadable(Exception):
    """An answer that is none; the message is a reason for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was read."""

    values: dict[str, float]
    "Criterion -> value in [0, 1] (score) or preference for the first shown, -1, 0 or 1 (pair)."
    reasons: dict[str, str]
    overall: float | None = None
    "Of a pair: preference overall."
    order: tuple[int, ...] = ()
    "Of a ranking: indices as shown, best first."
    notes: dict[str, str] = field(default_factory=dict)


def read_verdict(ask: Ask, boundary: str, text: str) -> Verdict:
    """Read one answer.

    Raises:
        Unreadable: it is not exactly what was asked for.
    """
    data = _object_of(text)
    if data.get("boundary") != boundary:
        raise Unreadable("the answer does not repeat the boundary of this call")
    match ask.mode:
        case Mode.SCORE:
            _only(data, ("boundary", "criteria"))
            return _score(ask, data["criteria"])
        case Mode.PAIR:
            _only(data, ("boundary", "criteria", "reason", "better"))
            return _pair(ask, data)
        case Mode.RANK:
            _only(data, ("boundary", "candidates", "order"))
            return _rank(ask, data)


def _score(ask: Ask, entries: Any) -> Verdict:
    values, reasons = {}, {}
    for name, reason, choice in _entries(ask, entries, "choice"):
        criterion = ask.rubric.criterion(name)
        value = criterion.value_of(choice)
        if value is None:
            raise Unreadable(
                f"{name} has the choice {choice!r:.40}, expected one of {[label for label, _ in criterion.choices]}"
            )
        _check_consistent(name, reason, choice, [label for label, _ in criterion.choices])
        values[name], reasons[name] = value, reason
    return Verdict(values=values, reasons=reasons)


def _pair(ask: Ask, data: dict[str, Any]) -> Verdict:
    first, second = ids_of(ask)
    signs = {first: 1.0, second: -1.0, "tie": 0.0}
    values, reasons = {}, {}
    for name, reason, better in _entries(ask, data["criteria"], "better"):
        if better not in signs:
            raise Unreadable(f"{name} prefers {better!r:.40}, expected one of {list(signs)}")
        _check_consistent(name, reason, better, list(signs))
        values[name], reasons[name] = signs[better], reason
    _order_of_keys(data, "reason", "better")
    reason, better = _text(data["reason"]), data["better"]
    if better not in signs:
        raise Unreadable(f"the answer prefers {better!r:.40}, expected one of {list(signs)}")
    _check_consistent("the whole", reason, better, list(signs))
    return Verdict(values=values, reasons=reasons, overall=signs[better], notes={"overall": reason})


def _rank(ask: Ask, data: dict[str, Any]) -> Verdict:
    names = ids_of(ask)
    _order_of_keys(data, "candidates", "order")
    entries, order = data["candidates"], data["order"]
    if not isinstance(entries, list) or not isinstance(order, list):
        raise Unreadable("candidates and order must be lists")
    reasons = {}
    for entry in entries:
        _only(entry, ("id", "reason"))
        reasons[str(entry["id"])] = _text(entry["reason"])
    if sorted(reasons) != sorted(names) or len(entries) != len(names):
        raise Unreadable("there is not exactly one reason for each candidate")
    if not all(isinstance(name, str) for name in order) or sorted(order) != sorted(names):
        raise Unreadable("the order does not hold each candidate exactly once")
    return Verdict(values={}, reasons=reasons, order=tuple(names.index(name) for name in order))


def _entries(ask: Ask, entries: Any, verdict: str) -> list[tuple[str, str, str]]:
    if not isinstance(entries, list):
        raise Unreadable("criteria must be a list")
    wanted = [c.name for c in ask.rubric.criteria]
    read = []
    for entry in entries:
        _only(entry, ("name", "reason", verdict))
        _order_of_keys(entry, "reason", verdict)
        if not isinstance(entry["name"], str) or not isinstance(entry[verdict], str):
            raise Unreadable(f"name and {verdict} of a criterion must be texts")
        read.append((entry["name"], _text(entry["reason"]), entry[verdict]))
    if sorted(name for name, _, _ in read) != sorted(wanted):
        raise Unreadable(
            f"the criteria are {sorted(n for n, _, _ in read)!s:.200}, expected each of {sorted(wanted)!s:.200} once"
        )
    return read


def _object_of(text: str) -> dict[str, Any]:
    if len(text) > MAX_ANSWER_CHARS:
        raise Unreadable(f"the answer has {len(text)} characters, more than {MAX_ANSWER_CHARS}")
    try:
        data = json.loads(text.strip(), object_pairs_hook=_no_duplicates, parse_constant=_no_constants)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the answer is not one JSON object: {error!s:.120}") from error
    if not isinstance(data, dict):
        raise Unreadable(f"the answer is a {type(data).__name__}, expected one JSON object")
    return data


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice")
    return made


def _no_constants(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _only(data: Any, names: tuple[str, ...]) -> None:
    if not isinstance(data, dict) or sorted(data) != sorted(names):
        got = sorted(data) if isinstance(data, dict) else type(data).__name__
        raise Unreadable(f"an object has {got!s:.120}, expected exactly {list(names)}")


def _order_of_keys(data: dict[str, Any], before: str, after: str) -> None:
    keys = list(data)
    if keys.index(before) > keys.index(after):
        raise Unreadable(f"{after} was written before its {before}")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Unreadable("a reason is missing")
    return value.strip()[:MAX_REASON_CHARS]


def _check_consistent(where: str, reason: str, verdict: str, labels: list[str]) -> None:
    """Refuse a reason that concludes with another label; the last explicit conclusion counts."""
    options = "|".join(sorted((re.escape(label) for label in labels), key=len, reverse=True))
    pattern = (
        rf"\b(?:verdict|choice|conclusion|therefore|hence|so)\b\s*(?:is|:|,|=|the answer is|it is)?\s*[\"'“]?({options})\b"
        r"(?=[\"'”]?\s*[.!]?\s*$)"
    )
    found = re.findall(pattern, reason, re.IGNORECASE)
    if found and found[-1].lower() != verdict.lower():
        raise Unreadable(f"the reason for {where} concludes with {found[-1]!r}, the verdict is {verdict!r}")
