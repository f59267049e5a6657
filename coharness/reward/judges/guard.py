"""A candidate's text made safe to show to a judge: what could pass for something else is written out, and said so.

Nothing is dropped silently: a character that is invisible, turns text around or cannot be encoded stands as its code point, and
each kind raises a flag. Flags also name text that imitates the judge's own protocol; it stays, as data, inside a JSON string.
"""

import re
import unicodedata
from dataclasses import dataclass

BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
ZERO_WIDTH = frozenset("\u00ad\u180e\u200b\u200c\u200d\u2060\u2061\u2062\u2063\u2064\ufeff")
_TAGS = range(0xE0000, 0xE0080)
_VARIATION = (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
_RESERVED = re.compile(
    r"<\s*/?\s*(?:answer|verdict|score|judge|system|assistant|user|instructions?|boundary)\b[^>]*>|"
    r"[\"']?(?:verdicts?|criteria|better|choice|boundary)[\"']?\s*:\s*[\[\"'{]|\[\[\s*(?:[ABab]|\d+(?:\.\d+)?)\s*\]\]",
    re.IGNORECASE,
)
_ROLE = re.compile(
    r"<\|[a-z_]{2,30}\|>|\[/?INST\]|<</?SYS>>|^\s{0,3}(?:#{1,6}\s*)?(?:system|assistant|user|instructions?)\s*:",
    re.IGNORECASE | re.MULTILINE,
)
_FENCE = re.compile(r"^\s{0,3}(?:```|~~~)", re.MULTILINE)
_PLEA = re.compile(
    r"\b(?:ignore|disregard|forget)\b[^.\n]{0,40}\b(?:instructions?|above|previous|rubric|criteria)\b|"
    r"\b(?:rate|score|grade|give)\b[^.\n]{0,30}(?:\b10\s*/\s*10\b|\bfull (?:marks|score)\b|\bhighest\b|\bmaximum\b)",
    re.IGNORECASE,
)
_MIXED = re.compile(r"\w+")
_UNUSUAL = re.compile(r"[^\n\t\x20-\x7e]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """A text as a judge may see it."""

    text: str
    "NUL-free, encodable, without anything invisible."
    flags: tuple[str, ...]
    "What was found, in name order: bidi, control, fence, homoglyph, plea, reserved_sequence, role_marker, surrogate, zero_width."


def guard(text: str) -> Guarded:
    """Write out what is invisible and flag what imitates; linear in the text's length."""
    flags: set[str] = set()

    def written_out(match: re.Match[str]) -> str:
        kind = _kind(match.group())
        if kind is None:
            return match.group()
        flags.add(kind)
        return f"\\u{{{ord(match.group()):x}}}"

    shown = _UNUSUAL.sub(written_out, text)
    seen = text
    if not text.isascii() or flags:
        # Imitations are looked for in the text as a model would read it: without what was hidden between its letters.
        seen = unicodedata.normalize("NFKC", "".join(c for c in text if _kind(c) is None))
        if any(_is_mixed(word) for word in _MIXED.findall(text)):
            flags.add("homoglyph")
    for name, pattern in (("reserved_sequence", _RESERVED), ("role_marker", _ROLE), ("fence", _FENCE), ("plea", _PLEA)):
        if pattern.search(seen):
            flags.add(name)
    return Guarded(text=shown, flags=tuple(sorted(flags)))


def _kind(char: str) -> str | None:
    if char in "\n\t" or " " <= char < "\x7f":
        return None
    code = ord(char)
    if char in BIDI:
        return "bidi"
    if char in ZERO_WIDTH or code in _TAGS or code in _VARIATION:
        return "zero_width"
    if 0xD800 <= code <= 0xDFFF:
        return "surrogate"
    if code < 32 or 0x7F <= code < 0xA0:
        return "control"
    return None


def _is_mixed(word: str) -> bool:
    """Whether one word mixes Latin with Cyrillic or Greek letters, as no language does."""
    if word.isascii():
        return False
    scripts = {unicodedata.name(c, "?").split(" ")[0] for c in word if c.isalpha()}
    return "LATIN" in scripts and bool(scripts & {"CYRILLIC", "GREEK"})
