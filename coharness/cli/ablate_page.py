"""Owns the page of an ablation: what may be said, the contrasts drawn with their intervals, all tables; one file, no script."""

from collections.abc import Sequence
from datetime import datetime

from coharness.report.html import document
from coharness.report.markup import Markup, Node, el
from coharness.report.svg import Axes, Scale, drawing, label, nice_ticks
from coharness.report.tables import numbers, table, words
from coharness.report.wording import count, moment, signed
from coharness.studies.ablation_plan import ContrastKind
from coharness.studies.ablation_summary import SAID_TITLE
from coharness.studies.contract import Figure, Table
from coharness.studies.results import Results

ROW = 26.0
"""Height of one contrast in the drawing."""
LEFT = 250.0
"""Room for the contrasts' names."""


def render(results: Results, question: str) -> str:
    """The page as text."""
    said = [t for t in results.tables if t.title == SAID_TITLE]
    others = [t for t in results.tables if t.title != SAID_TITLE]
    contrasts = [f for f in results.figures if f.name.partition("/")[0] in [kind.value for kind in ContrastKind]]
    sections = [*map(_section, said), _drawn(contrasts), *map(_section, others)]
    return document(
        f"coharness ablation {results.study}", _header(results, question), el("main", *sections), _footer(results)
    )


def _header(results: Results, question: str) -> Markup:
    facts = (
        ("cells", count(results.num_cells)),
        ("seeds", count(len(results.seeds))),
        *((f"{name} an arm", count(value)) for name, value in results.budget.items()),
        ("written", moment(datetime.fromisoformat(results.created).timestamp())),
    )
    smoke = "A smoke: it shows that the cells run, and nothing else." if results.quick else None
    return el(
        "header",
        el("div", "coharness ablation", class_="kind"),
        el("h1", results.study),
        el("p", question),
        el("p", smoke, class_="alarm") if smoke else None,
        el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in facts), class_="facts"),
        class_="page",
    )


def _section(of: Table) -> Markup:
    columns = [
        words(name) if any(isinstance(row[i], str) for row in of.rows) else numbers(name)
        for i, name in enumerate(of.columns)
    ]
    rows = [[_cell(value) for value in row] for row in of.rows]
    note = el("p", of.note, class_="note") if of.note else None
    return el("section", el("h2", of.title), table(columns, rows), note)


def _cell(value: str | int | float | None) -> Node:
    match value:
        case None:
            return "–"
        case float():
            return f"{value:.4f}".replace("-", "−")
        case int():
            return count(value)
        case _:
            return value


def _drawn(contrasts: Sequence[Figure]) -> Markup | None:
    """Each contrast with its interval on one axis; 0 is the line that an interval must not touch."""
    if not contrasts:
        return None
    ends = [e for f in contrasts for e in (f.value, f.low, f.high) if e is not None]
    low, high = min(0.0, *ends), max(0.0, *ends)
    room = 0.05 * (high - low) or 0.01
    height = ROW * len(contrasts) + 54
    axes = Axes(
        width=860,
        height=height,
        x=Scale(domain=(low - room, high + room), pixels=(LEFT, 844)),
        y=Scale(domain=(float(len(contrasts)), 0.0), pixels=(height - 44, 10)),
    )
    marks: list[Node] = [axes.mark_x(0.0, "no difference")]
    for value in nice_ticks(low, high, 6):
        marks.append(label(axes.x(value), height - 24, signed(value, 3), anchor="middle"))
    marks.append(label((LEFT + 844) / 2, height - 6, "difference in J", "axis", "middle"))
    for place, figure in enumerate(contrasts):
        at = place + 0.5
        name = figure.name.partition("/")[2]
        title = f"{name}: {signed(figure.value, 3)}"
        marks.append(label(LEFT - 12, axes.y(at) + 4, name, "tick", "end"))
        if figure.low is not None and figure.high is not None:
            title += f" ({signed(figure.low, 3)} to {signed(figure.high, 3)})"
            marks.append(axes.line([(figure.low, at), (figure.high, at)]))
        marks.append(axes.dot((figure.value, at), title))
    note = el("p", contrasts[0].note.partition("; ")[2] + ".", class_="note")
    return el("section", el("h2", "Differences"), drawing(860, height, "differences with intervals", *marks), note)


def _footer(results: Results) -> Markup:
    return el("footer", f"{results.command} · code {results.code_digest[:12]}", class_="page")
