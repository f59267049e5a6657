"""What is wrong with a library, found without running it.

Errors would mislead a judge or a loader: opposite advice, positional language, commands to the judge, references to nothing, a
tool that is asked for other keys than its schema has, an unknown feature. Warnings cost quality: near duplicates, thin texts.
"""

import re
from collections.abc import Collection, Iterator
from itertools import combinations
from pathlib import Path

from coharness.reward.judges.guard import guard
from coharness.reward.judges.lint import Finding
from coharness.reward.library.criterion import Fn
from coharness.reward.library.entries import Entry, Kind
from coharness.reward.library.files import orphans
from coharness.reward.library.library import Library

_WORD = re.compile(r"[a-z]+")
_STOP = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be been but by can do does each for from has have if in into is it its may more most must no not "
        "of on or other should so such than that the their them then there these they this to use used using was were when "
        "where which while will with without you your image images edit edited candidate",
    )
)
_POSITIONAL = re.compile(
    r"\b(?:image|candidate|option|answer|output|response)s? [ab12]\b|\b(?:the )?(?:first|second|left|right)[- ](?:hand )?"
    r"(?:image|candidate|option|answer|one)\b|\bpositions? [ab12]\b|\bbias(?:ed)? (?:to|towards?|for) [ab]\b",
    re.IGNORECASE,
)
_COMMAND = re.compile(
    r"\balways (?:prefer|choose|pick|answer|output|say|select)\b|\bignore (?:the|all|any|previous)\b[^.]{0,40}"
    r"\b(?:rubric|instructions?|criteria)\b|\b(?:output|return|reply|answer) only\b",
    re.IGNORECASE,
)
_BIAS = re.compile(r"\bbias\b[^.]*?\b(?:image|candidate|option|answer|position) [\"'“*`]*([ab])\b", re.IGNORECASE)
_PREFER = re.compile(r"\b(prefer|reward|favou?r|penali[sz]e|avoid|reject)\b ([a-z -]{4,60})", re.IGNORECASE)
_GOOD = frozenset({"prefer", "reward", "favor", "favour"})
_REFERENCE = re.compile(r"`([a-z0-9]+(?:-[a-z0-9]+)+)`")
_JSON_KEY = re.compile(r"[\"'`]([a-z][a-zA-Z0-9_]*)[\"'`]\s*:")
_HARMFUL = frozenset({"control", "zero_width", "bidi", "surrogate", "role_marker", "homoglyph"})
DUPLICATE = 0.6
"""Likeness of two bodies above which one of them hardly adds anything."""


def lint_library(library: Library, *, features: Collection[str] | None = None) -> list[Finding]:
    """All findings, errors first.

    Args:
        library: what to look at.
        features: names of the features that tools here can give; None where that is not known.
    """
    findings = [finding for entry in library.entries for finding in _entry(entry, library, features)]
    findings += _pairs(library)
    return sorted(findings, key=lambda finding: (finding.level, finding.where, finding.rule))


def lint_folder(folder: Path, library: Library, *, features: Collection[str] | None = None) -> list[Finding]:
    """As `lint_library`, and files that no entry leads to."""
    lost = [
        _warning(path, "orphan", "no line of the registry leads to this file; delete or register it")
        for path in orphans(folder)
    ]
    return sorted([*lint_library(library, features=features), *lost], key=lambda f: (f.level, f.where, f.rule))


def errors_of(findings: list[Finding]) -> list[Finding]:
    """Those that make a library unfit."""
    return [finding for finding in findings if finding.level == "error"]


def _entry(entry: Entry, library: Library, features: Collection[str] | None) -> Iterator[Finding]:
    text = f"{entry.description}\n{entry.body}\n{entry.system_prompt}"
    found = _POSITIONAL.search(text)
    if found:
        yield _error(
            entry.name, "positional", f"speaks of a place ({found.group(0)!r}); candidates are shown in every order"
        )
    found = _COMMAND.search(f"{entry.description}\n{entry.body}")
    if found and entry.kind is Kind.SKILL:
        yield _error(
            entry.name, "imperative", f"commands the judge ({found.group(0)!r:.60}); say what good is like instead"
        )
    if set(guard(text).flags) & _HARMFUL:
        yield _error(entry.name, "reserved", "holds control characters, markup of roles or the judge's own protocol")
    for name in sorted(set(_REFERENCE.findall(entry.body))):
        if library.get(name) is None and name.count("-") >= 1 and _looks_like_entry(name, entry, library):
            yield _error(entry.name, "dangling", f"refers to {name}, which is not in the library")
    if entry.kind is Kind.TOOL:
        yield from _tool(entry)
    elif len(_content(entry.body)) < 4 and entry.criterion is None:
        yield _warning(entry.name, "thin", "says too little to judge by")
    if entry.criterion is not None and features is not None and entry.criterion.feature not in features:
        yield _error(entry.name, "unknown-feature", f"counts {entry.criterion.feature}, which no tool here gives")
    if entry.criterion is not None and entry.criterion.weight == 0.0:
        yield _warning(entry.name, "idle", "has the weight 0; delete it")


