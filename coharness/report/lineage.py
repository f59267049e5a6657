"""Owns the picture of both populations: time to the right, a lane a place, births as curves from parent to child.

Upper lanes are places of policies: a child by clone or merge goes on in the lane of the member it replaced; a merge that
lost its race ends in the lane below them. Lower lanes are places of harnesses, with accepted edits as diamonds, moves of
the training levels as ticks and tested edits that were not accepted as small rings. The champion runs as a broad band
through its policy's and its harness's lane. All words stand in titles, which show on hover.
"""

from collections.abc import Iterator
from itertools import groupby

from coharness.records.proposals import ProposalKind, VerdictKind
from coharness.report.markup import Markup, Node, el
from coharness.report.svg import Scale, drawing, label, nice_ticks, path
from coharness.report.timeline import ChampionSpan, HarnessSpan, History, Moment, PolicyLife
from coharness.report.wording import change, compact, duration, time_unit

LEVELS_OPERATOR = "levels"
"""Operator of a genome that only moved the training levels of its slot."""
_WIDTH, _LEFT, _RIGHT, _LANE, _TOP = 960.0, 86.0, 18.0, 34.0, 26.0


def lineage(history: History) -> Markup:
    """The picture; a sentence where no population was founded."""
    if not history.policies and not history.harness_spans:
        return el("p", "The run ended before its populations were founded.", class_="empty")
    return _Picture(history).draw()


