"""Words for what is wrong in a configuration: one line a mistake, with its dotted path and the likely fix.

Owns the translation of pydantic's error records, and the search for the key that was meant. Knows the schema only through
the annotations of its sections, so a new section needs no line here.
"""

import difflib
import json
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

_EXPECTED = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
    "list": "a list",
    "dict": "a mapping of keys to values",
    "mapping": "a mapping of keys to values",
    "model": "a mapping of keys to values",
}
_BOUNDS = {"greater_than_equal": ">=", "greater_than": ">", "less_than_equal": "<=", "less_than": "<"}
_BOUND_KEYS = {"greater_than_equal": "ge", "greater_than": "gt", "less_than_equal": "le", "less_than": "lt"}


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The known word nearest to `word`, None where none is near."""
    near = difflib.get_close_matches(word.lower().replace("-", "_"), list(known), n=1, cutoff=0.6)
    return near[0] if near else None


def shown(value: Any) -> str:
    """A value as a person would write it in YAML's flow style, cut at 60 characters, with its kind where that helps."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except ValueError:
        text = repr(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    match value:
        case None:
            return "nothing (null)"
        case str():
            return f"{text} (text)"
        case list() | tuple():
            return f"{text} (a list)"
        case Mapping():
            return f"{text} (a mapping)"
        case _:
            return text


def explain(error: ErrorDetails, root: type[BaseModel]) -> str:
    """One line for one error record of pydantic's: dotted path, what was got, what was expected, the likely fix."""
    path, known = _locate(root, error["loc"])
    context = error.get("ctx", {})
    kind = error["type"]
    got = error.get("input")
    match kind:
        case "extra_forbidden":
            return unknown_key(path, known, root)
        case "missing":
            return f"{path}: missing; it has no default, so the config must name it"
        case "value_error":
            message = str(context["error"])
            return f"{path}: {message}" if path else message
        case "literal_error" | "enum":
            choices = _choices(context["expected"])
            near = did_you_mean(got, choices) if isinstance(got, str) else None
            hint = f"; did you mean {near}?" if near else ""
            return f"{path}: got {shown(got)}, expected one of {', '.join(choices)}{hint}"
        case "union_tag_invalid":
            choices = _choices(context["expected_tags"])
            near = did_you_mean(context["tag"], choices)
            hint = f"; did you mean {near}?" if near else ""
            return f"{path}.type: got {shown(context['tag'])}, expected one of {', '.join(choices)}{hint}"
        case "union_tag_not_found":
            return f"{path}.type: missing; it says which kind this is, e.g. type: builtin"
        case "too_long":
            return f"{path}: got {context['actual_length']} values, expected {context['max_length']}"
        case _ if kind in _BOUNDS:
            return f"{path}: got {shown(got)}, expected {_BOUNDS[kind]} {context[_BOUND_KEYS[kind]]}"
        case _ if kind.split("_")[0] in _EXPECTED:
            return f"{path}: got {shown(got)}, expected {_EXPECTED[kind.split('_')[0]]}"
        case _:
            return f"{path}: got {shown(got)}; {error['msg']}"


def unknown_key(path: str, known: Sequence[str], root: type[BaseModel]) -> str:
    """One line for a key that nobody reads: the nearest key at its level, else where else it stands, else what is there."""
    parent, _, key = path.rpartition(".")
    near = did_you_mean(key, known)
    if near:
        return f"{path}: unknown key; did you mean {parent + '.' if parent else ''}{near}?"
    elsewhere = [name for name in key_paths(root) if name.rpartition(".")[2] == key.replace("-", "_")]
    if elsewhere:
        return f"{path}: unknown key here; did you mean {' or '.join(elsewhere)}?"
    return f"{path}: unknown key; known here: {', '.join(sorted(known))}"


def key_paths(root: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted paths of all keys of the schema that stand outside lists, sections before what they hold."""
    for name, field in root.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from key_paths(field.annotation, f"{prefix}{name}.")


def _locate(root: type[BaseModel], loc: Sequence[int | str]) -> tuple[str, tuple[str, ...]]:
    """The dotted path of pydantic's `loc` as the user wrote it, and the keys known where its last part stands.

    `loc` names the chosen member of a tagged union as if it were a key; the user never wrote that part.
    """
    path: list[str] = []
    known: tuple[str, ...] = ()
    here: Any = root
    for part in loc:
        members = _members(here)
        if isinstance(part, str) and len(members) > 1 and (member := _tagged(members, part)):
            here = member
            continue
        path.append(str(part))
        section = next(
            (member for member in members if isinstance(member, type) and issubclass(member, BaseModel)), None
        )
        if section is not None and isinstance(part, str):
            known = tuple(section.model_fields)
            field = section.model_fields.get(part)
            here = field.annotation if field else None
        else:
            known = ()
            here = next((args[0] for member in members if (args := get_args(member))), None)
    return ".".join(path), known


def _members(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a type: members of a union, else the type itself; annotations taken off."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(inner for member in get_args(annotation) for inner in _members(member))
    return (annotation,)


def _tagged(members: Sequence[Any], tag: str) -> Any:
    for member in members:
        if isinstance(member, type) and issubclass(member, BaseModel) and "type" in member.model_fields:
            annotation = member.model_fields["type"].annotation
            if get_origin(annotation) is Literal and tag in get_args(annotation):
                return member
    return None


def _choices(expected: str) -> list[str]:
    """The words of pydantic's list `'a', 'b' or 'c'`."""
    return [word.strip().strip("'") for word in expected.replace(" or ", ", ").split(",")]
