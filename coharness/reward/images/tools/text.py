"""Whether the image says what it should say."""

import math
from difflib import SequenceMatcher

from coharness.reward.images.extra import has_ocr
from coharness.reward.images.spec import Operation
from coharness.reward.images.view import View
from coharness.reward.images.words import read_words


def text(view: View) -> dict[str, float]:
    """Likeness of what can be read to what is asked for; only where the instruction concerns text."""
    spec = view.scene.spec
    if spec.operation is not Operation.TEXT or not has_ocr():
        return {"wanted": math.nan, "exact": math.nan, "old": math.nan, "score": math.nan}
    words = read_words(view.image)
    old = spec.old_text or max((word.text for word in view.scene.words), key=len, default="")
    return {
        "wanted": max((likeness(word.text, spec.text) for word in words), default=0.0),
        "exact": float(any(word.text == spec.text for word in words)),
        "old": max((likeness(word.text, old) for word in words), default=0.0) if old else math.nan,
        "score": max((word.score for word in words), default=0.0),
    }


def likeness(one: str, two: str) -> float:
    """Share of matching characters in [0, 1] (Ratcliff and Metzener, 1988)."""
    return SequenceMatcher(None, one, two, autojunk=False).ratio()
