"""Overrides from a command line, and how they change what a file says.

Two spellings mean the same: `population.num_policies=4` and `--population.num-policies 4` (or `--population.num-policies=4`).
A value is read as YAML, so `tasks=[{type: builtin}]` is a list. A number in a path is a place in a list: `tasks.0.max_level=6`.
Mappings merge, lists and everything else replace; `coharness.config.sections` lets one word stand for a section. Whether a
key exists at all is the schema's business, not this file's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from coharness.config.yaml_text import StrictLoader
from coharness.records.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One value that a command line sets."""

    path: tuple[str, ...]
    value: Any
    text: str
    "As it was written, for messages."


def parse_overrides(words: Sequence[str]) -> list[Override]:
    """The overrides that the words of a command line spell, in their order; a later one wins.

    Raises:
        ConfigError: a word is no override, or one has no value or a value that is no YAML.
    """
    return list(_overrides(iter(words)))


def _overrides(words: Iterator[str]) -> Iterator[Override]:
    for word in words:
        text = word
        key, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--"):
            key = key.replace("-", "_")
            if not equals:
                following = next(words, None)
                if following is None:
                    raise ConfigError(f"{word} has no value; write {word} VALUE, or {key}=VALUE")
                value, text = following, f"{word} {following}"
        elif not equals:
            raise ConfigError(f"{word!r} is no override; write key=value, e.g. population.num_policies=4")
        path = tuple(key.split("."))
        if not all(part and not part.startswith("-") for part in path):
            raise ConfigError(f"{text!r} names no key; write key=value, e.g. population.num_policies=4")
        yield Override(path=path, value=_value(value, text), text=text)


def _value(value: str, text: str) -> Any:
    try:
        return yaml.load(value, Loader=StrictLoader)
    except yaml.YAMLError as error:
        raise ConfigError(
            f"the value of {text!r} is no YAML ({getattr(error, 'problem', None) or error}); "
            'quote it for the shell, and with "..." inside where it holds one of : { } [ ] , # & * ! |'
        ) from error


def merge(base: Any, over: Any) -> Any:
    """`over` laid over `base`: mappings merge key by key, anything else replaces; neither argument is changed."""
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return {**base, **{key: merge(base[key], value) if key in base else value for key, value in over.items()}}
    return over


def apply_override(data: Any, override: Override) -> Any:
    """`data` with one override laid over it; the argument stays as it was.

    Raises:
        ConfigError: the path goes through a plain value, or past the end of a list.
    """
    return _applied(data, override.path, override, ())


def _applied(here: Any, rest: tuple[str, ...], override: Override, walked: tuple[str, ...]) -> Any:
    if not rest:
        return merge(here, override.value)
    key, *tail = rest
    at = ".".join(walked) or "the config"
    match here:
        case list():
            if not key.isdecimal() or int(key) >= len(here):
                raise ConfigError(
                    f"{override.text}: {at} is a list of {len(here)}, and {key!r} is no place in it; "
                    f"places count from 0, and a whole list is set by {at}=[...]"
                )
            place = int(key)
            changed = _applied(here[place], tuple(tail), override, (*walked, key))
            return [*here[:place], changed, *here[place + 1 :]]
        case None:
            return {key: _applied(None, tuple(tail), override, (*walked, key))}
        case Mapping():
            return {**here, key: _applied(here.get(key), tuple(tail), override, (*walked, key))}
        case _:
            raise ConfigError(f"{override.text}: {at} is the value {here!r}, which holds no key {key!r}")
