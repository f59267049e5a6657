from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coharness.report.markup import Markup, el, join, text
from coharness.report.svg import Axes, Scale, nice_ticks

printable = st.text(st.characters(exclude_categories=("Cc", "Cs", "Cf")))


class Reader(HTMLParser):
    """What a browser would find in a text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.content = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= dict(attrs)

    def handle_data(self, data: str) -> None:
        self.content += data


def read(markup: Markup) -> Reader:
    reader = Reader()
    reader.feed(markup)
    reader.close()
    return reader


@given(printable, printable)
def test_plain_text_never_becomes_a_tag_and_comes_back_whole(content: str, attribute: str) -> None:
    found = read(el("p", content, title=attribute))
    assert found.tags == ["p"]
    assert found.content == content
    assert found.attributes == {"title": attribute}


@pytest.mark.parametrize("bad", ["\x00", "\x1b[31m", "\u202e", "\ud800", "\u200f"])
def test_characters_that_could_mislead_are_shown_as_replaced(bad: str) -> None:
    shown = text(f"a{bad}b")
    assert bad[0] not in shown
    assert "\ufffd" in shown
    shown.encode("utf-8")


def test_markup_is_not_escaped_twice_and_none_leaves_nothing() -> None:
    inner = el("b", "<")
    assert join([inner, None, "&", 3]) == "<b>&lt;</b>&amp;3"
    assert el("i", hidden=True, id=None, open=False, data_x=1.0) == '<i hidden data-x="1"></i>'


def test_a_void_element_holds_nothing() -> None:
    assert el("br") == "<br>"
    with pytest.raises(ValueError, match="holds nothing"):
        el("br", "x")


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(2, 10))
def test_ticks_are_round_evenly_spaced_and_inside(low: float, width: float, count: int) -> None:
    high = low + width
    ticks = nice_ticks(low, high, count)
    assert len(ticks) <= count + 1
    assert all(low - 1e-6 * width <= tick <= high + 1e-6 * width for tick in ticks)
    steps = {round((b - a) / width, 6) for a, b in pairwise(ticks)}
    assert len(steps) <= 1


def test_ticks_of_a_unit_range_are_the_usual_ones() -> None:
    assert nice_ticks(0.0, 1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert nice_ticks(3.0, 3.0) == [3.0]


@given(st.floats(-100, 100), st.floats(0.1, 100))
def test_a_scale_maps_the_ends_of_its_domain_to_the_ends_of_its_pixels(low: float, width: float) -> None:
    scale = Scale(domain=(low, low + width), pixels=(10.0, 110.0))
    assert scale(low) == pytest.approx(10.0)
    assert scale(low + width) == pytest.approx(110.0)


def test_a_chart_is_well_formed_xml_with_its_titles() -> None:
    axes = Axes.of((0.0, 10.0), (0.0, 1.0))
    marks = [
        axes.grid("x < y", "share", str, str),
        axes.line([(0.0, 0.1), (10.0, 0.9)]),
        axes.band([(0.0, 0.0)], [(0.0, 1.0)]),
        axes.dot((5.0, 0.5), "half & half"),
        axes.bar((1.0, 2.0), 0.3, "bar"),
        axes.mark_x(4.0, "<event>"),
    ]
    root = ElementTree.fromstring(axes.draw("a chart", *marks))
    assert [title.text for title in root.iter("title")] == ["half & half", "bar", "<event>"]
