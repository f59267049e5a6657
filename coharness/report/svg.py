"""Owns charts as SVG text: a scale, an axes frame, and the marks that are drawn in it. No script, no font, no colour.

Colours come from the page's style sheet by class, so the same chart is readable on light, dark and paper. Coordinates are
in the units of the viewBox; a chart grows and shrinks with the page. Text of a mark stands in a `<title>`, which
browsers show on hover and screen readers read.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coharness.report.markup import Markup, Node, el

Point = tuple[float, float]


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers from `low` to `high`, both included where they are round themselves.

    Steps are 1, 2 or 5 times a power of ten (Heckbert, 1990). A range of no width gives its one number.
    """
    if not high > low:
        return [low]
    raw = (high - low) / max(1, count)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A linear map from `domain` to `pixels`; a domain of no width maps to the first pixel."""

    domain: tuple[float, float]
    pixels: tuple[float, float]

    def __call__(self, value: float) -> float:
        """Pixels of `value`."""
        low, high = self.domain
        share = (value - low) / (high - low) if high > low else 0.0
        return self.pixels[0] + share * (self.pixels[1] - self.pixels[0])


def drawing(width: float, height: float, label: str, *children: Node, class_: str = "chart") -> Markup:
    """An `<svg>` with a name for screen readers."""
    box = f"0 0 {width:g} {height:g}"
    return el("svg", *children, viewBox=box, role="img", aria_label=label, class_=class_, width=width, height=height)


def path(points: Sequence[Point], class_: str, *, closed: bool = False) -> Markup:
    """Straight lines through `points`."""
    steps = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return el("path", d=f"M{steps}{'Z' if closed else ''}", class_=class_)


def label(x: float, y: float, content: Node, class_: str = "tick", anchor: str = "start") -> Markup:
    """Text whose `anchor` (start, middle, end) is at (x, y)."""
    return el("text", content, x=x, y=y, class_=class_, text_anchor=anchor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """A plotting frame with its two scales; all marks take values of the domain."""

    width: float
    height: float
    x: Scale
    y: Scale

    @classmethod
    def of(
        cls, x: tuple[float, float], y: tuple[float, float], *, width: float = 520, height: float = 250, left: float = 48,
        right: float = 16, top: float = 14, bottom: float = 40,
    ) -> "Axes":  # fmt: skip
        """Axes over the domains `x` and `y` in a drawing of `width` by `height`, inside margins."""
        return cls(
            width=width,
            height=height,
            x=Scale(domain=x, pixels=(left, width - right)),
            y=Scale(domain=y, pixels=(height - bottom, top)),
        )

    def grid(
        self, x_label: str, y_label: str, x_format: Callable[[float], str], y_format: Callable[[float], str],
        *, x_count: int = 6, y_count: int = 5,
    ) -> Markup:  # fmt: skip
        """Horizontal rules, tick labels on both axes, and what the axes mean."""
        marks: list[Node] = []
        (left, right), (bottom, top) = self.x.pixels, self.y.pixels
        for value in nice_ticks(*self.y.domain, y_count):
            y = self.y(value)
            marks.append(el("line", x1=left, x2=right, y1=y, y2=y, class_="rule"))
            marks.append(label(left - 8, y + 4, y_format(value), anchor="end"))
        for value in nice_ticks(*self.x.domain, x_count):
            marks.append(label(self.x(value), bottom + 17, x_format(value), anchor="middle"))
        marks.append(label((left + right) / 2, bottom + 34, x_label, "axis", "middle"))
        marks.append(label(left, top - 3, y_label, "axis"))
        return el("g", *marks)

    def at(self, points: Sequence[Point]) -> list[Point]:
        """Pixels of `points`."""
        return [(self.x(x), self.y(y)) for x, y in points]

    def line(self, points: Sequence[Point], class_: str = "line") -> Markup:
        """Straight lines through `points`."""
        return path(self.at(points), class_)

    def band(self, lows: Sequence[Point], highs: Sequence[Point], class_: str = "band") -> Markup:
        """The area between two lines over the same x."""
        return path([*self.at(lows), *reversed(self.at(highs))], class_, closed=True)

    def dot(self, point: Point, title: str, class_: str = "dot", radius: float = 3.5) -> Markup:
        """A point that says `title` on hover."""
        x, y = self.x(point[0]), self.y(point[1])
        return el("circle", el("title", title), cx=x, cy=y, r=radius, class_=class_)

    def bar(self, x: tuple[float, float], height: float, title: str, class_: str = "bar") -> Markup:
        """A bar from the bottom of the domain up to `height`."""
        x1, x2, y = self.x(x[0]), self.x(x[1]), self.y(height)
        base = self.y(self.y.domain[0])
        return el("rect", el("title", title), x=x1, y=y, width=max(0.5, x2 - x1 - 1), height=base - y, class_=class_)

    def mark_x(self, value: float, title: str, class_: str = "event") -> Markup:
        """A vertical line at `value` that says `title` on hover."""
        x = self.x(value)
        line = el("line", x1=x, x2=x, y1=self.y.pixels[0], y2=self.y.pixels[1], class_=class_)
        return el("g", el("title", title), line)

    def draw(self, name: str, *marks: Node, class_: str = "chart") -> Markup:
        """The drawing with these marks."""
        return drawing(self.width, self.height, name, *marks, class_=class_)
