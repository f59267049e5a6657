"""What one source file does, as a digest, and which modules of ours it names.

SHA-256 over the file's syntax tree without docstrings and other strings that stand alone: comments, formatting and documentation
do not count, every other token does. A pure function of the file's bytes.
"""

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from coharness.studies.place import PACKAGE

PACKAGES = ("coharness", "actors", "clusters", PACKAGE)
_NAMED = re.compile(rf"\b(?:{'|'.join(PACKAGES)})(?:\.\w+)+")


@dataclass(frozen=True, slots=True)
class Source:
    """What is read of one file."""

    digest: str
    names: frozenset[str]
    "Dotted names of ours that it imports, at any depth, or writes in a string."


@lru_cache(maxsize=4096)
def read_source(data: bytes, package: str = "") -> Source:
    """What a file does; one that does not parse is taken by its bytes.

    Args:
        data: the file's bytes.
        package: dotted name of the package that it stands in, which relative imports start from.
    """
    try:
        tree = ast.parse(data)
        parts: list[str] = []
        _write(tree, parts)
    except (SyntaxError, ValueError, RecursionError):
        return Source("bytes:" + hashlib.sha256(data).hexdigest(), frozenset())
    text = "".join(parts).encode("utf-8", "surrogatepass")
    return Source(hashlib.sha256(text).hexdigest(), frozenset(_names(tree, package)))


def _write(node: Any, parts: list[str]) -> None:
    """Spell a tree: absent fields are skipped, so that fields which a later Python adds do not change what is there."""
    if isinstance(node, ast.Constant):
        parts.append(f"<{type(node.value).__name__} {node.value!r}>")
    elif isinstance(node, ast.AST):
        parts.append(f"({type(node).__name__}")
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                value = [item for item in value if not _is_documentation(item)]
            if value is not None and value != [] and name not in ("ctx", "type_comment", "type_ignores"):
                parts.append(f" {name}=")
                _write(value, parts)
        parts.append(")")
    elif isinstance(node, list):
        parts.append("[")
        for item in node:
            _write(item, parts)
            parts.append(",")
        parts.append("]")
    else:
        parts.append(repr(node))


def _is_documentation(node: object) -> bool:
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case _:
            return False


def _names(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=module, names=aliases, level=level):
                above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                start = ".".join([*above, *([module] if module else [])])
                yield start
                yield from (f"{start}.{alias.name}" for alias in aliases)
            case ast.Constant(value=str(text)):
                yield from _NAMED.findall(text)
