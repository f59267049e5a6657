"""Proposals: one change of a library each, applied or refused, and the form in which a model makes them.

A model answers with `skill_updates` and `tool_updates`, lists of actions, as RewardHarness asks; what is malformed is dropped
with a reason that the log keeps, and an answer that is no JSON is a failure, not an empty list.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from coharness.records.errors import ConfigError
from coharness.records.ids import content_hash
from coharness.reward.library.entries import Entry, Kind, schema_pairs
from coharness.reward.library.library import Library
from coharness.reward.library.lint import errors_of, lint_library

MAX_ANSWER_CHARS = 200_000


class Action(StrEnum):
    """What a proposal does."""

    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One change.

    Raises:
        ConfigError: an entry is missing, or given where one is deleted.
    """

    action: Action
    name: str
    entry: Entry | None = None
    "What is added, or the new content."
    reason: str = ""

    def __post_init__(self) -> None:
        if (self.action is Action.DELETE) != (self.entry is None):
            raise ConfigError(
                f"proposal to {self.action} {self.name!r:.80}: an entry stands beside add and update alone"
            )
        if self.entry is not None and self.entry.name != self.name:
            raise ConfigError(f"proposal to {self.action} {self.name!r:.80}: its entry is called {self.entry.name}")

    @property
    def digest(self) -> str:
        """Hash of what it does; one that was refused is not tried again on the same library."""
        return content_hash([self.action.value, self.name, None if self.entry is None else self.entry.digest])

    def applied(self, library: Library) -> Library:
        """The library with the change.

        Raises:
            ConfigError: it does not fit the library, or leads to errors of the linter that were not there before.
        """
        if self.entry is None:
            return library.without(self.name)
        changed = library.added(self.entry) if self.action is Action.ADD else library.updated(self.entry)
        known = {(f.where, f.rule) for f in errors_of(lint_library(library))}
        new = [f for f in errors_of(lint_library(changed)) if (f.where, f.rule) not in known]
        if new:
            raise ConfigError(f"proposal to {self.action} {self.name}: {new[0].where} {new[0].message}")
        return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What an analyser's answer holds."""

    skills: tuple[Proposal, ...]
    tools: tuple[Proposal, ...]
    dropped: tuple[str, ...]
    "Why items were left out."
    summary: str = ""


def read_signals(text: str, library: Library) -> Signals:
    """Read an analyser's answer.

    Raises:
        ValueError: it is no JSON object of this shape at all.
    """
    if len(text) > MAX_ANSWER_CHARS:
        raise ValueError(f"the analysis has {len(text)} characters, expected {MAX_ANSWER_CHARS} at most")
    try:
        data = json.loads(_unfenced(text))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the analysis is no JSON: {error!s:.120}") from error
    if not isinstance(data, dict) or not {"skill_updates", "tool_updates"} & data.keys():
        raise ValueError("the analysis is no object with skill_updates and tool_updates")
    dropped: list[str] = []
    skills = _proposals(data.get("skill_updates", []), Kind.SKILL, library, dropped)
    tools = _proposals(data.get("tool_updates", []), Kind.TOOL, library, dropped)
    summary = data.get("analysis_summary", "")
    return Signals(
        skills=skills, tools=tools, dropped=tuple(dropped), summary=summary if isinstance(summary, str) else ""
    )


def _proposals(items: Any, kind: Kind, library: Library, dropped: list[str]) -> tuple[Proposal, ...]:
    if not isinstance(items, list):
        dropped.append(f"{kind}_updates is a {type(items).__name__}, expected a list")
        return ()
    made: list[Proposal] = []
    for index, item in enumerate(items):
        try:
            made.append(_proposal(item, kind, library))
        except (ConfigError, ValueError) as error:
            dropped.append(f"{kind}_updates[{index}]: {error}")
    return tuple(made)


def _proposal(item: Any, kind: Kind, library: Library) -> Proposal:
    if not isinstance(item, Mapping):
        raise ValueError(f"got {type(item).__name__}, expected an object")
    action, name = item.get("action"), item.get("name")
    if not isinstance(action, str) or action not in list(Action) or not isinstance(name, str):
        raise ValueError(f"got action {action!r:.40} and name {name!r:.80}, expected add, update or delete, and a name")
    reason = item.get("reason", "")
    reason = reason if isinstance(reason, str) else ""
    if action == Action.DELETE:
        if library.entry(name).kind is not kind:
            raise ValueError(f"{name} is no {kind}")
        return Proposal(action=Action.DELETE, name=name, reason=reason)
    fields: dict[str, Any] = {}
    for field, key in (
        ("description", "description"),
        ("body", "body"),
        ("body", "content"),
        ("system_prompt", "system_prompt"),
    ):
        if key in item:
            if not isinstance(item[key], str):
                raise ValueError(f"{key} must be a text, got {type(item[key]).__name__}")
            fields[field] = item[key].strip()
    for field, key in (("inputs", "input_schema"), ("outputs", "output_schema")):
        if key in item:
            fields[field] = schema_pairs(item[key], key)
    if action == Action.UPDATE:
        # Every field that is given is changed and no other; a criterion stays, it is evidence of its own.
        return Proposal(
            action=Action.UPDATE, name=name, entry=replace(library.entry(name), kind=kind, **fields), reason=reason
        )
    if kind is Kind.TOOL:
        fields.setdefault("inputs", (("images", "list[handle]"), ("query", "str")))
    entry = Entry(kind=kind, name=name, **{"description": "", "body": "", **fields})
    return Proposal(action=Action.ADD, name=name, entry=entry, reason=reason)


def _unfenced(text: str) -> str:
    """The text without one fence around all of it; models put one there even when told not to."""
    lines = text.strip().split("\n")
    if len(lines) >= 2 and lines[0].startswith("```") and lines[-1].strip() == "```":
        return "\n".join(lines[1:-1])
    return text.strip()