class _Picture:
    """Lays the lanes out once and draws each kind of mark from the history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._x = Scale(domain=(0.0, max(history.end.elapsed_s, 1e-9)), pixels=(_LEFT, _WIDTH - _RIGHT))
        places = sorted({life.slot for life in history.policies.values() if life.slot is not None})
        self._policy_y = {slot: _TOP + 12 + i * _LANE for i, slot in enumerate(places)}
        has_losers = any(life.slot is None for life in history.policies.values())
        self._loser_y = _TOP + 12 + len(places) * _LANE
        gap = self._loser_y + (_LANE if has_losers else 0) + 30
        slots = sorted({span.slot for span in history.harness_spans})
        self._harness_title_y = gap - 18
        self._harness_y = {slot: gap + 6 + i * _LANE for i, slot in enumerate(slots)}
        self._bottom = gap + len(slots) * _LANE
        self._has_losers = has_losers

    def draw(self) -> Markup:
        marks: list[Node] = [*self._frame(), *self._champion_bands()]
        for life in self._history.policies.values():
            marks += self._births(life)
        for life in self._history.policies.values():
            marks += self._life(life)
        for _, spans in groupby(sorted(self._history.harness_spans, key=_slot), key=_slot):
            marks += self._harness_lane(list(spans))
        marks += self._refused()
        name = "Policies and harnesses of the run over time"
        return drawing(_WIDTH, self._bottom + 40, name, *marks, class_="chart lineage")

    def _at(self, moment: Moment | None) -> float:
        return self._x((moment or self._history.end).elapsed_s)

    def _frame(self) -> Iterator[Node]:
        yield label(4, _TOP - 8, "policies", "axis")
        yield label(4, self._harness_title_y, "harnesses", "axis")
        unit_s, unit = time_unit(self._x.domain[1])
        for tick in nice_ticks(0.0, self._x.domain[1] / unit_s, 8):
            x = self._x(tick * unit_s)
            yield el("line", x1=x, x2=x, y1=_TOP, y2=self._bottom, class_="rule")
            yield label(x, self._bottom + 16, compact(tick), anchor="middle")
        yield label((_LEFT + _WIDTH) / 2, self._bottom + 33, f"running time, {unit}", "axis", "middle")
        for slot, y in self._policy_y.items():
            yield label(_LEFT - 12, y + 4, f"place {slot + 1}", anchor="end")
        if self._has_losers:
            yield label(_LEFT - 12, self._loser_y + 4, "lost merges", anchor="end")
        for slot, y in self._harness_y.items():
            yield label(_LEFT - 12, y + 4, f"place {slot + 1}", anchor="end")

    def _champion_bands(self) -> Iterator[Node]:
        for span in self._history.champions:
            y = self._lane_of(span)
            if y is not None:
                yield self._band(
                    span, y, f"champion from {duration(span.start.elapsed_s)}: {span.serving} ({span.cause})"
                )
            for slot, start, end in self._held(span):
                yield self._bar(start, end, self._harness_y[slot], f"champion's harness {span.serving.harness}")

    def _held(self, champion: ChampionSpan) -> Iterator[tuple[int, float, float]]:
        """Slot, start and end of each stay of the champion's harness, moves of its training levels included."""
        for _, group in groupby(sorted(self._history.harness_spans, key=_slot), key=_slot):
            stay: tuple[int, float, float] | None = None
            holds = False
            for held in group:
                holds = held.harness == champion.serving.harness or (holds and held.operator == LEVELS_OPERATOR)
                start = max(self._at(held.start), self._at(champion.start))
                end = min(self._at(held.end), self._at(champion.end))
                if holds and end > start:
                    stay = (held.slot, stay[1] if stay else start, end)
                elif stay:
                    yield stay
                    stay = None
            if stay:
                yield stay

    def _lane_of(self, span: ChampionSpan) -> float | None:
        life = self._history.policies.get(span.serving.version.policy)
        return None if life is None else self._y_of(life)

    def _band(self, span: ChampionSpan, y: float, title: str) -> Markup:
        return self._bar(self._at(span.start), self._at(span.end), y, title)

    def _bar(self, start: float, end: float, y: float, title: str) -> Markup:
        width = max(2.0, end - start)
        return el("rect", el("title", title), x=start, y=y - 9, width=width, height=18, rx=4, class_="champion")

    def _y_of(self, life: PolicyLife) -> float:
        return self._loser_y if life.slot is None else self._policy_y[life.slot]

    def _births(self, life: PolicyLife) -> Iterator[Node]:
        x, y = self._at(life.joined or life.born), self._y_of(life)
        for parent in life.parents:
            donor = self._history.policies.get(parent.policy)
            if donor is None:
                continue
            x0, y0 = self._at(life.born), self._y_of(donor)
            bend = max(14.0, abs(x - x0) / 2)
            curve = f"M{x0 - 8:.1f} {y0:.1f} C{x0 + bend:.1f} {y0:.1f} {x - bend:.1f} {y:.1f} {x:.1f} {y:.1f}"
            yield el(
                "path", el("title", f"{life.id}: {life.origin} of {parent}"), d=curve, class_=f"birth {life.origin}"
            )

    def _life(self, life: PolicyLife) -> Iterator[Node]:
        y, start, end = self._y_of(life), self._at(life.joined or life.born), self._at(life.ended)
        last = life.versions[-1].ref if life.versions else life.id
        told = f"{life.id} ({life.origin}), {len(life.versions)} versions up to {last}"
        title = el("title", f"{told}, {life.ending}" if life.ending else told)
        yield el("line", title, x1=start, x2=max(start + 1, end), y1=y, y2=y, class_=f"life {life.origin}")
        for version in life.versions[1:]:
            x = self._at(version.at)
            yield el("line", x1=x, x2=x, y1=y - 3, y2=y + 3, class_="version")
        yield el("circle", el("title", told), cx=start, cy=y, r=4, class_=f"born {life.origin}")
        if end - start > 26:
            yield label(start + 7, y - 6, life.id, "name")

    def _harness_lane(self, spans: list[HarnessSpan]) -> Iterator[Node]:
        y = self._harness_y[spans[0].slot]
        yield el("line", x1=self._at(spans[0].start), x2=self._at(spans[-1].end), y1=y, y2=y, class_="life harness")
        for span in spans:
            x = self._at(span.start)
            edits = "; ".join(span.edits) or "no edit"
            if span.proposal is not None:
                title = el("title", f"accepted proposal {span.proposal} ({span.operator}): {edits}")
                yield _diamond(x, y, title)
            elif span.operator == LEVELS_OPERATOR:
                title = el("title", f"levels moved: {edits}")
                yield el("line", title, x1=x, x2=x, y1=y - 4, y2=y + 4, class_="version harness")
            else:
                title = el("title", f"{span.harness} by {span.operator}" + (f": {edits}" if span.edits else ""))
                yield el("circle", title, cx=x, cy=y, r=4, class_="born harness")

    def _refused(self) -> Iterator[Node]:
        for life in self._history.decided(ProposalKind.HARNESS):
            slot = life.proposal.manifest.get("slot")
            y = self._harness_y.get(slot) if isinstance(slot, int) else None
            if y is not None and life.verdict is not None and life.verdict.kind is not VerdictKind.ACCEPTED:
                title = el("title", f"{life.verdict.kind}: {change(life)}")
                yield el("circle", title, cx=self._at(life.decided), cy=y + 11, r=2.5, class_="refused")


def lineage_key() -> Markup:
    """What the marks of the picture mean."""
    y = 7.0
    entries: tuple[tuple[Node, str], ...] = (
        (el("rect", x=1, y=2, width=20, height=10, rx=3, class_="champion"), "champion"),
        (el("circle", cx=11, cy=y, r=4, class_="born"), "first member, or spawned genome"),
        (el("circle", cx=11, cy=y, r=4, class_="born clone"), "clone"),
        (el("circle", cx=11, cy=y, r=4, class_="born merge"), "merge"),
        (el("line", x1=11, x2=11, y1=3, y2=11, class_="version"), "update, or move of training levels"),
        (_diamond(11, y, None), "accepted harness edit"),
        (el("circle", cx=11, cy=y, r=2.5, class_="refused"), "harness edit that was not accepted"),
    )
    return el(
        "ul",
        *(el("li", drawing(22, 14, words, mark, class_="lineage"), words) for mark, words in entries),
        class_="key",
    )


def _diamond(x: float, y: float, title: Markup | None) -> Markup:
    shape = path([(x, y - 7), (x + 7, y), (x, y + 7), (x - 7, y)], "edit", closed=True)
    return el("g", title, shape)


def _slot(span: HarnessSpan) -> int:
    return span.slot
