"""Owns the task-level heat map: for each family a small panel, time to the right, levels upward, success as shade.

Drawn from the TRACK pool. Neighbouring readings are pooled until a panel has at most `MAX_COLUMNS`, since one reading holds
few tasks a cell; the counts behind each shade stand in its title.
"""

from collections.abc import Sequence
from itertools import pairwise

from coharness.report.markup import Markup, Node, el
from coharness.report.svg import drawing, label
from coharness.report.timeline import Tally, TrackReading
from coharness.report.wording import compact, percent

MAX_COLUMNS = 12
_WIDTH, _LEFT, _TOP, _ROW = 300.0, 28.0, 8.0, 20.0


def heatmaps(readings: Sequence[TrackReading]) -> Markup:
    """All panels, families in alphabetical order; a sentence where nothing was read."""
    families = sorted({family for reading in readings for family, _ in reading.cells})
    if not families:
        return el("p", "The TRACK pool was not read in this run.", class_="empty")
    columns = _pooled(readings)
    num_levels = max(level for reading in readings for _, level in reading.cells)
    panels = [_panel(family, num_levels, columns) for family in families]
    return el("div", el("div", *panels, class_="panels"), _legend())


def _pooled(readings: Sequence[TrackReading]) -> list[Sequence[TrackReading]]:
    """The readings in at most `MAX_COLUMNS` runs of nearly equal length."""
    num_columns = min(MAX_COLUMNS, len(readings))
    edges = [round(i * len(readings) / num_columns) for i in range(num_columns + 1)]
    return [readings[a:b] for a, b in pairwise(edges)]


def _panel(family: str, num_levels: int, columns: Sequence[Sequence[TrackReading]]) -> Markup:
    width = (_WIDTH - _LEFT - 4) / len(columns)
    bottom = _TOP + num_levels * _ROW
    marks: list[Node] = []
    for level in range(1, num_levels + 1):
        y = bottom - level * _ROW
        marks.append(label(_LEFT - 7, y + _ROW / 2 + 4, level, anchor="end"))
        for i, readings in enumerate(columns):
            tally = sum((reading.cells.get((family, level), Tally()) for reading in readings), Tally())
            marks.append(_cell(_LEFT + i * width, y, width, tally, f"{family}, level {level}, {_when(readings)}"))
    marks.append(label(_LEFT, bottom + 15, compact(columns[0][0].at.rollouts)))
    marks.append(label(_WIDTH - 4, bottom + 15, compact(columns[-1][-1].at.rollouts), anchor="end"))
    chart = drawing(_WIDTH, bottom + 20, f"Success of the champion in {family} by level over the run", *marks)
    return el("figure", el("figcaption", family), chart, class_="panel")


def _cell(x: float, y: float, width: float, tally: Tally, where: str) -> Markup:
    if tally.num_tasks == 0:
        title = el("title", f"{where}: no task")
        return el("rect", title, x=x, y=y, width=width - 1.5, height=_ROW - 1.5, class_="cell none")
    share = tally.num_correct / tally.num_tasks
    title = el("title", f"{where}: {tally.num_correct} of {tally.num_tasks} solved ({percent(share, 0)})")
    ground = el("rect", x=x, y=y, width=width - 1.5, height=_ROW - 1.5, class_="cell ground")
    shade = el("rect", title, x=x, y=y, width=width - 1.5, height=_ROW - 1.5, class_="cell heat", fill_opacity=share)
    return el("g", ground, shade)


def _when(readings: Sequence[TrackReading]) -> str:
    first, last = readings[0].at.rollouts, readings[-1].at.rollouts
    return f"{compact(first)} rollouts" if first == last else f"{compact(first)} to {compact(last)} rollouts"


def _legend() -> Markup:
    steps = [
        el("g", el("rect", x=34 + i * 22, y=4, width=21, height=12, class_="cell ground"),
           el("rect", x=34 + i * 22, y=4, width=21, height=12, class_="cell heat", fill_opacity=i / 4))
        for i in range(5)
    ]  # fmt: skip
    ends = (label(26, 14, "0 %", anchor="end"), label(150, 14, "100 % solved"))
    return drawing(240, 20, "Shade from 0 to 100 percent solved", *steps, *ends, class_="chart legend")
