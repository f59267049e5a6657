"""Owns the sections of a run's page, in the order in which they are defined; `html` puts them together."""

import yaml

from coharness.records.proposals import VerdictKind
from coharness.report import sealed_tables, tables
from coharness.report.curves import learning_curves, member_curves, staleness_chart, throughput_chart
from coharness.report.heatmap import heatmaps
from coharness.report.lineage import lineage, lineage_key
from coharness.report.markup import Markup, Node, el
from coharness.report.sealed_view import BASE, CHAMPION, NOT_CLAIMED, Sealed
from coharness.report.sentences import (
    evolution_sentence,
    judge_sentence,
    null_alarm,
    null_sentence,
    overlap_sentence,
    slow_workers_sentence,
    staleness_sentence,
    twin_sentence,
    unsafe_sentence,
)
from coharness.report.timeline import History
from coharness.report.wording import count, duration, signed


def _section(title: str, *children: Node, id_: str) -> Markup:
    return el("section", el("h2", title), *children, id_=id_)


def _note(words: str) -> Markup:
    return el("p", words, class_="note")


def verdict_section(history: History, sealed: Sealed | None, trouble: str) -> Markup:
    """What may be claimed, in words."""
    if sealed is None:
        words = [
            f"The sealed tasks cannot be shown: {trouble}" if trouble else "The sealed tasks have not been read yet."
        ]
        words.append(
            "Until they are, this page claims nothing; the curves below come from a visible pool and decide nothing."
        )
        return _section("Verdict", *(el("p", sentence) for sentence in words), id_="verdict")
    gain = sealed.difference(CHAMPION, BASE)
    lead, *others = sealed.claims()
    figure = el(
        "div",
        el("div", signed(100 * gain.value), class_="figure"),
        el("div", f"points, champion − untouched base; 95\u202f% interval {signed(100 * gain.low)} to {signed(100 * gain.high)}",
           class_="unit"),
    )  # fmt: skip
    told = el("div", el("p", lead, class_="lead"), *(el("p", sentence) for sentence in others))
    unsafe = unsafe_sentence(history)
    alarm = el("p", "The A/A alarm is raised, so no promotion of this run should be trusted.", class_="alarm")
    return _section(
        "Verdict",
        el("div", figure, told, class_="verdict"),
        alarm if null_alarm(history) else None,
        el("p", unsafe, class_="alarm") if unsafe else None,
        el("h3", "What this run does not show"),
        el("ul", *(el("li", sentence) for sentence in NOT_CLAIMED), class_="limits"),
        id_="verdict",
    )


def cells_section(sealed: Sealed | None) -> Markup | None:
    """The four cells and the votes; None where the sealed tasks were not read."""
    if sealed is None:
        return None
    votes = (
        el("h3", "More samples instead of evolution"),
        _note(
            "A majority vote needs no verifier and is the control. The oracle bound asks the verifier which of the samples "
            "is right; nobody has that answer in use, so it is a bound and no control."
        ),
        sealed_tables.votes_table(sealed),
    )
    milestones = (
        el("h3", "The champion over the run, on the same sealed tasks"),
        sealed_tables.milestones_table(sealed),
    )
    return _section(
        "Four cells: swap at inference",
        _note(
            "Evolved and untouched weights, each under the evolved and the initial harness, on the same sealed tasks: greedy "
            "decoding, the first final answer, the task's own verifier. Tokens count prompt and answer. Intervals are "
            "95\u202f% bootstraps over tasks, stratified by family and level."
        ),
        sealed_tables.cells_table(sealed),
        sealed_tables.effects_table(sealed),
        *(votes if sealed.votes() else (_note("No majority vote of the base was measured."),)),
        el("h3", "By family"),
        sealed_tables.families_table(sealed),
        *(milestones if sealed.milestones else ()),
        id_="cells",
    )


def curves_section(history: History, sealed: Sealed | None) -> Markup:
    """Success over the run."""
    members = member_curves(history)
    return _section(
        "Learning curves",
        _note(
            "The champion on the TRACK pool, which is never trained on and decides nothing; shaded: 95\u202f% score interval "
            "of one reading. Small dots: the other members. Dashed lines: promotions and rollbacks."
            + (" Orange: the champions of fixed shares of the budget on the sealed tasks." if sealed else "")
        ),
        learning_curves(history, sealed),
        el("details", el("summary", "Training metrics of each member"), members) if members else None,
        id_="curves",
    )


