"""What changed, and whether that is where the instruction asks for a change."""

import math

import cv2
import numpy as np

from coharness.reward.images.pixels import Floats, grown, mean_over, share
from coharness.reward.images.view import View

_JUST_VISIBLE = 6.0
"""ΔE above which a change of a pixel can be seen beside noise."""


def change(view: View) -> dict[str, float]:
    """Shares of changed pixels, inside and outside of the region of the edit."""
    changed = view.change > _JUST_VISIBLE
    inside, outside = view.inside, view.outside
    known = bool(inside.any())
    # Specks are noise: what is left after opening is a change of something.
    solid = cv2.morphologyEx(changed.astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    num, _, stats, _ = cv2.connectedComponentsWithStats((solid.astype(bool) & outside).astype(np.uint8))
    pieces = sum(1 for index in range(1, num) if stats[index, cv2.CC_STAT_AREA] >= 12)
    energy_in, energy_out = (float(view.change[mask].sum()) if mask.any() else 0.0 for mask in (inside, outside))
    total = energy_in + energy_out
    return {
        "fraction": float(changed.mean()),
        "inside": share(changed, inside),
        "outside": share(changed, outside),
        "pieces_outside": float(pieces) if known else math.nan,
        "focus": energy_in / total if known and total > 0 else math.nan,
        "identical": float(total == 0.0),
    }


def shift(view: View) -> dict[str, float]:
    """Displacement of the surroundings by phase correlation, in pixels (Kuglin and Hines, 1975)."""
    window = cv2.createHanningWindow((view.luma.shape[1], view.luma.shape[0]), cv2.CV_32F)
    # The edit itself must not pull: inside its region the candidate is taken to look like the source.
    luma = np.where(grown(view.inside, 1), view.scene.luma, view.luma).astype(np.float32)
    (dx, dy), response = cv2.phaseCorrelate(view.scene.luma, luma, window)
    return {"pixels": float(math.hypot(dx, dy)), "response": float(response)}


def preservation(view: View) -> dict[str, float]:
    """How far the surroundings stayed as they were."""
    outside = view.outside
    if not outside.any():
        return dict.fromkeys(("mean", "worst", "ssim", "histogram", "luminance", "colour_cast"), math.nan)
    values = view.change[outside]
    drift = view.lab[outside].mean(axis=0) - view.scene.lab[outside].mean(axis=0)
    return {
        "mean": float(values.mean()),
        "worst": float(np.partition(values, int(0.95 * (values.size - 1)))[int(0.95 * (values.size - 1))]),
        "ssim": mean_over(ssim_map(view.scene.luma, view.luma), outside),
        "histogram": _histogram_distance(view.scene.lab[outside], view.lab[outside]),
        "luminance": float(drift[0]),
        "colour_cast": float(math.hypot(drift[1], drift[2])),
    }


def ssim_map(one: Floats, two: Floats) -> Floats:
    """Structural similarity of two luma images in [0, 1], pixel by pixel [H, W] (Wang et al., 2004; Gaussian window)."""

    def blurred(values: Floats) -> Floats:
        return np.asarray(cv2.GaussianBlur(values, (11, 11), 1.5), dtype=np.float32)

    c1, c2 = 0.01**2, 0.03**2
    m1, m2 = blurred(one), blurred(two)
    v1, v2, v12 = blurred(one * one) - m1 * m1, blurred(two * two) - m2 * m2, blurred(one * two) - m1 * m2
    likeness = ((2 * m1 * m2 + c1) * (2 * v12 + c2)) / ((m1 * m1 + m2 * m2 + c1) * (v1 + v2 + c2))
    return np.asarray(likeness, dtype=np.float32)


def _histogram_distance(one: Floats, two: Floats) -> float:
    """Hellinger distance of the distributions of L, a and b, the largest of the three."""
    worst = 0.0
    for channel, (low, high) in enumerate(((0, 100), (-100, 100), (-100, 100))):
        a, b = (np.histogram(values[:, channel], bins=24, range=(low, high))[0] / len(values) for values in (one, two))
        worst = max(worst, math.sqrt(max(0.0, 1.0 - float(np.sqrt(a * b).sum()))))
    return worst
