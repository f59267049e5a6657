"""The study's plot: success on TRACK tasks against training episodes, one line an objective, as an SVG file that stands alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coharness.report.markup import Markup, Node, el, join
from coharness.report.svg import Axes, Point, label
from coharness.report.wording import compact

WIDTH, HEIGHT, RIGHT = 860, 480, 190
LINE_HEIGHT = 16
STYLE = """
svg { background: #fff; font: 12px sans-serif }
.rule { stroke: #e3e3e3 } .tick, .axis { fill: #555 }
.line { fill: none; stroke-width: 2 } .band { stroke: none; opacity: .1 }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One arm."""

    name: str
    curves: tuple[tuple[Point, ...], ...]
    "(episodes, success) of each seed, read at the same places."


def lines_svg(lines: Sequence[Line]) -> str:
    """Mean over seeds, with the span from the least to the best seed."""
    right = max((curve[-1][0] for line in lines for curve in line.curves), default=1.0) or 1.0
    axes = Axes.of((0.0, right), (0.0, 1.0), width=WIDTH, height=HEIGHT, right=RIGHT)
    marks: list[Node] = [
        el("style", Markup(STYLE)),
        axes.grid("training episodes", "success", compact, lambda y: f"{y:.1f}"),
    ]
    ends: list[tuple[float, str, str]] = []
    for number, line in enumerate(lines):
        # Hues a golden angle apart: neighbours in the legend never look alike, however many there are.
        colour = f"hsl({round(number * 137.5) % 360} 65% 40%)"
        at = [x for x, _ in line.curves[0]]
        values = np.array([[y for _, y in curve] for curve in line.curves])  # [num_seeds, num_points]
        mean, low, high = (
            list(zip(at, row.tolist(), strict=True)) for row in (values.mean(0), values.min(0), values.max(0))
        )
        title = f"{line.name}: {mean[-1][1]:.3f} at the end, seeds {low[-1][1]:.3f} to {high[-1][1]:.3f}"
        drawn = join([axes.band(low, high), axes.line(mean)])
        marks.append(el("g", el("title", title), drawn, fill=colour, stroke=colour))
        ends.append((mean[-1][1], line.name, colour))
    y = 0.0
    for value, name, colour in sorted(ends, reverse=True):
        y = max(y + LINE_HEIGHT, axes.y(value) + 4)
        marks.append(el("g", label(WIDTH - RIGHT + 12, y, f"{value:.3f}  {name}", "name"), fill=colour))
    body = axes.draw("Success on TRACK tasks against training episodes", *marks)
    return body.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"
