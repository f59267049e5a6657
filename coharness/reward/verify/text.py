"""Verifiers that only compare text: exact, numeric, choice. They read an answer, they never evaluate it.

Invariants: exact rational arithmetic, so no answer is right or wrong by rounding; the size of what is read is bounded, so
no answer can cost time. Partial credit of the exact verifier is the share of equal leading characters, over the longer of
the two; the others give none.
"""

import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from coharness.records.errors import Boundary, BoundaryError
from coharness.records.protocols import Check

_MAX_NUMBER_CHARS = 100
_MAX_EXPONENT = 308
_INTEGER = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_NUMBER = re.compile(
    rf"""(?P<sign>[+-]?)\s*[$€£]?\s*(?P<sign_after>-?)
    (?:
        (?P<whole>{_INTEGER})\s+(?P<mixed_top>\d+)\s*/\s*(?P<mixed_bottom>\d+)
      | (?P<top>{_INTEGER})\s*/\s*(?P<bottom>{_INTEGER})
      | (?P<decimal>{_INTEGER}(?:\.\d*)?|\.\d+)(?:[eE](?P<exponent>[+-]?\d{{1,3}}))?
    )
    \s*(?P<percent>\\?%)?\s*[$€£]?\.?""",
    re.VERBOSE | re.ASCII,
)


def check_exact(expected: str, answer: str) -> Check:
    """Equal after trimming white space."""
    expected, answer = expected.strip(), answer.strip()
    if expected == answer:
        return Check(correct=True, partial=1.0)
    return Check(correct=False, partial=leading_share(expected, answer), feedback="differs from the expected answer")


def leading_share(expected: str, answer: str) -> float:
    """Share of equal leading characters, over the length of the longer text; 1 for equal ones."""
    longest = max(len(expected), len(answer))
    if longest == 0:
        return 1.0
    # Over the longer one, so that neither cutting an answer short nor writing on and on raises the share.
    equal = next((i for i, (a, b) in enumerate(zip(expected, answer, strict=False)) if a != b), None)
    return (min(len(expected), len(answer)) if equal is None else equal) / longest


def parse_number(text: str) -> tuple[Fraction, bool] | None:
    """The number a text consists of and whether a percent sign follows it; None where it is no single number.

    Read are integers and decimals, with thousands separators (`1,234.5`) or an exponent (`1e3`), fractions (`3/4`), mixed
    numbers (`1 3/4`), with a currency sign, a sign of either kind of minus, or a full stop at the end. The value of `50%` is
    given as 50.
    """
    text = text.strip().replace("−", "-").replace("\\$", "$").replace("\\%", "%")
    match = _NUMBER.fullmatch(text) if len(text) <= _MAX_NUMBER_CHARS else None
    if match is None or (match["sign"] and match["sign_after"]):
        return None
    if match["decimal"] is not None:
        exponent = int(match["exponent"] or 0)
        if abs(exponent) > _MAX_EXPONENT:
            return None
        value = Fraction(match["decimal"].replace(",", "")) * Fraction(10) ** exponent
    else:
        top = match["mixed_top"] or match["top"]
        bottom = int((match["mixed_bottom"] or match["bottom"]).replace(",", ""))
        if bottom == 0:
            return None
        value = int((match["whole"] or "0").replace(",", "")) + Fraction(int(top.replace(",", "")), bottom)
    negative = match["sign"] == "-" or match["sign_after"] == "-"
    return (-value if negative else value), match["percent"] is not None


def check_numeric(expected: str, answer: str, params: Mapping[str, Any]) -> Check:
    """Equal as numbers.

    `params`: `tolerance`, the largest absolute difference (default 1e-9), and `relative`, the largest difference as a share of
    the expected value (default 0); within either is correct. Where one side alone carries a percent sign, `50%` equals both
    50 and 0.5: a question for a percentage is answered either way.

    Raises:
        BoundaryError: the expected answer is no number, or a tolerance is none.
    """
    right = parse_number(expected)
    if right is None:
        raise BoundaryError(
            Boundary.VERIFIER,
            f"the expected answer {expected[:80]!r} is no number; use verifier exact or math for this source",
        )
    tolerance, relative = _bound(params, "tolerance", 1e-9), _bound(params, "relative", 0.0)
    given = parse_number(answer)
    if given is None:
        return Check(correct=False, partial=0.0, feedback="the answer is not a number")
    pairs = [(right[0], given[0])]
    if right[1] and not given[1]:
        pairs.append((right[0] / 100, given[0]))
    if given[1] and not right[1]:
        pairs.append((right[0], given[0] / 100))
    if any(abs(a - b) <= max(tolerance, relative * abs(a)) for a, b in pairs):
        return Check(correct=True, partial=1.0)
    return Check(correct=False, partial=0.0, feedback="another number is expected")


def _bound(params: Mapping[str, Any], name: str, default: float) -> Fraction:
    value = params.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise BoundaryError(Boundary.VERIFIER, f"the numeric verifier's {name} is a finite number >= 0, got {value!r}")
    return Fraction(value)


_LETTER = re.compile(r"\(?\s*([A-Za-z])\s*(?:[).:]\s*(.*))?", re.DOTALL)


def check_choice(expected: str, answer: str, params: Mapping[str, Any]) -> Check:
    """The letter or the text of the right choice, e.g. `B`, `(b)`, `B) blue` or `blue`; `params["choices"]` lists the texts.

    Raises:
        BoundaryError: there are no choices, or the expected answer names none of them.
    """
    choices = params.get("choices")
    if not isinstance(choices, Sequence) or isinstance(choices, str) or len(choices) < 2:
        raise BoundaryError(Boundary.VERIFIER, f"the choice verifier needs a list of choices, got {choices!r:.80}")
    texts = [str(choice).strip().casefold() for choice in choices]
    right = _chosen(expected, texts)
    if right is None:
        raise BoundaryError(
            Boundary.VERIFIER,
            f"the expected answer {expected[:80]!r} names none of the choices {list(choices)!r:.200}",
        )
    given = _chosen(answer, texts)
    if given is None:
        return Check(correct=False, partial=0.0, feedback="the answer names none of the choices")
    if given == right:
        return Check(correct=True, partial=1.0)
    return Check(correct=False, partial=0.0, feedback="another choice is expected")


def _chosen(text: str, choices: Sequence[str]) -> int | None:
    folded = text.strip().casefold()
    if folded in choices:
        return choices.index(folded)
    match = _LETTER.fullmatch(text.strip())
    if match is None:
        return None
    index, said = ord(match[1].casefold()) - ord("a"), (match[2] or "").strip().casefold()
    if index >= len(choices) or (said and said != choices[index]):
        return None
    return index
