"""What a library holds: skills, which say what good is, and tools, which are a model under another instruction.

Both are Markdown files with a front matter, as RewardHarness writes them. A skill may carry a criterion, its executable half:
readers that do not know it skip one key. Identity is the hash of an entry's whole content.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from coharness.records.errors import ConfigError
from coharness.records.ids import content_hash
from coharness.reward.library.criterion import Criterion

NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
MAX_NAME, MAX_DESCRIPTION, MAX_BODY = 80, 600, 20_000


class Kind(StrEnum):
    """What an entry is."""

    SKILL = "skill"
    "A rubric to judge by."
    TOOL = "tool"
    "A persona that answers one question about images as JSON."


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One skill or tool.

    Raises:
        ConfigError: a name that is no file name, a text that is too long, or fields of the other kind.
    """

    kind: Kind
    name: str
    "Kebab case."
    description: str
    "One sentence: what a router chooses by."
    body: str
    "Markdown: the rubric, or when and how to call the tool."
    criterion: Criterion | None = None
    "Of a skill: what it counts when no model reads it."
    system_prompt: str = ""
    "Of a tool."
    inputs: tuple[tuple[str, str], ...] = ()
    "Of a tool: name -> type of what it is given."
    outputs: tuple[tuple[str, str], ...] = ()
    "Of a tool: key -> type name of its answer."

    def __post_init__(self) -> None:
        if len(self.name) > MAX_NAME or NAME.fullmatch(self.name) is None:
            raise ConfigError(f"entry: got the name {self.name!r:.100}, expected kebab case such as check-the-colour")
        for field, text, limit in (("description", self.description, MAX_DESCRIPTION), ("body", self.body, MAX_BODY)):
            if len(text) > limit:
                raise ConfigError(
                    f"entry {self.name}: its {field} has {len(text)} characters, expected {limit} at most"
                )
        if not self.description.strip():
            raise ConfigError(f"entry {self.name}: its description is empty; nobody could route to it")
        if self.kind is Kind.SKILL and (self.system_prompt or self.inputs or self.outputs):
            raise ConfigError(f"skill {self.name}: a skill has no system_prompt or schemas; make it a tool")
        if self.kind is Kind.TOOL and self.criterion is not None:
            raise ConfigError(f"tool {self.name}: a tool has no criterion; make it a skill")

    @property
    def path(self) -> str:
        """Where its file lies in a library's folder."""
        return f"{self.kind}s/{self.name}/SKILL.md"

    @property
    def digest(self) -> str:
        """Hash of the content, 16 hex digits."""
        return content_hash(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """All that it says, as JSON values."""
        data: dict[str, Any] = {
            "kind": self.kind.value,
            "name": self.name,
            "description": self.description,
            "body": self.body,
        }
        if self.criterion is not None:
            data["criterion"] = self.criterion.to_json()
        if self.kind is Kind.TOOL:
            data |= {
                "system_prompt": self.system_prompt,
                "input_schema": dict(self.inputs),
                "output_schema": dict(self.outputs),
            }
        return data


def schema_pairs(data: Any, where: str) -> tuple[tuple[str, str], ...]:
    """A tool's schema, key -> type name, as a record can hold it.

    Raises:
        ConfigError: it is no mapping of texts to texts.
    """
    if not isinstance(data, Mapping) or not all(isinstance(k, str) and isinstance(v, str) for k, v in data.items()):
        raise ConfigError(f"{where}: got {data!r:.80}, expected a mapping of names to type names")
    return tuple((str(key), str(value)) for key, value in data.items())
