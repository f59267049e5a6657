"""What every tool looks at: source, candidate and spec, with the conversions and the region that the edit concerns.

All of it is computed once a candidate; the part that depends on the source alone, once a source (`Scene.of`).
"""

import math
from dataclasses import dataclass

import numpy as np

from coharness.reward.images.locate import Found, find, name_pixels
from coharness.reward.images.pixels import Floats, Image, Mask, Names, delta_e, grey, grown, to_lab
from coharness.reward.images.spec import PLACES, EditSpec, Operation
from coharness.reward.images.words import Word, read_words

MIN_CONFIDENCE = 0.15
"""Least fit at which a named object counts as found in the source."""
_REACH = 0.2
"""Radius around a named place, in shares of the shorter side, in which an edit there may change pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A source image and what an instruction means in it."""

    image: Image
    lab: Floats
    luma: Floats
    names: Names
    spec: EditSpec
    target: Found | None
    "The object that the instruction names, where it names one that is there."
    region: Mask | None
    "Where pixels may change; None where the named object was not found."
    words: tuple[Word, ...]
    "What is written in it; read only where the instruction concerns text."

    @classmethod
    def of(cls, image: Image, spec: EditSpec) -> "Scene":
        """Look at a source image, uint8 [H, W, 3]."""
        lab = to_lab(image)
        names = name_pixels(lab)
        target = None
        if spec.shape and spec.operation is not Operation.ADD:
            target = find(names, spec.colour, spec.shape)
            if target is not None and target.confidence < MIN_CONFIDENCE:
                target = None
        words = read_words(image) if spec.operation is Operation.TEXT else ()
        region = _region(image.shape[:2], spec, target, words)
        return cls(
            image=image, lab=lab, luma=grey(image), names=names, spec=spec, target=target, region=region, words=words
        )

    @property
    def wanted_place(self) -> tuple[float, float] | None:
        """Where the edited object should be, as (x, y) in shares; None where that is not known."""
        if self.spec.place:
            return PLACES[self.spec.place]
        return None if self.target is None else self.target.centre


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A candidate beside its source; both images have the same size."""

    scene: Scene
    image: Image
    lab: Floats
    luma: Floats
    names: Names
    change: Floats
    "ΔE between the two, pixel by pixel [H, W]."

    @classmethod
    def of(cls, scene: Scene, image: Image) -> "View":
        """Look at a candidate.

        Raises:
            ValueError: it has another size than its source.
        """
        if image.shape != scene.image.shape:
            raise ValueError(
                f"the candidate has {image.shape[1]}x{image.shape[0]} pixels, its source "
                f"{scene.image.shape[1]}x{scene.image.shape[0]}; scale it first"
            )
        lab = to_lab(image)
        change = delta_e(scene.lab, lab)
        return cls(scene=scene, image=image, lab=lab, luma=grey(image), names=name_pixels(lab), change=change)

    @property
    def inside(self) -> Mask:
        """The region of the edit; nothing where it is not known."""
        region = self.scene.region
        return np.zeros(self.change.shape, dtype=np.bool_) if region is None else region

    @property
    def outside(self) -> Mask:
        """Everything else; the whole image where the region is not known."""
        return ~self.inside


def _region(size: tuple[int, int], spec: EditSpec, target: Found | None, words: tuple[Word, ...]) -> Mask | None:
    height, width = size
    margin = max(2, round(0.035 * min(size)))
    around = None
    if spec.place:
        x, y = PLACES[spec.place]
        rows, columns = np.mgrid[0:height, 0:width]
        distance = np.hypot(columns + 0.5 - x * width, rows + 0.5 - y * height)
        around = distance <= _REACH * min(size)
    match spec.operation:
        case Operation.ADD:
            return around
        case Operation.MOVE:
            return None if target is None or around is None else grown(target.mask, margin) | around
        case Operation.TEXT:
            if not words:
                return None
            mask = np.zeros(size, dtype=np.bool_)
            for word in words:
                left, top, right, bottom = word.box
                mask[
                    max(0, math.floor(top) - margin) : math.ceil(bottom) + margin,
                    max(0, math.floor(left) - 2 * margin) : math.ceil(right) + 2 * margin,
                ] = True
            return mask
    return None if target is None else grown(target.mask, margin)
