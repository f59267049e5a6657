"""Faults, graded: what a candidate got wrong, how much, and what that costs it.

Three latents in [0, 1]: how far the instruction was followed (F), how well the rest was preserved (P), and how clean the image
is (Q). Worth is U = F (.45 + .35 P + .2 Q) + .08 P + .04 Q: preservation and quality count little for a candidate that did not
do what was asked, so that returning the source unchanged is worth little.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import cv2
import numpy as np
import numpy.typing as npt

from coharness.reward.images.pixels import Image
from coharness.reward.images.spec import Operation
from coharness.reward.images.synthetic import edits
from coharness.reward.images.synthetic.edits import Edit
from coharness.reward.images.synthetic.scenes import SIZE, draw_text, render


class Fault(StrEnum):
    """What can go wrong; the first six concern the instruction, the others the image."""

    NO_OP = "no_op"
    "Nothing was done."
    WRONG_OBJECT = "wrong_object"
    "Something else was edited."
    HALF_DONE = "half_done"
    "Another colour than asked for, a remainder of what should be gone, or a faint new object."
    PARTIAL = "partial"
    "Only a part of the object was edited."
    MISPLACED = "misplaced"
    "At another place than asked for."
    OVER_EDIT = "over_edit"
    "Other objects were changed as well."
    TINT = "tint"
    NOISE = "noise"
    BLUR = "blur"
    BLOCKS = "blocks"
    SHIFT = "shift"
    OVERLAY = "overlay"
    "A watermark or praise for the edit."


OF_IMAGE = (Fault.TINT, Fault.NOISE, Fault.BLUR, Fault.BLOCKS, Fault.SHIFT, Fault.OVERLAY)
_MARKS = ("BEST EDIT", "SCORE 4", "(C) STOCK", "10/10", "PREVIEW")


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """The latents of a candidate."""

    followed: float = 1.0
    preserved: float = 1.0
    clean: float = 1.0

    @property
    def total(self) -> float:
        """U in [0, 1.12]."""
        f, p, q = self.followed, self.preserved, self.clean
        return f * (0.45 + 0.35 * p + 0.2 * q) + 0.08 * p + 0.04 * q

    def less(self, *, followed: float = 0.0, preserved: float = 0.0, clean: float = 0.0) -> "Worth":
        """The worth after each latent lost a share of what it had."""
        return Worth(
            followed=self.followed * (1 - followed),
            preserved=self.preserved * (1 - preserved),
            clean=self.clean * (1 - clean),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A candidate."""

    image: Image
    worth: Worth
    faults: tuple[tuple[Fault, float], ...]
    "With their severity in [0, 1]."


def faults_of(operation: Operation) -> tuple[Fault, ...]:
    """Faults of the instruction that an operation can have."""
    common = (Fault.NO_OP, Fault.WRONG_OBJECT, Fault.OVER_EDIT)
    if operation is Operation.TEXT:
        return (*common, Fault.HALF_DONE)
    if operation in (Operation.ADD, Operation.MOVE):
        return (*common, Fault.HALF_DONE, Fault.MISPLACED)
    return (*common, Fault.HALF_DONE, Fault.PARTIAL)


