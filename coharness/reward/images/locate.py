"""Finding a named object: pixels near its colour, in one piece, of its shape.

Colours are compared in CIELAB, and a pixel counts for the named colour only where no other named colour is nearer. Shapes are
told apart by what area, hull and enclosing figures say about a component; each test is soft, so that blurred or noisy
candidates lose confidence gradually.
"""

import math
from dataclasses import dataclass

import cv2
import numpy as np

from coharness.reward.images.colours import PALETTE
from coharness.reward.images.pixels import Floats, Mask, Names, lab_of

MAX_DISTANCE = 34.0
"""ΔE from the centre of a colour's name up to which a pixel may be called by it."""
_NAMES = list(PALETTE)
MIN_SHARE, MAX_SHARE = 0.004, 0.25
"""Least and largest share of the image that an object takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An object, or the best that was found of it."""

    mask: Mask
    "bool [H, W]."
    centre: tuple[float, float]
    "(x, y) in shares of width and height."
    area: float
    "Share of the image."
    confidence: float
    "In [0, 1]: how well shape and size fit."


def name_pixels(lab: Floats) -> Names:
    """Index in the palette of the word that names each pixel best, -1 where none is near enough; int8 [H, W]."""
    centres = np.array([lab_of(name) for name in _NAMES], dtype=np.float32)  # [K, 3]
    pixels = lab.reshape(-1, 3)
    # |x - c|² = |x|² - 2 x·c + |c|², one small product instead of K passes over the image.
    squares = np.einsum("pc,pc->p", pixels, pixels)
    distances = (centres * centres).sum(axis=1) - 2.0 * (pixels @ centres.T)  # [P, K], |x|² left out
    best = distances.argmin(axis=1)
    near = np.take_along_axis(distances, best[:, None], axis=1)[:, 0] + squares <= MAX_DISTANCE**2
    return np.where(near, best, -1).astype(np.int8).reshape(lab.shape[:2])


def named(names: Names, colour: str) -> Mask:
    """Pixels that are called by a colour's name."""
    return np.asarray(names == _NAMES.index(colour), dtype=np.bool_)


def find(names: Names, colour: str, shape: str) -> Found | None:
    """The component that looks most like the named object, None where nothing of that colour is large enough."""
    return max(find_all(names, colour, shape), key=lambda one: one.confidence, default=None)


def find_all(names: Names, colour: str, shape: str) -> list[Found]:
    """All components of that colour with the confidence that they have that shape; any shape where it is empty."""
    height, width = names.shape
    mask = named(names, colour).astype(np.uint8)
    if int(mask.sum()) < MIN_SHARE * mask.size:
        return []
    mask = cv2.morphologyEx(mask, cv2.MORPH_OPEN, np.ones((2, 2), np.uint8))
    num, labels, stats, centres = cv2.connectedComponentsWithStats(mask, connectivity=4)
    found = []
    for index in range(1, num):
        area = float(stats[index, cv2.CC_STAT_AREA]) / (height * width)
        if not MIN_SHARE <= area <= MAX_SHARE:
            continue
        component: Mask = labels == index
        confidence = shape_fit(component, shape) if shape else 1.0
        x, y = centres[index]
        found.append(
            Found(mask=component, centre=((x + 0.5) / width, (y + 0.5) / height), area=area, confidence=confidence)
        )
    return found


def shape_fit(mask: Mask, shape: str) -> float:
    """How much a component looks like a shape, in [0, 1]."""
    contours, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    if not contours:
        return 0.0
    contour = max(contours, key=len)
    # A contour runs through the centres of the border pixels: half a pixel on each side is missing from its area.
    length = cv2.arcLength(contour, True)
    area = cv2.contourArea(contour) + length / 2 + 1
    hull = cv2.contourArea(cv2.convexHull(contour)) + length / 2 + 1
    _, radius = cv2.minEnclosingCircle(contour)
    round_fill = area / (math.pi * (radius + 0.5) ** 2)
    _, (w, h), _ = cv2.minAreaRect(contour)
    box_fill = area / ((w + 1) * (h + 1))
    triangle, _ = cv2.minEnclosingTriangle(contour)
    triangle_fill = area / (max(triangle, 1.0) + length / 2 + 1)
    solidity = area / hull
    match shape:
        case "circle":
            return _above(round_fill, 0.72, 0.92)
        case "square":
            return _above(box_fill, 0.80, 0.95) * (1.0 - _above(round_fill, 0.72, 0.86))
        case "triangle":
            return _above(triangle_fill, 0.66, 0.86) * _above(solidity, 0.82, 0.92)
        case "star":
            return 1.0 - _above(solidity, 0.72, 0.88)
    raise ValueError(f"got the shape {shape!r}, expected circle, square, triangle or star")


def _above(value: float, low: float, high: float) -> float:
    return min(max((value - low) / (high - low), 0.0), 1.0)
