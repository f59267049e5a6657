"""Whether a candidate is as clean an image as its source: noise, blur, blocks, clipping, edges, and marks laid over it."""

import math

import cv2
import numpy as np

from coharness.reward.images.pixels import Floats, Image, Mask, mean_over
from coharness.reward.images.view import View


def quality(view: View) -> dict[str, float]:
    """Each figure beside the source's; logs of ratios, so that 0 means unchanged and the sign tells the direction."""
    outside = view.outside
    before, after = view.scene.luma, view.luma
    return {
        "noise": math.log((_noise(after, outside) + 0.002) / (_noise(before, outside) + 0.002)),
        "sharpness": math.log((_sharpness(after, outside) + 1e-4) / (_sharpness(before, outside) + 1e-4)),
        "blockiness": _blockiness(after) - _blockiness(before),
        "clipping": _clipped(view.image, outside) - _clipped(view.scene.image, outside),
        "saturation": math.log((_chroma(view.lab, outside) + 1.0) / (_chroma(view.scene.lab, outside) + 1.0)),
    }


def edges(view: View) -> dict[str, float]:
    """Whether contours outside of the region are where they were."""
    outside = view.outside
    one, two = (_gradient(luma) for luma in (view.scene.luma, view.luma))
    magnitude = np.hypot(*one) * np.hypot(*two)
    agreement = (one[0] * two[0] + one[1] * two[1] + 1e-4) / (magnitude + 1e-4)
    strong = outside & (np.hypot(*one) > 0.08)
    before, after = (_canny(luma) for luma in (view.scene.luma, view.luma))
    return {
        "similarity": mean_over(agreement.astype(np.float32), strong),
        "density": math.log((float(after[outside].mean()) + 0.005) / (float(before[outside].mean()) + 0.005)),
    }


def overlay(view: View) -> dict[str, float]:
    """Marks along the border that the source has not: watermarks, captions, praise for the edit."""
    height, width = view.luma.shape
    rim = np.zeros((height, width), dtype=np.bool_)
    depth_y, depth_x = max(2, round(0.16 * height)), max(2, round(0.16 * width))
    rim[:depth_y], rim[-depth_y:], rim[:, :depth_x], rim[:, -depth_x:] = True, True, True, True
    rim &= view.outside
    if not rim.any():
        return {"rim": math.nan, "strokes": math.nan}
    fine = np.abs(view.luma - cv2.GaussianBlur(view.luma, (0, 0), 2.0))
    was = np.abs(view.scene.luma - cv2.GaussianBlur(view.scene.luma, (0, 0), 2.0))
    centre = view.outside & ~rim
    extra = (fine - was).astype(np.float32)
    inner = mean_over(extra, centre)
    return {
        "rim": mean_over(view.change, rim) - (mean_over(view.change, centre) if centre.any() else 0.0),
        "strokes": mean_over(extra, rim) - (0.0 if math.isnan(inner) else inner),
    }


def _noise(luma: Floats, mask: Mask) -> float:
    """Standard deviation of white noise from a Laplacian difference that cancels edges (Immerkær, 1996), robustly."""
    kernel = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]], dtype=np.float32)
    response = np.abs(cv2.filter2D(luma, cv2.CV_32F, kernel)[mask])
    return float(np.median(response)) / (0.6745 * 6.0) if response.size else 0.0


def _sharpness(luma: Floats, mask: Mask) -> float:
    response = cv2.Laplacian(luma, cv2.CV_32F)[mask]
    if not response.size:
        return 0.0
    values = np.abs(response)
    place = int(0.97 * (values.size - 1))
    return float(np.partition(values, place)[place])


def _blockiness(luma: Floats) -> float:
    """Steps at the borders of 8-pixel blocks beside steps elsewhere (JPEG), as a log ratio."""
    steps = []
    for axis in (0, 1):
        jump = np.abs(np.diff(luma, axis=axis))
        profile = jump.mean(axis=1 - axis)
        at = np.arange(profile.size) % 8 == 7
        steps.append((float(profile[at].mean()) + 1e-3) / (float(profile[~at].mean()) + 1e-3))
    return math.log(sum(steps) / 2)


def _clipped(image: Image, mask: Mask) -> float:
    if not mask.any():
        return 0.0
    at_an_end = np.asarray(((image <= 1) | (image >= 254)).any(axis=2))
    return float(at_an_end[mask].mean())


def _chroma(lab: Floats, mask: Mask) -> float:
    return float(np.hypot(lab[..., 1], lab[..., 2])[mask].mean()) if mask.any() else 0.0


def _gradient(luma: Floats) -> tuple[Floats, Floats]:
    smooth = cv2.GaussianBlur(luma, (3, 3), 0)
    return cv2.Sobel(smooth, cv2.CV_32F, 1, 0) / 4, cv2.Sobel(smooth, cv2.CV_32F, 0, 1) / 4


def _canny(luma: Floats) -> Mask:
    return np.asarray(cv2.Canny((luma * 255).astype(np.uint8), 60, 140), dtype=np.bool_)