def heat_section(history: History) -> Markup:
    """Success by family and level over the run."""
    return _section(
        "Success by family and level",
        _note("Rollouts to the right, levels upward (1 is the easiest), on the TRACK pool. Counts show on hover."),
        heatmaps(history.track),
        id_="heat",
    )


def lineage_section(history: History) -> Markup:
    """Both populations over time."""
    return _section(
        "Populations",
        _note("Each lane is one place of a population; who takes a place goes on in its lane. Details show on hover."),
        el("div", lineage(history), class_="wide-figure"),
        lineage_key(),
        el("h3", "Champions"),
        tables.champions_table(history) if history.champions else el("p", "No pairing served yet.", class_="empty"),
        el("details", el("summary", f"All {len(history.policies)} policies"), tables.members_table(history)),
        id_="populations",
    )


def proposals_section(history: History) -> Markup:
    """What was proposed and what became of it."""
    accepted = history.decided(verdict=VerdictKind.ACCEPTED)
    others = [life for life in history.proposals if life not in accepted]
    return _section(
        "Proposals and verdicts",
        _note(evolution_sentence(history)),
        _note(judged) if (judged := judge_sentence(history)) else None,
        _note(
            "A challenger is accepted when its e-value reaches the needed one, 1 / level; levels come from one error budget of "
            "the whole run. Differences are in percentage points with a 95\u202f% interval, not corrected for stopping early."
        ),
        tables.proposals_table(accepted) if accepted else el("p", "No proposal was accepted.", class_="empty"),
        el("details", el("summary", f"{len(others)} rejected, withdrawn or open"), tables.proposals_table(others))
        if others
        else None,
        el("details", el("summary", "By operator"), tables.operators_table(history)) if history.proposals else None,
        id_="proposals",
    )


def null_section(history: History, sealed: Sealed | None) -> Markup:
    """How often the gate accepted nothing."""
    lives = tables.null_lives(history)
    return _section(
        "A/A tests",
        el("p", null_sentence(history), class_="alarm" if null_alarm(history) else None),
        el("p", twin_sentence(sealed), class_="alarm" if sealed.twin.num_discordant else None)
        if sealed is not None and sealed.twin is not None
        else None,
        tables.proposals_table(lives) if lives else None,
        id_="null",
    )


def work_section(history: History) -> Markup:
    """How busy the run was."""
    slow = slow_workers_sentence(history)
    return _section(
        "Throughput, staleness and overlap",
        el("p", overlap_sentence(history)),
        el("p", staleness_sentence(history)),
        el("p", slow, class_="alarm") if slow else None,
        el("div", el("figure", throughput_chart(history)), el("figure", staleness_chart(history)), class_="pair"),
        tables.workers_table(history) if history.workers else None,
        id_="work",
    )


def budget_section(history: History) -> Markup:
    """What each purpose cost."""
    cpu = history.rollout_cpu_s + history.training_cpu_s + history.decision_cpu_s
    return _section(
        "Budget by purpose",
        tables.spend_table(history) if history.spend else el("p", "No episode was run.", class_="empty"),
        _note(
            f"CPU time {duration(cpu)}: rollout {duration(history.rollout_cpu_s)}, training "
            f"{duration(history.training_cpu_s)}, decisions {duration(history.decision_cpu_s)}. Curves and sealed tasks are "
            "not charged."
        ),
        id_="budget",
    )


def failures_section(history: History) -> Markup:
    """What broke."""
    parts: list[Node] = []
    if history.failures:
        parts.append(tables.failures_table(history))
    if history.losses:
        parts += [el("h3", "Workers lost"), tables.losses_table(history)]
    if history.num_quarantined:
        parts.append(el("p", f"{count(history.num_quarantined)} updates were non-finite and were never published."))
    if history.warnings:
        parts += [el("h3", "What the journal does not explain"), el("ul", *(el("li", w) for w in history.warnings))]
    return _section("Failures", *(parts or [el("p", "None.", class_="empty")]), id_="failures")


def config_section(history: History) -> Markup:
    """The resolved config, folded."""
    shown = yaml.safe_dump(dict(history.config), sort_keys=False, allow_unicode=True)
    return _section("Configuration", el("details", el("summary", "Resolved config"), el("pre", shown)), id_="config")
