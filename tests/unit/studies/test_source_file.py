"""What the digest of one source file sees, and what it does not."""

import ast
import io
import tokenize
from collections.abc import Iterator

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coharness.studies.source_file import read_source
from tests.arch.source import ROOT
from tests.unit.studies.toy import TOY

SAMPLES = [
    TOY,
    *((ROOT / "coharness" / name).read_text(encoding="utf-8") for name in ("records/ids.py", "loop/clock.py")),
]
SWAPPED = {"+": "-", "-": "+", "*": "+", "<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "!=", "!=": "=="}


def digest(text: str) -> str:
    return read_source(text.encode()).digest


def tokens(text: str) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


def offset(text: str, position: tuple[int, int]) -> int:
    lines = text.splitlines(keepends=True)
    return sum(len(line) for line in lines[: position[0] - 1]) + position[1]


def put(text: str, token: tokenize.TokenInfo, new: str) -> str:
    return text[: offset(text, token.start)] + new + text[offset(text, token.end) :]


def documentation(text: str) -> list[tokenize.TokenInfo]:
    """Strings that are a statement of their own, told by the tokens around them."""
    found = [t for t in tokens(text) if t.type not in (tokenize.COMMENT, tokenize.NL)]
    around = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
    return [
        token
        for i, token in enumerate(found)
        if token.type == tokenize.STRING
        and (i == 0 or found[i - 1].type in around)
        and found[i + 1].type == tokenize.NEWLINE
    ]


def edits(text: str) -> Iterator[tuple[tokenize.TokenInfo, str]]:
    """Each token that can be exchanged for another, with one that means something else."""
    docs = {token.start for token in documentation(text)}
    for token in tokens(text):
        match token.type:
            case tokenize.NUMBER:
                yield token, "7" if token.string != "7" else "8"
            case tokenize.NAME if token.string in ("True", "False"):
                yield token, "False" if token.string == "True" else "True"
            case tokenize.NAME if not token.string[0].isupper() or len(token.string) > 4:
                yield token, token.string + "_"
            case tokenize.OP if token.string in SWAPPED:
                yield token, SWAPPED[token.string]
            case tokenize.STRING if token.start not in docs:
                yield token, token.string[:-1] + "~" + token.string[-1] if '"""' not in token.string else '"other"'


EDITS = {text: list(edits(text)) for text in SAMPLES}
DOCUMENTATION = {text: documentation(text) for text in SAMPLES}


def parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_token_that_means_something_is_seen(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(SAMPLES))
    token, new = data.draw(st.sampled_from(EDITS[text]))
    edited = put(text, token, new)
    assume(parses(edited))
    assert digest(edited) != digest(text)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_comments_blank_lines_and_documentation_are_not_seen(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(SAMPLES))
    before = digest(text)
    ends = [token for token in tokens(text) if token.type in (tokenize.NEWLINE, tokenize.NL)]
    comment = data.draw(st.text(st.characters(blacklist_characters="\r\n\f\x00", blacklist_categories=("Cs", "Cc"))))
    if ends:
        end = data.draw(st.sampled_from(ends))
        at = offset(text, end.start)
        assert digest(text[:at] + f"  # {comment}\n\n" + text[at + 1 :]) == before
    assert digest(put(text, data.draw(st.sampled_from(DOCUMENTATION[text])), repr(comment))) == before


@pytest.mark.parametrize("text", SAMPLES, ids=range(len(SAMPLES)))
def test_formatting_is_not_seen(text: str) -> None:
    assert digest(ast.unparse(ast.parse(text))) == digest(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "x = 1.0"),
        ("x = 1", "x = True"),
        ("x = ''", "x = b''"),
        ("x = []", "x = ()"),
        ("f(a, *b)", "f(a, b)"),
        ("def f(a, /): pass", "def f(a): pass"),
        ("def f(*, a): pass", "def f(a): pass"),
        ("{**a}", "{None: a}"),
        ("x: int", "x: int = None"),
        ("return_ = None", "return_ = ..."),
        ("async def f(): pass", "def f(): pass"),
        ("f'{a}'", "f'{a!r}'"),
        ("x = 'a' ''", "x = 'b'"),
        ("from . import a", "from .. import a"),
    ],
)
def test_what_looks_alike_is_told_apart(one: str, other: str) -> None:
    assert digest(one) != digest(other)


def test_a_file_that_does_not_parse_is_taken_by_its_bytes() -> None:
    assert digest("x = (") != digest("x = (  # half-written")
    assert digest("x = (") == digest("x = (")
