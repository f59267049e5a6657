"""The few operations on pixels that several tools share. An image is uint8 sRGB [H, W, 3]; a mask is bool [H, W]."""

from functools import cache
from typing import TypeAlias

import cv2
import numpy as np
import numpy.typing as npt

from coharness.reward.images.colours import PALETTE

Image: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]
Mask: TypeAlias = npt.NDArray[np.bool_]
Names: TypeAlias = npt.NDArray[np.int8]


def to_lab(image: Image) -> Floats:
    """CIELAB [H, W, 3], L in [0, 100]; Euclidean distance there is the CIE 1976 colour difference ΔE."""
    return np.asarray(cv2.cvtColor(image.astype(np.float32) / 255.0, cv2.COLOR_RGB2LAB), dtype=np.float32)


@cache
def lab_of(colour: str) -> tuple[float, float, float]:
    """A named colour in CIELAB."""
    pixel = to_lab(np.array([[PALETTE[colour]]], dtype=np.uint8))[0, 0]
    return float(pixel[0]), float(pixel[1]), float(pixel[2])


def delta_e(one: Floats, two: Floats) -> Floats:
    """ΔE, pixel by pixel [H, W]."""
    difference = one - two
    return np.asarray(np.sqrt(np.einsum("...c,...c->...", difference, difference)), dtype=np.float32)


def grown(mask: Mask, radius: int) -> Mask:
    """The mask and everything within `radius` pixels of it; eroded where the radius is negative."""
    if radius == 0 or not mask.any():
        return mask
    size = 2 * abs(radius) + 1
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (size, size))
    change = cv2.dilate if radius > 0 else cv2.erode
    return np.asarray(change(mask.astype(np.uint8), kernel), dtype=np.bool_)


def grey(image: Image) -> Floats:
    """Luma in [0, 1], [H, W]."""
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), dtype=np.float32) / np.float32(255.0)


def share(mask: Mask, within: Mask) -> float:
    """Share of `within` that `mask` covers, NaN where `within` is empty."""
    size = int(within.sum())
    return float((mask & within).sum()) / size if size else float("nan")


def mean_over(values: Floats, mask: Mask) -> float:
    """Mean over a mask, NaN where it is empty."""
    return float(values[mask].mean()) if mask.any() else float("nan")