def _looks_like_entry(name: str, entry: Entry, library: Library) -> bool:
    """Whether a word in code type is meant as an entry: it is called a tool or skill beside it, or ends as tools do."""
    near = re.compile(
        rf"(?:\b(?:tool|skill|call|use|invoke|with)s?\b[^.\n]{{0,40}}`{name}`)|(?:`{name}`[^.\n]{{0,20}}\b(?:tool|skill)\b)",
        re.I,
    )
    return near.search(entry.body) is not None or name.endswith(
        ("-verifier", "-analyzer", "-detector", "-checker", "-inspector")
    )


def _tool(entry: Entry) -> Iterator[Finding]:
    if not entry.system_prompt.strip():
        yield _error(entry.name, "no-prompt", "is a tool without a system prompt; it could not be called")
        return
    if not entry.outputs:
        yield _error(entry.name, "no-schema", "is a tool without an output schema; no answer of it could be read")
        return
    demanded = set(_JSON_KEY.findall(entry.system_prompt))
    promised = {key for key, _ in entry.outputs}
    if demanded and demanded != promised:
        missing, extra = sorted(promised - demanded), sorted(demanded - promised)
        if not demanded & promised or missing:
            yield _error(entry.name, "schema", f"its system prompt asks for {', '.join(sorted(demanded))[:120]}, its "
                         "output schema "
                         f"promises {', '.join(sorted(promised))[:120]}")  # fmt: skip
        elif extra:
            yield _warning(
                entry.name, "schema", f"its system prompt asks for keys beyond its schema: {', '.join(extra)[:120]}"
            )


def _pairs(library: Library) -> Iterator[Finding]:
    for one, two in combinations(library.entries, 2):
        if one.kind is not two.kind:
            continue
        if one.criterion is not None and two.criterion is not None:
            yield from _criteria(one, two)
        bias_one, bias_two = ({b.lower() for b in _BIAS.findall(f"{e.description}\n{e.body}")} for e in (one, two))
        if bias_one and bias_two and bias_one.isdisjoint(bias_two):
            yield _error(
                two.name,
                "contradiction",
                f"warns of a bias to {_upper(bias_two)}, {one.name} of one to {_upper(bias_one)}",
            )
        if _opposed(one.body, two.body):
            yield _error(two.name, "contradiction", f"penalises what {one.name} rewards, or the reverse")
        if one.criterion is None or two.criterion is None:
            a, b = _content(one.body), _content(two.body)
            if min(len(a), len(b)) >= 6 and len(a & b) / len(a | b) >= DUPLICATE:
                yield _warning(two.name, "duplicate", f"says nearly what {one.name} says")


def _criteria(one: Entry, two: Entry) -> Iterator[Finding]:
    a, b = one.criterion, two.criterion
    if a is None or b is None or a.feature != b.feature:
        return
    if a.contexts and b.contexts and not set(a.contexts) & set(b.contexts):
        return
    if a.transform.fn is b.transform.fn and abs(a.transform.offset - b.transform.offset) <= 0.1 * a.transform.scale:
        same_way = (a.weight > 0) == (b.weight > 0)
        if not same_way and a.transform.fn is not Fn.NEG_ABS and a.contexts == b.contexts:
            yield _error(two.name, "contradiction", f"counts {b.feature} against what {one.name} counts for")
        elif a.contexts == b.contexts:
            yield _warning(two.name, "duplicate", f"counts {b.feature} nearly as {one.name} does")


def _opposed(one: str, two: str) -> bool:
    """Whether one text rewards the very thing, word for word but for small ones, that the other penalises."""

    def said(text: str) -> dict[frozenset[str], bool]:
        found = {}
        for verb, what in _PREFER.findall(text):
            words = frozenset(list(dict.fromkeys(w for w in _WORD.findall(what.lower()) if w not in _STOP))[:3])
            if len(words) >= 2:
                found[words] = verb.lower() in _GOOD
        return found

    a, b = said(one), said(two)
    return any(a[words] != b[words] for words in a.keys() & b.keys())


def _content(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.lower()) if word not in _STOP and len(word) > 2}


def _upper(letters: set[str]) -> str:
    return ", ".join(sorted(letter.upper() for letter in letters))


def _error(where: str, rule: str, message: str) -> Finding:
    return Finding(level="error", where=where, rule=rule, message=message)


def _warning(where: str, rule: str, message: str) -> Finding:
    return Finding(level="warning", where=where, rule=rule, message=message)
