"""A trained judge on disk: its weights, and beside them `judge.json`, which says what it is and how it did.

    judge.json                     this record
    weights/judge/v<step>/         the adapter, as PEFT loads it
    anchors.jsonl                  the frozen anchors, for the next change of this judge
    ledger.json                    which fresh samples are spent, how many changes were tested and accepted

Invariant: `judge.json` is written last and all at once, so a folder that has it is whole.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from coharness.records.errors import ConfigError, PreflightError
from coharness.records.ids import JSON, JudgeId, content_hash
from coharness.records.policy import WeightsKind, WeightsRef

FILE = "judge.json"
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRecord:
    """What a trained judge is."""

    base: str
    "As `policy.base` names it."
    base_digest: str
    objective: str
    protocol: int
    "Version of prompt and read-out."
    standard: str
    "What it was taught that a good answer is."
    words: tuple[str, str]
    "Its verdicts, good and bad."
    writes_reasons: bool
    "Whether it writes a reason before its verdict."
    temperature: float
    "Log-odds are divided by this."
    bias: float
    "Log-odds that stand for a score of one half."
    max_context: int
    "Tokens of prompt, reason and verdict together."
    lora: Mapping[str, JSON]
    "Shape of its adapter, as `policy.lora`."
    weights: WeightsRef
    examples: str
    "Content hash of what it was trained on."
    recipe: Mapping[str, JSON]
    promoted: bool
    "Whether it passed the gate."
    gate: Mapping[str, JSON] = field(default_factory=dict)
    figures: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def id(self) -> JudgeId:
        """Content hash of all that its verdicts depend on."""
        data = {
            "weights": self.weights.digest, "base": self.base_digest, "protocol": self.protocol,
            "standard": self.standard, "words": list(self.words), "writes_reasons": self.writes_reasons,
            "temperature": self.temperature, "bias": self.bias,
        }  # fmt: skip
        return JudgeId(content_hash(data))


def write_record(folder: Path, record: JudgeRecord) -> None:
    """Write `judge.json`, durably and all at once."""
    write_text(folder / FILE, json.dumps({"schema": SCHEMA, **asdict(record)}, indent=2, default=str) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a file's text, durably and all at once."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    temporary.replace(path)


def is_judge_folder(path: Path | str) -> bool:
    """Whether a trained judge lies there."""
    return (Path(path) / FILE).is_file()


def read_record(folder: Path) -> JudgeRecord:
    """The record of a judge's folder.

    Raises:
        ConfigError: there is none.
        PreflightError: it is of another version of coharness, or damaged.
    """
    path = folder / FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{folder} holds no {FILE}; make a judge with `coharness judge train`") from error
    except (OSError, ValueError) as error:
        raise PreflightError(f"cannot read {path}: {error}; train the judge again") from error
    return _record(data, path)


def _record(data: Any, path: Path) -> JudgeRecord:
    if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
        raise PreflightError(f"{path} is of another schema than {SCHEMA}; train the judge again with this version")
    try:
        weights = data.pop("weights")
        record = JudgeRecord(
            weights=WeightsRef(**{**weights, "kind": WeightsKind(weights["kind"])}),
            words=tuple(data.pop("words")),
            **data,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PreflightError(f"{path} is damaged: {error}; train the judge again") from error
    if not record.temperature > 0:
        raise PreflightError(
            f"{path} has temperature {record.temperature!r}, expected more than 0; train the judge again"
        )
    return record
