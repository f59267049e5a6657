"""What a request may be: bounds that hold before a body is parsed, and messages that tell a client which one it met."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one request."""

    max_body_bytes: int = 8 * 2**20
    max_depth: int = 16
    max_items: int = 1024
    max_candidates: int = 16
    "Of one ranking."
    max_text_chars: int = 200_000
    "Of one question or candidate."


class Refused(Exception):
    """A request that is not served; `code` and `message` go to the client as they are."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message


def parse_body(body: bytes, limits: Limits) -> Any:
    """The JSON value of a body.

    Raises:
        Refused: 413 too long, 422 nested too deeply or no JSON of finite numbers.
    """
    if len(body) > limits.max_body_bytes:
        raise Refused(413, "too_large", f"the body has more than {limits.max_body_bytes} bytes")
    if nesting(body, limits.max_depth) > limits.max_depth:
        raise Refused(422, "too_deep", f"the body is nested deeper than {limits.max_depth} levels")
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(422, "no_json", "the body is no JSON of finite numbers") from error


def nesting(body: bytes, enough: int) -> int:
    """The deepest nesting of brackets outside strings; stops counting past `enough`.

    Works on runs of bytes between quotes, so that long texts cost one search each.
    """
    depth = deepest = position = 0
    while position < len(body):
        quote = body.find(b'"', position)
        plain = body[position:] if quote < 0 else body[position:quote]
        for byte in plain:
            if byte in b"[{":
                depth += 1
                deepest = max(deepest, depth)
                if deepest > enough:
                    return deepest
            elif byte in b"]}":
                depth -= 1
        if quote < 0:
            break
        position = _string_end(body, quote + 1)
    return deepest


def _string_end(body: bytes, position: int) -> int:
    while True:
        quote = body.find(b'"', position)
        if quote < 0:
            return len(body)
        backslashes = 0
        while body[quote - 1 - backslashes : quote - backslashes] == b"\\":
            backslashes += 1
        if backslashes % 2 == 0:
            return quote + 1
        position = quote + 1


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")
