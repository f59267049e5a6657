"""What an instruction asks for, read by a grammar of short English imperatives.

Invariant: `parse` either understands the whole instruction or gives None, and then every judgment of it abstains; a guess would
be judged with full confidence.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from coharness.reward.images.colours import ALIASES, PALETTE


class Operation(StrEnum):
    """Kinds of edit."""

    RECOLOR = "recolor"
    "Give an object another colour."
    REMOVE = "remove"
    "Take an object away."
    ADD = "add"
    "Put a new object at a place."
    MOVE = "move"
    "Put an object somewhere else."
    REPLACE = "replace"
    "Put another object in an object's place."
    TEXT = "text"
    "Change the words that are written in the image."


SHAPES = ("circle", "square", "triangle", "star")
PLACES = {
    "top left": (1 / 6, 1 / 6), "top": (1 / 2, 1 / 6), "top right": (5 / 6, 1 / 6),
    "left": (1 / 6, 1 / 2), "centre": (1 / 2, 1 / 2), "right": (5 / 6, 1 / 2),
    "bottom left": (1 / 6, 5 / 6), "bottom": (1 / 2, 5 / 6), "bottom right": (5 / 6, 5 / 6),
}  # fmt: skip
"""Named places as (x, y) in shares of width and height."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditSpec:
    """One understood instruction; fields that its operation has no use for are empty."""

    operation: Operation
    colour: str = ""
    "Of the object that is there, or that is added."
    shape: str = ""
    new_colour: str = ""
    new_shape: str = ""
    place: str = ""
    "One of PLACES."
    text: str = ""
    "The words wanted, in capitals."
    old_text: str = ""


_COLOUR = "|".join([*PALETTE, *ALIASES])
_SHAPE = "|".join(SHAPES)
_PLACE = "|".join(sorted([*PLACES, "center", "middle"], key=len, reverse=True))
_OBJECT = rf"(?:the|a|an) (?P<colour>{_COLOUR}) (?P<shape>{_SHAPE})"
_WHERE = rf"(?:in|at|to|into|on) the (?P<place>{_PLACE})(?: corner| side| edge)?"
_NEW = rf"(?:a|an) (?P<new_colour>{_COLOUR}) (?P<new_shape>{_SHAPE})"
_QUOTED = r"[\"'](?P<{0}>[a-z0-9 ]{{1,24}})[\"']"
_GRAMMAR = tuple(
    (operation, re.compile(pattern))
    for operation, pattern in (
        (Operation.RECOLOR, rf"(?:make|paint|colou?r|turn) {_OBJECT} (?P<new_colour>{_COLOUR})"),
        (Operation.RECOLOR, rf"(?:change|set) the colou?r of {_OBJECT} to (?P<new_colour>{_COLOUR})"),
        (Operation.REMOVE, rf"(?:remove|delete|erase) {_OBJECT}"),
        (Operation.REMOVE, rf"take {_OBJECT} (?:away|out)"),
        (Operation.ADD, rf"(?:add|put|draw|insert|place) {_OBJECT} {_WHERE}"),
        (Operation.MOVE, rf"(?:move|shift|bring) {_OBJECT} {_WHERE}"),
        (Operation.REPLACE, rf"(?:replace|swap) {_OBJECT} (?:with|for|by) {_NEW}"),
        (Operation.REPLACE, rf"turn {_OBJECT} into {_NEW}"),
        (Operation.TEXT, rf"(?:change|replace) the (?:text|word|words|sign) {_QUOTED.format('old_text')} "
                         rf"(?:to|with|by) {_QUOTED.format('text')}"),
        (Operation.TEXT, rf"make the (?:sign|text) (?:say|read) {_QUOTED.format('text')}"),
    )
)  # fmt: skip


def parse(instruction: str) -> EditSpec | None:
    """The spec of an instruction, None where it is not one that the grammar knows."""
    words = " ".join(instruction.lower().split()).removeprefix("please ").rstrip(".! ")
    for operation, pattern in _GRAMMAR:
        found = pattern.fullmatch(words)
        if found is None:
            continue
        fields = {name: value for name, value in found.groupdict().items() if value}
        for name in ("colour", "new_colour"):
            if name in fields:
                fields[name] = ALIASES.get(fields[name], fields[name])
        if fields.get("place") in ("center", "middle"):
            fields["place"] = "centre"
        for name in ("text", "old_text"):
            if name in fields:
                fields[name] = " ".join(fields[name].upper().split())
        return EditSpec(operation=operation, **fields)
    return None
