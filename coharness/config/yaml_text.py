"""The YAML that configurations are written in: safe, one mapping a file, no key twice.

YAML itself lets a repeated key win silently, so that a setting someone reads is not the one that runs; here it is an error.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from coharness.records.errors import ConfigError


class StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader, with repeated keys as errors."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping; a key that stands twice raises yaml.constructor.ConstructorError with its place."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} stands twice", key.start_mark)
            if isinstance(key.value, str):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_mapping(text: str, source: str) -> dict[str, Any]:
    """The mapping that a YAML text holds; an empty text is an empty mapping.

    Raises:
        ConfigError: it is no YAML, holds a key twice, or is no mapping; the message names `source` and the line.
    """
    try:
        data = yaml.load(text, Loader=StrictLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{source}{place}: {getattr(error, 'problem', None) or 'not YAML'}") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{source}: got {type(data).__name__} at the top, expected keys, e.g. run_dir: runs/first")
    return data


def write_mapping(data: Mapping[str, Any]) -> str:
    """YAML of a mapping, keys in their order."""
    # Escaped, since YAML reads some characters, such as U+0085, otherwise than it was given them.
    return yaml.safe_dump(dict(data), sort_keys=False, width=120)


def non_finite(value: Any, path: str = "") -> Iterator[str]:
    """Dotted paths of all numbers in a tree that are NaN or infinite; JSON has no spelling for them."""
    match value:
        case float() if not math.isfinite(value):
            yield path
        case Mapping():
            for key, inner in value.items():
                yield from non_finite(inner, f"{path}.{key}" if path else str(key))
        case list():
            for place, inner in enumerate(value):
                yield from non_finite(inner, f"{path}.{place}" if path else str(place))
