"""Reading a rubric before it costs money: wording that judges get wrong, and wording that addresses the judge.

An error makes a rubric unusable for training; a warning is worth a second look.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from coharness.reward.judges.guard import guard
from coharness.reward.judges.rubric import Criterion, Rubric

_WORD = re.compile(r"[a-z]+")
_STOP = frozenset(
    (
        "the",
        "a",
        "an",
        "is",
        "are",
        "of",
        "to",
        "and",
        "in",
        "it",
        "that",
        "this",
        "with",
        "for",
        "be",
        "answer",
        "its",
        "their",
        "every",
        "each",
        "all",
    )
)
_POSITIONAL = re.compile(
    r"\b(?:prefer|choose|pick|favou?r|select|vote for)\b[^.]{0,40}\b(?:first|second|last|former|latter|left|right|[ab])\b|"
    r"\b(?:candidate|answer|response|output|option)\s+(?:a|b|1|2|one|two)\b|"
    r"\bthe (?:first|second) (?:one|answer|candidate|response)\b",
    re.IGNORECASE,
)
_ADDRESSES = re.compile(
    r"\b(?:always|never)\s+(?:prefer|give|rate|score|output|answer|choose|reply)\b|\byou must\b|"
    r"\bignore (?:all|any|the|previous)\b|"
    r"\b(?:output|reply|respond|return)\b[^.]{0,30}\b(?:json|verdict|score|10)\b|\bas (?:the|a) judge\b",
    re.IGNORECASE,
)
_MENTION = re.compile(
    r"\b(?:mentions?|includes?|contains?|uses? the (?:word|phrase)|states? that|refers? to)\b", re.IGNORECASE
)
_COMPOUND = re.compile(r"\b(?:and|as well as|;)\b", re.IGNORECASE)
_OPPOSITES = (
    ("short", "long"), ("brief", "detailed"), ("concise", "thorough"), ("concise", "comprehensive"), ("formal", "casual"),
    ("simple", "technical"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that the linter found."""

    level: str
    "`error` or `warning`."
    where: str
    "Criterion, or `rubric`."
    rule: str
    message: str


def lint(rubric: Rubric) -> list[Finding]:
    """All findings, errors first."""
    findings = [f for criterion in rubric.criteria for f in _criterion(criterion)]
    findings += _pairs(rubric)
    total = sum(c.weight for c in rubric.criteria)
    for criterion in rubric.criteria:
        if len(rubric.criteria) > 1 and criterion.weight / total > 0.8:
            findings.append(
                _warn(
                    criterion.name,
                    "dominant",
                    f"has {criterion.weight / total:.0%} of the weight; the others hardly count",
                )
            )
    if any(guard(text).flags for text in (rubric.about, *(c.text for c in rubric.criteria))):
        findings.append(
            _error("rubric", "reserved", "holds control characters, markup of roles or the judge's own protocol")
        )
    return sorted(findings, key=lambda f: f.level)


def _criterion(criterion: Criterion) -> Iterator[Finding]:
    text = criterion.text
    if _POSITIONAL.search(text):
        yield _error(criterion.name, "positional", "speaks of a place or a label; candidates are shown in every order")
    if _ADDRESSES.search(text):
        yield _error(criterion.name, "imperative", "tells the judge what to answer; say what a good answer is like")
    if _MENTION.search(text):
        yield _warn(
            criterion.name,
            "mention",
            "rewards that something is mentioned, which is easily gamed; ask that it is done or explained",
        )
    if len(_COMPOUND.findall(text)) >= 2:
        yield _warn(criterion.name, "compound", "joins several demands; split it, or nobody knows which one failed")
    if len(_content(text)) < 2:
        yield _warn(criterion.name, "thin", "says too little to be judged by")


def _pairs(rubric: Rubric) -> Iterator[Finding]:
    for a, b in combinations(rubric.criteria, 2):
        one, two = _content(a.text), _content(b.text)
        likeness = len(one & two) / max(len(one | two), 1)
        if likeness >= 0.7:
            yield _warn(b.name, "duplicate", f"says nearly what {a.name} says; it counts double")
        for low, high in _OPPOSITES:
            if {low, high} <= (one | two) and not {low, high} <= one and not {low, high} <= two:
                yield _warn(
                    b.name, "contradiction", f"asks for {high if high in two else low}, {a.name} for the opposite"
                )


def _content(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.lower()) if word not in _STOP}


def _error(where: str, rule: str, message: str) -> Finding:
    return Finding(level="error", where=where, rule=rule, message=message)


def _warn(where: str, rule: str, message: str) -> Finding:
    return Finding(level="warning", where=where, rule=rule, message=message)
