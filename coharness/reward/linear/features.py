"""What the linear judge sees of an answer beside its question, without knowing what is right.

Three kinds: surface features that have names, so that a person can read their weights; the same crossed with the question's first
word, since what a good answer looks like depends on what is asked; and hashed runs of one to three characters, crossed alike.
The subject is the question's last word: short questions name what they are about at their end.
"""

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from coharness.reward.monitors.shortcut import text_features

NUM_BUCKETS = 4096
"""Places that crossed features and character runs are hashed into."""
FEATURES_VERSION = 1
"""Raised with any change of this file that changes a feature; a stored judge of another version is refused."""
MAX_CHARS = 2000
"""Characters of an answer that are looked at."""
_HEAD_CHARS = 24

NAMES = (
    "one",
    "length",
    "longer",
    "shorter",
    "same_length",
    "known_letters",
    "used_letters",
    "forward",
    "backward",
    "rising",
    "sorted_subject",
    "run",
    "shared_words",
    "lists",
    "markup",
    "repetition",
    "praise",
    "hedging",
    "self_reference",
)
"""Named features, in the order of their indices; crossed ones and character runs follow from `len(NAMES)` on."""
NUM_FEATURES = len(NAMES) + NUM_BUCKETS


def named_features(question: str, answer: str) -> dict[str, float]:
    """The named features of an answer; all but `length` and what `text_features` gives lie in [0, 1] or are logs of ratios."""
    text = answer[:MAX_CHARS]
    words = question.split()
    subject = words[-1] if words else ""
    ratio = math.log((len(answer) + 1) / (len(subject) + 1))
    shared = sum((Counter(text) & Counter(subject)).values())
    used = shared / max(len(subject), 1)
    rising = _share(a <= b for a, b in itertools.pairwise(text))
    surface = text_features(text)
    own = set(text.lower().split())
    return {
        "one": 1.0,
        "length": math.log1p(len(answer)),
        "longer": max(ratio, 0.0),
        "shorter": max(-ratio, 0.0),
        "same_length": float(len(answer) == len(subject)),
        "known_letters": shared / max(len(text), 1),
        "used_letters": used,
        "forward": _prefix(text, subject),
        "backward": _prefix(text, subject[::-1]),
        "rising": rising,
        "sorted_subject": rising * used,
        "run": _longest_run(text) / max(len(text), 1),
        "shared_words": len(own & {w.lower() for w in words}) / max(len(own), 1),
        **{name: surface[name] for name in NAMES[-6:]},
    }


def features(question: str, answer: str) -> dict[int, float]:
    """Index -> value of all features that are not 0."""
    named = named_features(question, answer)
    found = {index: named[name] for index, name in enumerate(NAMES) if named[name]}
    head = question.split(maxsplit=1)[0][:_HEAD_CHARS] if question.strip() else ""
    for name, value in named.items():
        if value:
            place = _bucket(f"{head}\x1f{name}")
            found[place] = found.get(place, 0.0) + value
    text = answer[:MAX_CHARS]
    grams = Counter(text[i : i + n] for n in (1, 2, 3) for i in range(len(text) - n + 1))
    norm = math.sqrt(sum(count * count for count in grams.values())) or 1.0
    for gram, count in grams.items():
        place = _bucket(f"{head}\x1e{gram}")
        found[place] = found.get(place, 0.0) + count / norm
    return found


@lru_cache(maxsize=65_536)
def _bucket(key: str) -> int:
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return len(NAMES) + int.from_bytes(digest, "big") % NUM_BUCKETS


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / len(values) if values else 1.0


def _prefix(text: str, other: str) -> float:
    """Length of the common beginning over that of the longer text."""
    same = 0
    for a, b in zip(text, other, strict=False):
        if a != b:
            break
        same += 1
    return same / max(len(text), len(other), 1)


def _longest_run(text: str) -> int:
    best = run = 0
    last = ""
    for character in text:
        run = run + 1 if character == last else 1
        best, last = max(best, run), character
    return best
