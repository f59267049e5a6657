"""Tables and figures as text: Markdown that also reads well in a terminal."""

from collections.abc import Sequence

from coharness.studies.contract import Figure, Table
from coharness.studies.results import Results

Value = str | int | float | None


def table_text(table: Table) -> str:
    """A table with aligned columns, its title above it and its note below it."""
    body = [[_cell(value) for value in row] for row in table.rows]
    numeric = [all(not isinstance(row[i], str) for row in table.rows) for i in range(len(table.columns))]
    widths = [max(3, *(len(row[i]) for row in [list(table.columns), *body])) for i in range(len(table.columns))]

    def line(row: Sequence[str]) -> str:
        cells = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ]
        return "| " + " | ".join(cells) + " |"

    rule = [("-" * (w - 1) + ":") if right else "-" * w for w, right in zip(widths, numeric, strict=True)]
    lines = [f"**{table.title}**", "", line(table.columns), line(rule), *map(line, body)]
    return "\n".join([*lines, "", table.note] if table.note else lines)


def figures_table(figures: Sequence[Figure]) -> Table:
    """All figures, a row each."""
    return Table(
        title="Figures",
        columns=("figure", "value", "low", "high", "unit", "seeds", "note"),
        rows=tuple((f.name, f.value, f.low, f.high, f.unit, len(f.seeds), f.note) for f in figures),
    )


def results_text(results: Results) -> str:
    """Everything that a run of a study prints at its end."""
    budget = ", ".join(f"{value:,.0f} {name}" for name, value in results.budget.items())
    kind = "a smoke, which shows that it runs and nothing else" if results.quick else "a full run"
    head = (
        f"{results.study}: {kind}; {results.num_cells} cells, {len(results.seeds)} seeds, {budget or 'no budget'}, "
        f"code {results.code_digest[:12]}"
    )
    tables = results.tables if results.figures == () else (*results.tables, figures_table(results.figures))
    return "\n\n".join([head, *map(table_text, tables)])


def _cell(value: Value) -> str:
    match value:
        case None:
            return "–"
        case float():
            return f"{value:.4g}" if abs(value) >= 1000 or 0 < abs(value) < 0.001 else f"{value:.3f}"
        case int():
            return f"{value:,}"
        case _:
            return value.replace("|", "\\|")
