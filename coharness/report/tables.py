"""Owns the tables of the page, each from the history or the sealed readings alone; all text is escaped by `markup`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coharness.records.ids import canonical_json
from coharness.records.proposals import ProposalKind, Verdict, VerdictKind
from coharness.report.markup import Markup, Node, el
from coharness.report.timeline import History, ProposalLife
from coharness.report.wording import (
    PROPOSAL_WORDS,
    became,
    change,
    count,
    duration,
    evalue,
    needed,
    percent,
    signed,
)
from coharness.stats.sequential import PairedCounts, paired_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its head, and whether its cells are numbers, which stand right-aligned."""

    head: str
    is_number: bool = False
    class_: str = ""


def table(columns: Sequence[Column], rows: Iterable[Sequence[Node]], caption: str = "") -> Markup:
    """A table that scrolls sideways on a narrow screen; the first cell of a row heads it."""
    classes = [" ".join(filter(None, ("number" if column.is_number else "", column.class_))) for column in columns]
    head = el("tr", *(el("th", c.head, scope="col", class_=k or None) for c, k in zip(columns, classes, strict=True)))
    body = []
    for row in rows:
        cells = []
        for i, (cell, class_) in enumerate(zip(row, classes, strict=True)):
            tag, scope = ("th", "row") if i == 0 else ("td", None)
            cells.append(el(tag, cell, scope=scope, class_=class_ or None))
        body.append(el("tr", *cells))
    title = el("caption", caption) if caption else None
    return el("div", el("table", title, el("thead", head), el("tbody", *body)), class_="scroll")


def words(head: str, class_: str = "") -> Column:
    """A column of words."""
    return Column(head=head, class_=class_)


def numbers(head: str) -> Column:
    """A column of numbers."""
    return Column(head=head, is_number=True)


# Proposals ----------------------------------------------------------------------------------------------------------

_PROPOSAL_COLUMNS = (
    numbers("no."), words("kind", "kind"), words("what it changes", "wide"), numbers("difference"), numbers("e-value"),
    numbers("decided"), words("verdict", "reason"),
)  # fmt: skip


_KNOWN = frozenset({"slot", "replaces", "final", "edits", "promotion"})
"""Parts of a manifest that the rest of the row says already."""


def proposals_table(lives: Sequence[ProposalLife]) -> Markup:
    """One row a proposal, in the order given."""
    return table(_PROPOSAL_COLUMNS, [_proposal_row(life) for life in lives])


def _proposal_row(life: ProposalLife) -> Sequence[Node]:
    proposal, verdict = life.proposal, life.verdict
    what: list[Node] = [change(life)]
    told = "; ".join(f"{name}: {_listed(value)}" for name, value in proposal.manifest.items() if name not in _KNOWN)
    if told:
        what.append(el("span", told, class_="note"))
    state = el("b", became(life), class_=became(life))
    kind = el("div", PROPOSAL_WORDS[proposal.kind], el("span", proposal.operator, class_="note"))
    if verdict is None:
        return proposal.id, kind, el("div", *what), "", "", "", state
    counted = f"{verdict.wins} won, {verdict.losses} lost, {verdict.ties} tied"
    level = needed(verdict.level)
    return (
        proposal.id,
        kind,
        el("div", *what),
        el("div", _difference(verdict), el("span", counted, class_="note")),
        el("div", evalue(verdict.log_evalue), el("span", f"needed {level}", class_="note") if level else None),
        duration(life.decided.elapsed_s) if life.decided else "",
        el("div", state, el("span", verdict.reason, class_="note")),
    )


