"""From a file's text and overrides to any model of sections: what the configs of runs and of searches share.

Three steps, so that a caller may change values between them: `read_file`, `overridden`, `validated`. A section may be given as
one word, in a file and on a command line, where it names the field that the word sets (`Section.one_word`): `generation: vllm`
says what `generation: {engine: vllm}` says. Over a mapping a word changes that field alone and leaves the other keys.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from coharness.config.overrides import apply_override, parse_overrides
from coharness.config.section import Section
from coharness.config.suggest import explain
from coharness.config.yaml_text import non_finite, read_mapping
from coharness.records.errors import ConfigError

Model = TypeVar("Model", bound=Section)


def read_file(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds.

    Raises:
        ConfigError: the file cannot be read, or holds no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"cannot read the config {path}: {reason}; name a YAML file") from error
    return read_mapping(text, str(path))


def overridden(data: Mapping[str, Any], overrides: Sequence[str], model: type[Section]) -> Any:
    """`data` with the overrides of a command line laid over it, sections that are one word written out.

    Raises:
        ConfigError: a word is no override, or its path goes through a plain value.
    """
    changed = spelled_out(dict(data), model)
    for override in parse_overrides(overrides):
        value = spelled_out(override.value, _section_at(override.path, model))
        changed = apply_override(changed, replace(override, value=value))
    return changed


def validated(data: Any, model: type[Model], source: str, overrides: Sequence[str] = ()) -> Model:
    """The model of plain values.

    Args:
        data: what `overridden` gave.
        model: what to make of it.
        source: what messages call the config.
        overrides: those that are in `data`, for messages.

    Raises:
        ConfigError: there are mistakes; the message has one line for each.
    """
    problems = [f"{path}: not a finite number; write one" for path in non_finite(data)]
    try:
        config = model.model_validate(data)
    except ValidationError as error:
        problems += [explain(record, model) for record in error.errors(include_url=False)]
    if problems:
        raise ConfigError(_message(problems, source, overrides))
    return config


def spelled_out(value: Any, section: type[Section] | None) -> Any:
    """What was given for a section, every word that stands for one in it as a mapping; anything else as it is."""
    match value:
        case str() if section is not None and section.one_word is not None:
            return {section.one_word: value}
        case Mapping() if section is not None:
            return {key: spelled_out(inner, _section_at((key,), section)) for key, inner in value.items()}
        case _:
            return value


def _section_at(path: Sequence[str], section: type[Section]) -> type[Section] | None:
    """The section that a path of keys leads to; None where it leads to a plain value, into a list, or nowhere."""
    here: type[Section] | None = section
    for key in path:
        field = None if here is None else here.model_fields.get(key)
        kind = None if field is None else field.annotation
        here = kind if isinstance(kind, type) and issubclass(kind, Section) else None
    return here


def _message(problems: Sequence[str], source: str, overrides: Sequence[str]) -> str:
    where = source
    if overrides:
        where += " with " + " ".join(override.text for override in parse_overrides(overrides))
    if len(problems) == 1:
        return f"{where}: {problems[0]}"
    return "\n  ".join([f"{where}: {len(problems)} mistakes", *problems])
