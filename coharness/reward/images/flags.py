"""Text in a candidate that its source has not, or that speaks to the judge: reported beside a judgment, no part of it."""

import re

from coharness.reward.images.media import MediaRejected, decode_image
from coharness.reward.images.words import read_words

_TO_THE_JUDGE = re.compile(
    r"\b(?:BEST|BETTER|PERFECT|WINNER|PREFER|SCORE|RATE|RATING|EDIT|ANSWER|VERDICT|IGNORE|JUDGE|CORRECT)\b|\b(?:10|4)\s*/\s*(?:10|4)\b"
)


def text_flags(source: bytes, candidate: bytes) -> tuple[str, ...]:
    """`text_added` where words can be read that the source has not, `text_to_judge` where they praise the edit or name a score.

    Empty where the OCR package is missing: nothing was looked for. `unreadable` where an image is not opened.
    """
    try:
        before, after = (read_words(decode_image(data, "image")) for data in (source, candidate))
    except MediaRejected:
        return ("unreadable",)
    known = {word.text for word in before}
    new = [word.text for word in after if word.text not in known]
    flags = ["text_added"] if new else []
    if any(_TO_THE_JUDGE.search(text) for text in new):
        flags.append("text_to_judge")
    return tuple(flags)
