"""Rubrics: what is judged, as data. Versioned by content; a judge that changed a word is another judge.

    name: maths
    about: Solutions of word problems.
    criteria:
      - {name: steps, text: Each step follows from the one before., weight: 2}
      - name: clarity
        text: A reader can follow it without guessing.
        choices: {poor: 0, fair: 0.5, good: 1}

A criterion without choices is answered no or yes. The score of a candidate is the weighted mean of its criteria's values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coharness.config.yaml_text import read_mapping
from coharness.records.errors import ConfigError
from coharness.records.ids import content_hash
from coharness.reward.algebra.reading import keys, mapping_of, name_of, number_of, objects_of

YES_NO = (("no", 0.0), ("yes", 1.0))
MAX_CRITERIA = 32
MAX_TEXT = 2_000
"""Characters of one criterion or of `about`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One thing that is judged."""

    name: str
    text: str
    weight: float = 1.0
    choices: tuple[tuple[str, float], ...] = YES_NO
    "Labels with their value in [0, 1], from the worst to the best."

    def value_of(self, choice: str) -> float | None:
        """The value of a label, None where it is none of the choices."""
        return dict(self.choices).get(choice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """What a judge is asked."""

    name: str
    about: str
    criteria: tuple[Criterion, ...]

    @property
    def version(self) -> str:
        """Content hash, 16 hex digits."""
        return content_hash(self.to_json())

    def criterion(self, name: str) -> Criterion:
        """The criterion of this name; KeyError where there is none."""
        return next(c for c in self.criteria if c.name == name)

    def score(self, values: Mapping[str, float]) -> float:
        """Weighted mean of the criteria's values; all of them must be there."""
        total = sum(c.weight for c in self.criteria)
        return sum(c.weight * values[c.name] for c in self.criteria) / total

    def to_json(self) -> dict[str, Any]:
        """The rubric as JSON values."""
        return {
            "name": self.name,
            "about": self.about,
            "criteria": [
                {"name": c.name, "text": c.text, "weight": c.weight, "choices": dict(c.choices)} for c in self.criteria
            ],
        }


def load_rubric(path: Path | str) -> Rubric:
    """Read a rubric's YAML file.

    Raises:
        ConfigError: the file cannot be read or is no rubric; names the place.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the rubric {path}: {error}; name a YAML file with name, about and criteria"
        ) from error
    return rubric_from_json(read_mapping(text, str(path)), str(path))


def rubric_from_json(data: Any, where: str = "rubric") -> Rubric:
    """A rubric from JSON values.

    Raises:
        ConfigError: names the place and the likely fix.
    """
    data = mapping_of(data, where)
    keys(data, ("name", "criteria"), ("about",), where)
    criteria = tuple(_criterion(entry, at) for entry, at in objects_of(data["criteria"], f"{where}.criteria"))
    if not 1 <= len(criteria) <= MAX_CRITERIA:
        raise ConfigError(f"{where}.criteria holds {len(criteria)}, expected 1 to {MAX_CRITERIA}")
    names = [c.name for c in criteria]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{where}.criteria names {', '.join(twice)} twice; every criterion has a name of its own")
    return Rubric(
        name=_identifier(data["name"], f"{where}.name"),
        about=_text(data.get("about", ""), f"{where}.about", may_be_empty=True),
        criteria=criteria,
    )


def _criterion(data: Mapping[str, Any], where: str) -> Criterion:
    keys(data, ("name", "text"), ("weight", "choices"), where)
    weight = number_of(data.get("weight", 1.0), f"{where}.weight")
    if weight <= 0:
        raise ConfigError(
            f"{where}.weight is {weight:g}, expected more than 0; word what is bad as something to be avoided"
        )
    return Criterion(
        name=_identifier(data["name"], f"{where}.name"),
        text=_text(data["text"], f"{where}.text"),
        weight=weight,
        choices=_choices(data["choices"], f"{where}.choices") if "choices" in data else YES_NO,
    )


def _choices(data: Any, where: str) -> tuple[tuple[str, float], ...]:
    data = mapping_of(data, where)
    if len(data) < 2:
        raise ConfigError(f"{where} has {len(data)} labels, expected at least two, from the worst to the best")
    # YAML reads bare yes and no as booleans.
    labels = {(("no", "yes")[label] if isinstance(label, bool) else str(label)): value for label, value in data.items()}
    values = [number_of(value, f"{where}.{label}", low=0.0, high=1.0) for label, value in labels.items()]
    if values != sorted(values) or values[0] == values[-1]:
        raise ConfigError(f"{where} has values {values}, expected them to rise from the worst label to the best")
    return tuple(zip(labels, values, strict=True))


def _identifier(data: Any, where: str) -> str:
    name = name_of(data, where)
    if not all(c.isalnum() or c in "_-" for c in name) or len(name) > 64:
        raise ConfigError(f"{where} is {name!r}, expected up to 64 letters, digits, - and _")
    return name


def _text(data: Any, where: str, *, may_be_empty: bool = False) -> str:
    if not isinstance(data, str) or len(data) > MAX_TEXT or not (data.strip() or may_be_empty):
        raise ConfigError(f"{where} must be a text of 1 to {MAX_TEXT} characters")
    return data.strip()
