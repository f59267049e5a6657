"""Owns the charts of a run over time: learning curves on TRACK and sealed milestones, throughput, staleness.

Intervals of TRACK points are score intervals (Wilson, 1927) of one reading; those of sealed milestones come from the
stratified bootstrap of `sealed_view`. Nothing here decides anything.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from coharness.report.markup import Markup, Node, el
from coharness.report.sealed_view import Sealed
from coharness.report.svg import Axes, Point, nice_ticks
from coharness.report.timeline import ChampionSpan, History, TrackReading
from coharness.report.wording import compact, count, duration, percent, time_unit
from coharness.stats.interval import Interval
from coharness.stats.proportions import wilson


def learning_curves(history: History, sealed: Sealed | None) -> Markup:
    """Success on TRACK against rollouts, with sealed milestones where they were measured, and against running time."""
    if not history.track:
        return el("p", "The TRACK pool was not read in this run.", class_="empty")
    by_rollouts = _curve(
        history,
        [(span.start.rollouts, span) for span in history.champions[1:]],
        x_of=lambda reading: float(reading.at.rollouts),
        x_label="charged rollouts",
        x_format=compact,
        sealed=sealed,
    )
    unit_s, unit = time_unit(history.end.elapsed_s)
    by_time = _curve(
        history,
        [(span.start.elapsed_s / unit_s, span) for span in history.champions[1:]],
        x_of=lambda reading: reading.at.elapsed_s / unit_s,
        x_label=f"running time, {unit}",
        x_format=compact,
        sealed=None,
    )
    return el("div", el("figure", by_rollouts), el("figure", by_time), class_="pair")


def track_interval(reading: TrackReading) -> Interval:
    """Success of one reading with its 95 % score interval."""
    return wilson(reading.total.num_correct, reading.total.num_tasks)


def _curve(
    history: History, promotions: Sequence[tuple[float, ChampionSpan]], *,
    x_of: Callable[[TrackReading], float], x_label: str, x_format: Callable[[float], str], sealed: Sealed | None,
) -> Markup:  # fmt: skip
    readings = history.track
    xs = [x_of(reading) for reading in readings]
    others = [(x_of(r), r) for r in history.member_track]
    intervals = [track_interval(reading) for reading in readings]
    milestones = [(float(m.rollouts), m, sealed.success(m.arm)) for m in sealed.milestones] if sealed else []
    right = max(
        [*xs, *(x for x, _, _ in milestones), *(x for x, _ in promotions), *(x for x, _ in others)], default=0.0
    )
    axes = Axes.of((0.0, right or 1.0), (0.0, 1.0))
    marks: list[Node] = [axes.grid(x_label, "solved", x_format, lambda y: percent(y, 0))]
    marks += [axes.mark_x(x, f"{span.cause}: {span.serving}", f"event {span.cause}") for x, span in promotions]
    for x, reading in others:
        interval = track_interval(reading)
        marks.append(axes.dot((x, interval.value), _track_title(reading, interval), "dot other", 2.2))
    if len(xs) > 1:
        lows = [(x, i.low) for x, i in zip(xs, intervals, strict=True)]
        highs = [(x, i.high) for x, i in zip(xs, intervals, strict=True)]
        marks.append(axes.band(lows, highs))
        marks.append(axes.line([(x, i.value) for x, i in zip(xs, intervals, strict=True)]))
    for x, reading, interval in zip(xs, readings, intervals, strict=True):
        marks.append(axes.dot((x, interval.value), _track_title(reading, interval)))
    for x, milestone, interval in milestones:
        marks.append(axes.line([(x, interval.low), (x, interval.high)], "whisker second"))
        title = f"sealed, {milestone.arm.serving}, {count(x)} rollouts: {_range(interval)}"
        marks.append(axes.dot((x, interval.value), title, "dot second", 4.5))
    return axes.draw(f"Share of tasks solved against {x_label}", *marks)


def _track_title(reading: TrackReading, interval: Interval) -> str:
    where = f"{count(reading.at.rollouts)} rollouts, {duration(reading.at.elapsed_s)}"
    tokens = reading.num_output_tokens / reading.total.num_tasks
    return (
        f"{reading.serving}, {where}: {_range(interval)}, {reading.total.num_tasks} tasks, {tokens:.1f} tokens a task"
    )


def _range(interval: Interval) -> str:
    return f"{percent(interval.value)} ({percent(interval.low)} to {percent(interval.high)})"


def throughput_chart(history: History) -> Markup:
    """Episodes a second in windows of ten seconds, all purposes."""
    windows = [w for w in history.throughput if w.width_s > 0]
    if not windows:
        return el("p", "No work ended in this run.", class_="empty")
    rates = [(w, w.num_episodes / w.width_s) for w in windows]
    unit_s, unit = time_unit(history.end.elapsed_s)
    right = max(w.start_s + w.width_s for w in windows) / unit_s
    axes = Axes.of((0.0, right), (0.0, _top(max(rate for _, rate in rates))), height=210)
    marks: list[Node] = [axes.grid(f"running time, {unit}", "episodes per second", compact, compact, y_count=4)]
    for window, rate in rates:
        x = (window.start_s / unit_s, (window.start_s + window.width_s) / unit_s)
        title = f"{duration(window.start_s)}: {rate:.0f} episodes per second, {count(window.num_output_tokens)} tokens"
        marks.append(axes.bar(x, rate, title))
    return axes.draw("Episodes per second over the run", *marks)


def staleness_chart(history: History) -> Markup:
    """How many versions behind the trained groups were, as a histogram."""
    behind = Counter(steps for update in history.staleness for steps in update.versions_behind)
    if not behind:
        return el("p", "Nothing was trained in this run.", class_="empty")
    total = behind.total()
    last = max(*behind, int(history.config["training"]["max_staleness"]))
    axes = Axes.of((-0.5, last + 0.5), (0.0, _top(max(behind.values()) / total)), height=210)
    marks: list[Node] = [
        axes.grid("versions behind when trained on", "share of groups", _whole, lambda y: percent(y, 0), x_count=last + 1,
                  y_count=4)
    ]  # fmt: skip
    for steps in range(min(0, min(behind)), last + 1):
        share = behind[steps] / total
        title = f"{steps} versions behind: {count(behind[steps])} groups ({percent(share)})"
        marks.append(axes.bar((steps - 0.36, steps + 0.36), share, title))
    return axes.draw("Staleness of trained groups", *marks)


def _whole(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else ""


def _top(highest: float) -> float:
    """A round end of an axis that starts at 0."""
    if highest <= 0:
        return 1.0
    step = nice_ticks(0.0, highest, 4)[1] if len(nice_ticks(0.0, highest, 4)) > 1 else highest
    return step * -(-highest // step)


def whisker(interval: Interval, domain: tuple[float, float], class_: str = "") -> Markup:
    """An interval as a small horizontal bar with its estimate, for a table's cell; a rule marks zero where inside."""
    axes = Axes.of(domain, (0.0, 1.0), width=220, height=22, left=6, right=6, top=0, bottom=0)
    marks: list[Node] = [axes.line([(domain[0], 0.5), (domain[1], 0.5)], "rule")]
    if domain[0] < 0 < domain[1]:
        marks.append(axes.line([(0.0, 0.1), (0.0, 0.9)], "zero"))
    marks.append(
        axes.line([(_inside(interval.low, domain), 0.5), (_inside(interval.high, domain), 0.5)], f"whisker {class_}")
    )
    marks.append(axes.dot((_inside(interval.value, domain), 0.5), _range(interval), f"dot {class_}", 4.5))
    return axes.draw(_range(interval), *marks, class_="whiskers")