def _listed(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else canonical_json(value)


def _difference(verdict: Verdict) -> Node:
    if verdict.wins + verdict.losses + verdict.ties == 0:
        return ""
    interval = paired_interval(PairedCounts(wins=verdict.wins, losses=verdict.losses, ties=verdict.ties))
    ends = f"{signed(100 * interval.low)} to {signed(100 * interval.high)}"
    return el("span", signed(100 * interval.value), el("span", f" ({ends})", class_="faint"))


def operators_table(history: History) -> Markup:
    """How often each operator was proposed, accepted, rejected and withdrawn."""
    tallies: dict[tuple[str, str], list[int]] = {}
    order = (None, VerdictKind.ACCEPTED, VerdictKind.REJECTED, VerdictKind.WITHDRAWN)
    for life in history.proposals:
        row = tallies.setdefault((PROPOSAL_WORDS[life.proposal.kind], life.proposal.operator), [0] * len(order))
        row[0] += 1
        if life.verdict is not None:
            row[order.index(life.verdict.kind)] += 1
    columns = (words("kind"), words("operator"), *map(numbers, ("proposed", "accepted", "rejected", "withdrawn")))
    return table(columns, [(kind, operator, *row) for (kind, operator), row in sorted(tallies.items())])


def champions_table(history: History) -> Markup:
    """Which pairing served from when to when."""
    columns = (numbers("from"), numbers("rollouts"), words("serving", "code"), words("how"), numbers("proposal"))
    rows = [
        (duration(c.start.elapsed_s), count(c.start.rollouts), str(c.serving), c.cause, "" if c.proposal is None else c.proposal)
        for c in history.champions
    ]  # fmt: skip
    return table(columns, rows)


def members_table(history: History) -> Markup:
    """All policies: how they were born, how far they came, how they ended."""
    columns = (
        words("policy"), words("born"), words("parents", "code"), numbers("at"), numbers("versions"),
        words("latest weights", "code"), words("latest hyperparameters"), words("ended"),
    )  # fmt: skip
    rows: list[Sequence[Node]] = []
    for life in history.policies.values():
        last = life.versions[-1] if life.versions else None
        told = [v.hyperparameters for v in life.versions if v.hyperparameters]
        rows.append(
            (
                life.id,
                life.origin,
                ", ".join(map(str, life.parents)),
                duration(life.born.elapsed_s),
                len(life.versions),
                last.digest[:12] if last else "",
                ", ".join(f"{name} {value:.3g}" for name, value in sorted(told[-1].items())) if told else "",
                life.ending,
            )
        )
    return table(columns, rows)


# Work ---------------------------------------------------------------------------------------------------------------


def spend_table(history: History) -> Markup:
    """Episodes and tokens by purpose, charged ones first."""
    columns = (
        words("purpose"), numbers("episodes"), numbers("of the budget"), numbers("prompt tokens"),
        numbers("written tokens"), numbers("failed items"), numbers("cancelled items"),
    )  # fmt: skip
    budget = history.budget_rollouts
    rows: list[Sequence[Node]] = [
        (
            purpose.value, count(s.num_episodes), percent(s.num_episodes / budget) if purpose.is_charged else "not charged",
            count(s.num_prompt_tokens), count(s.num_output_tokens), count(s.num_failed), count(s.num_cancelled),
        )
        for purpose, s in sorted(history.spend.items(), key=lambda entry: not entry[0].is_charged)
    ]  # fmt: skip
    charged = [s for purpose, s in history.spend.items() if purpose.is_charged]
    total = sum(s.num_episodes for s in charged)
    rows.append(
        (
            el("b", "all charged"), count(total), percent(total / budget),
            count(sum(s.num_prompt_tokens for s in charged)), count(sum(s.num_output_tokens for s in charged)),
            count(sum(s.num_failed for s in charged)), count(sum(s.num_cancelled for s in charged)),
        )
    )  # fmt: skip
    return table(columns, rows)


def workers_table(history: History) -> Markup:
    """Load of the rollout workers; speed is episodes a second inside batches."""
    columns = (
        words("worker"), numbers("batches"), numbers("episodes"), numbers("busy"), numbers("episodes a busy second"),
        numbers("CPU"),
    )  # fmt: skip
    rows = [
        (w.name, count(w.num_batches), count(w.num_episodes), duration(w.wall_s),
         f"{w.num_episodes / w.wall_s:.1f}" if w.wall_s > 0 else "", duration(w.cpu_s))
        for w in history.workers
    ]  # fmt: skip
    return table(columns, rows)


def failures_table(history: History) -> Markup:
    """Failures by the boundary that they crossed."""
    columns = (words("boundary"), numbers("items"), numbers("jobs"), words("last message", "wide"))
    return table(columns, [(f.boundary, f.num_items, f.num_jobs, f.example) for f in history.failures])


def losses_table(history: History) -> Markup:
    """Workers that died or went silent."""
    columns = (numbers("at"), words("worker"), numbers("items leased again"), words("reason", "wide"))
    return table(columns, [(duration(x.at.elapsed_s), x.worker, x.num_items, x.reason) for x in history.losses])


def null_lives(history: History) -> list[ProposalLife]:
    """The A/A tests."""
    return [life for life in history.proposals if life.proposal.kind is ProposalKind.NULL]