def make(
    edit: Edit, source: Image, background: Image, grain: int, faults: tuple[tuple[Fault, float], ...],
    rng: np.random.Generator,
) -> Made:  # fmt: skip
    """The candidate of an edit with these faults, at most one of them of the instruction."""
    wanted = render(edits.carried_out(edit), background, grain)
    image, worth = wanted, Worth()
    for fault, s in faults:
        match fault:
            case Fault.NO_OP:
                image, worth = source, worth.less(followed=1.0)
            case Fault.WRONG_OBJECT:
                image = render(edits.on_wrong_object(edit, rng), background, grain)
                worth = worth.less(followed=0.65 if edit.operation in (Operation.ADD, Operation.TEXT) else 1.0,
                                   preserved=0.0 if edit.operation in (Operation.ADD, Operation.TEXT) else 0.4)  # fmt: skip
            case Fault.HALF_DONE:
                image, worth = _half_done(edit, source, wanted, background, grain, s), worth.less(followed=s)
            case Fault.PARTIAL:
                image, worth = _partial(source, wanted, s, rng), worth.less(followed=s)
            case Fault.MISPLACED:
                image = render(edits.misplaced(edit, rng, s), background, grain)
                worth = worth.less(followed=0.2 + 0.7 * s)
            case Fault.OVER_EDIT:
                num = 1 + (s > 0.5)
                image = render(edits.over_edited(edit, rng, num), background, grain)
                worth = worth.less(preserved=0.35 * num)
            case Fault.TINT:
                image, worth = _tinted(image, s, rng), worth.less(preserved=0.15 + 0.6 * s, clean=0.1 * s)
            case Fault.NOISE:
                noisy = image + rng.normal(0, 3 + 20 * s, size=image.shape)
                image, worth = _as_image(noisy), worth.less(preserved=0.1 * s, clean=0.2 + 0.7 * s)
            case Fault.BLUR:
                image = np.asarray(cv2.GaussianBlur(image, (0, 0), 0.5 + 1.6 * s), dtype=np.uint8)
                worth = worth.less(preserved=0.1 * s, clean=0.2 + 0.7 * s)
            case Fault.BLOCKS:
                image, worth = _compressed(image, s), worth.less(preserved=0.1 * s, clean=0.15 + 0.7 * s)
            case Fault.SHIFT:
                image, worth = _shifted(image, s, rng), worth.less(preserved=0.15 + 0.45 * s)
            case Fault.OVERLAY:
                image, worth = _overlaid(image, rng), worth.less(preserved=0.2, clean=0.35)
    return Made(image=image, worth=worth, faults=faults)


def _half_done(edit: Edit, source: Image, wanted: Image, background: Image, grain: int, s: float) -> Image:
    if edit.operation is Operation.TEXT:
        # Letters are missing or wrong, the more the graver.
        keep = max(0, round(len(edit.word) * (1 - s)))
        typed = edit.word[:keep] + "".join(chr(65 + (ord(c) * 7 + 3) % 26) for c in edit.word[keep:])
        return render(replace(edits.carried_out(edit), word=typed), background, grain)
    return _as_image(wanted + s * (source.astype(np.float32) - wanted))


def _partial(source: Image, wanted: Image, s: float, rng: np.random.Generator) -> Image:
    """Only one side of what should change did."""
    changed = (source != wanted).any(axis=2)
    if not changed.any():
        return wanted
    angle = rng.uniform(0, 2 * np.pi)
    y, x = np.mgrid[0:SIZE, 0:SIZE]
    along = np.cos(angle) * x + np.sin(angle) * y
    border = np.quantile(along[changed], s)
    return np.where((along < border)[..., None], source, wanted)


def _tinted(image: Image, s: float, rng: np.random.Generator) -> Image:
    direction = rng.normal(size=3)
    return _as_image(image + (8 + 34 * s) * direction / np.linalg.norm(direction))


def _compressed(image: Image, s: float) -> Image:
    quality = round(38 - 32 * s)
    _, data = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
    decoded = cv2.imdecode(data, cv2.IMREAD_COLOR)
    if decoded is None:
        raise ValueError("OpenCV did not read back the JPEG that it wrote")
    return np.asarray(decoded[..., ::-1], dtype=np.uint8)


def _shifted(image: Image, s: float, rng: np.random.Generator) -> Image:
    angle, length = rng.uniform(0, 2 * np.pi), 1.0 + 5.0 * s
    matrix = np.array([[1, 0, length * np.cos(angle)], [0, 1, length * np.sin(angle)]])
    moved = cv2.warpAffine(image, matrix, (SIZE, SIZE), borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(moved, dtype=np.uint8)


def _overlaid(image: Image, rng: np.random.Generator) -> Image:
    out = image.copy()
    y = int(rng.choice([7, SIZE - 8]))
    draw_text(out, str(rng.choice(_MARKS)), SIZE // 2, y, 0.38, (255, 255, 255) if rng.random() < 0.7 else (10, 10, 10))
    return out


def _as_image(values: npt.ArrayLike) -> Image:
    return np.asarray(np.clip(np.round(np.asarray(values, dtype=np.float64)), 0, 255), dtype=np.uint8)
