"""Fenced blocks of code in a model's text: writing one, and reading the last complete one.

Lines decide, as in CommonMark: a block begins at a line of three or more backticks with at most a language behind them, and ends
at the next line of nothing but backticks, at least as many. Both may be indented by up to three spaces. Invariants: what stands
around a block is never part of it; a block that is not closed is no block; a block of another language than Python is text.
"""

import re

_OPENS = re.compile(r" {0,3}(`{3,})[ \t]*([A-Za-z0-9_+.#-]*)[^`]*")
_CLOSES = re.compile(r" {0,3}(`{3,})[ \t]*")
_PYTHON = frozenset({"", "python", "python3", "py"})


def write_block(code: str) -> str:
    """`code` in a block, whose fence is longer than any that a line of the code could close it with."""
    inside = (_CLOSES.fullmatch(line) for line in code.split("\n"))
    longest = max((len(found[1]) for found in inside if found), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{code}\n{fence}"


def last_block(text: str) -> str | None:
    """Lines of the last complete block of Python, or of a block that names no language; None where there is none."""
    found: str | None = None
    fence, is_python, lines = "", False, list[str]()
    for line in text.replace("\r\n", "\n").split("\n"):
        if not fence:
            if opening := _OPENS.fullmatch(line):
                fence, is_python, lines = opening[1], opening[2].lower() in _PYTHON, []
        elif (closing := _CLOSES.fullmatch(line)) and len(closing[1]) >= len(fence):
            if is_python:
                found = "\n".join(lines)
            fence = ""
        else:
            lines.append(line)
    return found


def has_fence(text: str) -> bool:
    """Whether any line of a text opens or closes a block."""
    return any(_OPENS.fullmatch(line) for line in text.replace("\r\n", "\n").split("\n"))
