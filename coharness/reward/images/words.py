"""Reading what is written in an image, with rapidocr, whose models come in its wheel.

One engine a process, one thread, made at the first use; answers are kept by the image's digest. Where the package is missing
nothing is read, and whatever asks for text abstains.
"""

import hashlib
import logging
from dataclasses import dataclass
from functools import cache
from typing import Any

from coharness.reward.images.extra import has_ocr
from coharness.reward.images.pixels import Image

MIN_SCORE = 0.5
_KEPT: dict[str, tuple["Word", ...]] = {}
_MAX_KEPT = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One line of text that was found."""

    text: str
    "In capitals, one space between words."
    box: tuple[float, float, float, float]
    "Left, top, right, bottom in pixels."
    score: float


def read_words(image: Image) -> tuple[Word, ...]:
    """Lines of text in reading order; none where nothing is written, or where the OCR package is missing."""
    if not has_ocr():
        return ()
    key = hashlib.blake2b(image.tobytes() + str(image.shape).encode(), digest_size=16).hexdigest()
    if key not in _KEPT:
        if len(_KEPT) >= _MAX_KEPT:
            _KEPT.clear()
        _KEPT[key] = _read(image)
    return _KEPT[key]


def _read(image: Image) -> tuple[Word, ...]:
    # The engine was trained on OpenCV's order of channels.
    found = _engine()(image[..., ::-1].copy())
    if found.txts is None:
        return ()
    words = [
        Word(
            text=" ".join(text.upper().split()),
            box=(float(box[:, 0].min()), float(box[:, 1].min()), float(box[:, 0].max()), float(box[:, 1].max())),
            score=float(score),
        )
        for text, box, score in zip(found.txts, found.boxes, found.scores, strict=True)
        if score >= MIN_SCORE and text.strip()
    ]
    return tuple(sorted(words, key=lambda word: (round(word.box[1] / 8), word.box[0])))


@cache
def _engine() -> Any:
    from rapidocr import RapidOCR

    # It greets at every start.
    logging.getLogger("RapidOCR").setLevel(logging.WARNING)
    one_thread = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
    return RapidOCR(params={**one_thread, "Global.log_level": "error"})
