"""Owns `Markup` and `el`, the only way in which this package writes HTML and SVG.

Invariant: a plain `str` is always escaped, a `Markup` never again; only `el`, `join` and `read_asset` make Markup, so text
from models, configs and workers cannot become tags, attributes or entities.
"""

import html
import unicodedata
from collections.abc import Iterable
from importlib import resources


class Markup(str):
    """Text that is well-formed HTML or SVG already."""

    __slots__ = ()


Node = Markup | str | int | float | None
"""What may stand inside an element; None leaves nothing."""

_VOID = frozenset({"meta", "br", "hr", "img", "col"})


def text(value: str | int | float) -> Markup:
    """`value` escaped for content and quoted attributes; control characters are shown as U+FFFD."""
    if isinstance(value, Markup):
        return value
    shown = "".join(
        "\ufffd" if unicodedata.category(c) in ("Cc", "Cs", "Cf") and c not in "\n\t" else c for c in str(value)
    )
    return Markup(html.escape(shown, quote=True))


def join(children: Iterable[Node]) -> Markup:
    """The children one after another, escaped where they are plain."""
    return Markup("".join(text(child) for child in children if child is not None))


def el(tag: str, *children: Node, **attributes: str | int | float | bool | None) -> Markup:
    """An element. `class_` stands for `class`, underscores for hyphens; None and False leave an attribute out.

    Raises:
        ValueError: a void element is given children.
    """
    parts = [tag]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        key = name.rstrip("_").replace("_", "-")
        shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
        parts.append(key if value is True else f'{key}="{text(shown)}"')
    opening = f"<{' '.join(parts)}>"
    if tag in _VOID:
        if children:
            raise ValueError(f"<{tag}> holds nothing, got {len(children)} children")
        return Markup(opening)
    return Markup(f"{opening}{join(children)}</{tag}>")


def read_asset(name: str) -> Markup:
    """A file of `coharness/report/assets`, which is trusted."""
    return Markup(resources.files("coharness.report").joinpath("assets", name).read_text(encoding="utf-8"))
