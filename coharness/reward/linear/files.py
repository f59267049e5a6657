"""Versions of a linear judge on disk: one JSON file each, named by its content, written whole or not at all."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from coharness.records.errors import ConfigError
from coharness.records.ids import JudgeId
from coharness.reward.algebra.part import Part
from coharness.reward.judges.protocol import SCORE_PART
from coharness.reward.linear.model import LinearModel, model_from_json


def read_model(path: Path) -> LinearModel:
    """The version in a file.

    Raises:
        ConfigError: there is no such file, or it holds no linear judge.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"there is no judge in {path}; make one with `coharness judge fit`") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no JSON; a judge's file is made by `coharness judge fit`") from error
    return model_from_json(data, str(path))


def write_model(model: LinearModel, path: Path) -> None:
    """Write a version durably: a temporary file, then its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(model.to_json(), file, ensure_ascii=True, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class LinearShelf:
    """The versions in a folder, read when they are first asked for and checked against their names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._judges: dict[JudgeId, LinearJudge] = {}

    def add(self, model: LinearModel) -> JudgeId:
        """Keep a version under its name; one that is there stays as it is."""
        path = self._path(model.id)
        if not path.exists():
            write_model(model, path)
        return model.id

    def model(self, judge: JudgeId) -> LinearModel:
        """A version by its name.

        Raises:
            ConfigError: it is not here, or its content is not what its name says.
        """
        return self.of(judge).model

    def of(self, judge: JudgeId) -> "LinearJudge":
        """The judge of this version; see `model` for what is refused."""
        if judge not in self._judges:
            model = read_model(self._path(judge))
            if model.id != judge:
                raise ConfigError(f"{self._path(judge)} holds {model.id}; it was changed after it was written")
            self._judges[judge] = LinearJudge(model)
        return self._judges[judge]

    def close(self) -> None:
        """Nothing is open."""

    def _path(self, judge: JudgeId) -> Path:
        if not judge.removeprefix("j-").isalnum():
            raise ConfigError(f"{judge!r} is not the name of a linear judge, such as j-0123456789abcdef")
        return self._folder / f"{judge}.json"


class LinearJudge:
    """A version as an `AttemptJudge`: one part, `judge/score`, which it always has an opinion on."""

    def __init__(self, model: LinearModel) -> None:
        self.model = model

    @property
    def part_names(self) -> tuple[str, ...]:
        """`judge/score` alone: its features are no criteria."""
        return (SCORE_PART,)

    def judge(self, question: str, completions: Sequence[str]) -> list[tuple[Part, ...]]:
        """The score of each completion."""
        return [(Part.ok(SCORE_PART, self.model.score(question, text)),) for text in completions]

    def close(self) -> None:
        """Nothing is open."""
