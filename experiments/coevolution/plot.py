"""The study's plot: sealed success of each arm's champion against the episodes spent, as an SVG file that stands alone."""

from collections.abc import Mapping, Sequence

import numpy as np

from coharness.report.markup import Markup, Node, el, join
from coharness.report.svg import Axes, label
from coharness.report.wording import compact
from experiments.coevolution.curves import Curve

WIDTH, HEIGHT, RIGHT = 860, 420, 210
NUM_POINTS = 65
COLOURS = ("#1b6ca8", "#c0392b", "#7d8a2e", "#b8860b", "#6c4f9c", "#2e8b74", "#a0527a", "#707070")
STYLE = """
svg { background: #fff; font: 12px sans-serif }
.rule { stroke: #e3e3e3 } .tick, .axis { fill: #555 }
.line { fill: none; stroke-width: 2 } .band { stroke: none; opacity: .13 } .dashed { stroke-dasharray: 5 4 }
"""


def curves_svg(curves: Mapping[str, Sequence[Curve]], chosen_at_end: Sequence[str]) -> str:
    """Mean over seeds with the span from the least to the best seed, one line an arm.

    Args:
        curves: arm -> its seeds' curves.
        chosen_at_end: arms that pick their harness at the end; they are drawn as one point there.
    """
    right = max((c.total for arm in curves.values() for c in arm), default=1.0) or 1.0
    axes = Axes.of((0.0, right), (0.0, 1.0), width=WIDTH, height=HEIGHT, right=RIGHT)
    marks: list[Node] = [el("style", Markup(STYLE)), axes.grid("charged episodes", "J", compact, lambda y: f"{y:.1f}")]
    names: list[tuple[float, str, str]] = []
    for (arm, seeds), colour in zip(curves.items(), COLOURS * (1 + len(curves) // len(COLOURS)), strict=False):
        grid = np.linspace(0.0, right, NUM_POINTS)
        values = np.array([[curve.at(x) for x in grid] for curve in seeds])  # [num_seeds, NUM_POINTS]
        mean, low, high = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
        title = f"{arm}: {mean[-1]:.3f} at the end, seeds {low[-1]:.3f} to {high[-1]:.3f}"
        if arm in chosen_at_end:
            whisker = axes.line([(right, float(low[-1])), (right, float(high[-1]))], "line")
            drawn = join([whisker, axes.dot((right, float(mean[-1])), title, "dot", 4.5)])
        else:
            points = [list(zip(grid.tolist(), row.tolist(), strict=True)) for row in (mean, low, high)]
            drawn = join([axes.band(points[1], points[2]), axes.line(points[0])])
        marks.append(el("g", el("title", title), drawn, fill=colour, stroke=colour))
        names.append((float(mean[-1]), arm, colour))
    marks += _legend(axes, names)
    body = axes.draw("Sealed success of the champion against charged episodes", *marks)
    return body.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


def _legend(axes: Axes, names: Sequence[tuple[float, str, str]]) -> list[Node]:
    """Names right of the lines' ends, at least a line's height apart, in the order of the ends."""
    marks: list[Node] = []
    y = 0.0
    for value, arm, colour in sorted(names, reverse=True):
        y = max(y + 16, axes.y(value) + 4)
        marks.append(el("g", label(WIDTH - RIGHT + 12, y, f"{value:.3f}  {arm}", "name"), fill=colour))
    return marks
