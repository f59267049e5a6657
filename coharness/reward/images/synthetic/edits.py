"""Instructions, and the layouts that carry them out: well, in part, or on the wrong thing."""

from dataclasses import dataclass, replace

import numpy as np

from coharness.reward.images.spec import SHAPES, Operation
from coharness.reward.images.synthetic.scenes import COLOURS, WORDS, Layout, Sprite, new_sprite

_WORDINGS = {
    Operation.RECOLOR: (
        "make the {old} {new_colour}", "change the color of the {old} to {new_colour}", "paint the {old} {new_colour}",
        "Turn the {old} {new_colour}.",
    ),
    Operation.REMOVE: ("remove the {old}", "delete the {old}", "take the {old} away", "Please erase the {old}."),
    Operation.ADD: ("add a {new} in the {place}", "put a {new} at the {place}", "Draw a {new} in the {place}."),
    Operation.MOVE: ("move the {old} to the {place}", "shift the {old} to the {place}"),
    Operation.REPLACE: ("replace the {old} with a {new}", "swap the {old} for a {new}", "turn the {old} into a {new}"),
    Operation.TEXT: ('change the text "{old_word}" to "{word}"', 'make the sign say "{word}"'),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One instruction on one layout, with what is needed to carry it out or to get it wrong."""

    operation: Operation
    layout: Layout
    instruction: str
    index: int
    "Of the sprite that is edited; -1 where none is."
    result: Sprite | None
    "What it becomes, or what is added; None where it goes."
    word: str = ""


def random_edit(rng: np.random.Generator, operation: Operation, layout: Layout) -> Edit:
    """An instruction of this kind that makes sense on this layout."""
    index = int(rng.integers(len(layout.sprites)))
    old = layout.sprites[index]
    taken = {sprite.colour for sprite in layout.sprites}
    fresh = str(rng.choice([c for c in COLOURS if c not in taken]))
    shape = str(rng.choice([s for s in SHAPES if s != old.shape]))
    place = str(rng.choice(layout.free_places))
    word, result = "", None
    match operation:
        case Operation.RECOLOR:
            result = replace(old, colour=fresh)
        case Operation.ADD:
            index, result = -1, new_sprite(rng, shape=shape, colour=fresh, place=place)
        case Operation.MOVE:
            result = replace(old, place=place)
        case Operation.REPLACE:
            result = replace(old, colour=fresh, shape=shape)
        case Operation.TEXT:
            index, word = -1, str(rng.choice([w for w in WORDS if w != layout.word]))
    wording = str(rng.choice(_WORDINGS[operation]))
    instruction = wording.format(
        old=f"{old.colour} {old.shape}", new=f"{fresh} {shape}", new_colour=fresh, place=place,
        old_word=layout.word, word=word,
    )  # fmt: skip
    return Edit(operation=operation, layout=layout, instruction=instruction, index=index, result=result, word=word)


def carried_out(edit: Edit) -> Layout:
    """The layout as the instruction wants it."""
    layout = edit.layout
    if edit.operation is Operation.TEXT:
        return replace(layout, word=edit.word)
    if edit.operation is Operation.ADD:
        return replace(layout, sprites=(*layout.sprites, _some(edit.result)))
    return layout.replaced(edit.index, edit.result)


def on_wrong_object(edit: Edit, rng: np.random.Generator) -> Layout:
    """The edit done to another object, or with another object."""
    layout = edit.layout
    if edit.operation is Operation.TEXT:
        return replace(layout, word=str(rng.choice([w for w in WORDS if w not in (layout.word, edit.word)])))
    if edit.operation is Operation.ADD:
        result = _some(edit.result)
        shape = str(rng.choice([s for s in SHAPES if s != result.shape]))
        return replace(layout, sprites=(*layout.sprites, replace(result, shape=shape)))
    others = [i for i in range(len(layout.sprites)) if i != edit.index]
    if not others:
        return layout
    other = int(rng.choice(others))
    victim = layout.sprites[other]
    changed = {
        Operation.REMOVE: None,
        Operation.RECOLOR: replace(victim, colour=edit.result.colour if edit.result else victim.colour),
        Operation.MOVE: replace(victim, place=edit.result.place if edit.result else victim.place),
        Operation.REPLACE: replace(edit.result, place=victim.place, offset=victim.offset) if edit.result else None,
    }[edit.operation]
    return layout.replaced(other, changed)


def over_edited(edit: Edit, rng: np.random.Generator, num: int) -> Layout:
    """The edit as asked for, and `num` other objects changed as well."""
    layout = carried_out(edit)
    keep = edit.index if edit.operation is not Operation.REMOVE else -1
    added = len(layout.sprites) - 1 if edit.operation is Operation.ADD else -1
    others = [i for i in range(len(layout.sprites)) if i not in (keep, added)]
    taken = {sprite.colour for sprite in layout.sprites}
    fresh = [c for c in COLOURS if c not in taken]
    for other in rng.permutation(others)[:num]:
        layout = layout.replaced(int(other), replace(layout.sprites[int(other)], colour=fresh.pop()))
    return layout


def misplaced(edit: Edit, rng: np.random.Generator, severity: float) -> Layout:
    """The moved or added object between where it was wanted and another free place, further the graver."""
    result = _some(edit.result)
    free = [place for place in edit.layout.free_places if place != result.place]
    wrong = replace(result, place=str(rng.choice(free)))
    if severity < 0.5:
        x, y = rng.uniform(-1, 1, size=2)
        length = 0.10 + 0.16 * severity
        scale = length / max(float(np.hypot(x, y)), 1e-6)
        wrong = replace(result, offset=(result.offset[0] + x * scale, result.offset[1] + y * scale))
    return carried_out(replace(edit, result=wrong))


def _some(sprite: Sprite | None) -> Sprite:
    if sprite is None:
        raise ValueError("this edit has no resulting object")
    return sprite
