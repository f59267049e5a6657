"""Owns the tables of sealed readings: four cells, their differences, votes, families, milestones."""

from collections.abc import Sequence

from coharness.report.curves import whisker
from coharness.report.markup import Markup, Node
from coharness.report.sealed_view import BASE, CELLS, CHAMPION, HARNESS_ONLY, VOTES, WEIGHTS_ONLY, Arm, Sealed
from coharness.report.tables import numbers, table, words
from coharness.report.wording import count, duration, percent, signed, span
from coharness.stats.interval import Interval

_ARM_COLUMNS = (
    words(""), words("serving", "code"), numbers("solved"), numbers("95\u202f% interval"), words("0 to 100\u202f%"),
    numbers("tokens a task"),
)  # fmt: skip


def _arm_row(sealed: Sealed, arm: Arm, name: str, interval: Interval, class_: str = "") -> Sequence[Node]:
    return (
        name,
        arm.serving,
        percent(interval.value),
        span(interval),
        whisker(interval, (0.0, 1.0), class_),
        f"{arm.tokens.mean():.1f}",
    )


def cells_table(sealed: Sealed) -> Markup:
    """The four cells of a swap at inference."""
    rows = []
    for name, told in CELLS.items():
        arm = sealed.arms[name]
        rows.append(_arm_row(sealed, arm, told, sealed.success(arm), "second" if name == CHAMPION else ""))
    return table(_ARM_COLUMNS, rows)


def effects_table(sealed: Sealed) -> Markup:
    """Differences between the cells, and their interaction, in percentage points."""
    effects = (
        ("champion − base", sealed.difference(CHAMPION, BASE)),
        ("weights, in the initial harness", sealed.difference(WEIGHTS_ONLY, BASE)),
        ("harness, on the untouched base", sealed.difference(HARNESS_ONLY, BASE)),
        ("interaction", sealed.interaction()),
    )
    columns = (words("difference"), numbers("points"), numbers("95\u202f% interval"), words("−100 to +100"))
    rows = [
        (name, signed(100 * i.value), f"{signed(100 * i.low)} to {signed(100 * i.high)}", whisker(i, (-1.0, 1.0)))
        for name, i in effects
    ]
    return table(columns, rows)


def votes_table(sealed: Sealed) -> Markup:
    """Majority votes of the base, each followed by its oracle bound, and the champion below."""
    rows: list[Sequence[Node]] = []
    for arm in sealed.votes():
        name = f"majority vote of {arm.k} samples of the base: {VOTES[arm.name]}"
        rows.append(_arm_row(sealed, arm, name, sealed.success(arm)))
        oracle = sealed.oracle(arm)
        if oracle is not None:
            name = f"oracle bound, no control: any of the {arm.k} is right"
            rows.append(_arm_row(sealed, arm, name, oracle, "faint"))
    champion = sealed.arms[CHAMPION]
    rows.append(_arm_row(sealed, champion, "the champion, one greedy answer", sealed.success(champion), "second"))
    return table(_ARM_COLUMNS, rows)


def families_table(sealed: Sealed) -> Markup:
    """Base and champion by family."""
    base, champion = sealed.by_family(sealed.arms[BASE]), sealed.by_family(sealed.arms[CHAMPION])
    columns = (words("family"), numbers("tasks"), numbers("base"), numbers("champion"), numbers("points"))
    rows = []
    for family, (solved, total) in champion.items():
        before = base[family][0] / total
        after = solved / total
        rows.append((family, count(total), percent(before), percent(after), signed(100 * (after - before))))
    return table(columns, rows)


def milestones_table(sealed: Sealed) -> Markup:
    """The champion of fixed shares of the budget, measured after the run."""
    columns = (
        numbers("rollouts"), words("serving", "code"), numbers("solved"), numbers("95\u202f% interval"), numbers("tokens so far"),
        numbers("CPU so far"),
    )  # fmt: skip
    rows = []
    for m in sealed.milestones:
        interval = sealed.success(m.arm)
        rows.append(
            (
                count(m.rollouts),
                m.arm.serving,
                percent(interval.value),
                span(interval),
                count(m.tokens),
                duration(m.cpu_s),
            )
        )
    return table(columns, rows)