def _inside(value: float, domain: tuple[float, float]) -> float:
    return min(max(value, domain[0]), domain[1])


def member_curves(history: History) -> Markup | None:
    """Training metrics of the members against their updates, one small chart a metric; None where there is none."""
    series: dict[str, dict[str, list[Point]]] = {}
    for policy, life in history.policies.items():
        for version in life.versions:
            for name, value in version.metrics.items():
                series.setdefault(name, {}).setdefault(policy, []).append((float(version.at.rollouts), value))
    charts = [_metric(name, lines) for name, lines in sorted(series.items()) if any(len(x) > 1 for x in lines.values())]
    return el("div", *charts, class_="panels") if charts else None


def _metric(name: str, lines: dict[str, list[Point]]) -> Markup:
    points = [point for line in lines.values() for point in line]
    low, high = min(y for _, y in points), max(y for _, y in points)
    pad = 0.05 * (high - low) or max(abs(high) * 0.05, 1e-9)
    axes = Axes.of(
        (min(x for x, _ in points), max(x for x, _ in points)), (low - pad, high + pad), width=320, height=170, left=52
    )
    marks: list[Node] = [axes.grid("rollouts", name, compact, compact, x_count=3, y_count=3)]
    for policy, line in lines.items():
        marks.append(el("g", el("title", policy), axes.line(line, "line thin")))
    return el("figure", axes.draw(f"{name} of each member", *marks), class_="panel")
