"""Owns the page of a run: one self-contained HTML file that works from a disk, on a phone, in the dark and on paper.

No script, no font, no address outside the page: a content security policy in the page allows its own style sheet by hash
and nothing else. `write_report` reads journal and sealed readings of a run directory, and replaces the page at once.
"""

import base64
import hashlib
import os
from pathlib import Path

from coharness.loop.run_dir import RunDir
from coharness.report.history import read_history
from coharness.report.markup import Markup, el, join, read_asset
from coharness.report.sealed_view import Sealed, SealedError, read_sealed
from coharness.report.sections import (
    budget_section,
    cells_section,
    config_section,
    curves_section,
    failures_section,
    heat_section,
    lineage_section,
    null_section,
    proposals_section,
    verdict_section,
    work_section,
)
from coharness.report.sentences import state_sentence
from coharness.report.timeline import History
from coharness.report.wording import count, duration, moment


def write_report(run_dir: Path | str) -> Path:
    """Write the page of a run into its directory and give its path.

    Raises:
        ConfigError: the folder is no run directory.
        JournalError: the journal is damaged or newer than this code.
    """
    run = RunDir.open(run_dir)
    history = read_history(run_dir)
    sealed: Sealed | None = None
    trouble = ""
    try:
        sealed = read_sealed(run.sealed_path)
    except SealedError as error:
        trouble = str(error)
    page = render(history, sealed, trouble)
    scratch = run.report_path.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_text(page, encoding="utf-8")
    scratch.replace(run.report_path)
    return run.report_path


def render(history: History, sealed: Sealed | None, sealed_trouble: str = "") -> str:
    """The page as text; `sealed_trouble` says why sealed readings that exist cannot be shown."""
    sections = (
        verdict_section(history, sealed, sealed_trouble),
        cells_section(sealed),
        curves_section(history, sealed),
        heat_section(history),
        lineage_section(history),
        proposals_section(history),
        null_section(history, sealed),
        work_section(history),
        budget_section(history),
        failures_section(history),
        config_section(history),
    )
    return document(f"coharness run {history.run_id}", _header(history), el("main", *sections), _footer(history))


def document(title: str, *body: Markup) -> str:
    """A whole page with its style sheet; the policy in it lets a browser load nothing else."""
    style = read_asset("page.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", title),
        el("style", style),
    )
    return "<!doctype html>\n" + el("html", head, el("body", *body), lang="en")


def _header(history: History) -> Markup:
    champion, population = history.champion, history.config["population"]
    facts = (
        ("rollouts", f"{count(history.end.rollouts)} of {count(history.budget_rollouts)}"),
        ("running time", duration(history.end.elapsed_s)),
        ("updates", count(history.end.updates)),
        ("seed", history.seed),
        ("schedule", str(history.config["schedule"])),
        ("population", f"{population['num_policies']} policies, {population['num_harnesses']} harnesses"),
        ("champion", str(champion.serving) if champion else "none yet"),
        ("started", moment(history.started_at) or "unknown"),
    )  # fmt: skip
    return el(
        "header",
        el("div", "coharness run", class_="kind"),
        el("h1", history.run_id),
        el("p", state_sentence(history)),
        el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in facts), class_="facts"),
        class_="page",
    )


def _footer(history: History) -> Markup:
    parts = [f"{count(history.num_events)} events in {history.num_epochs} epoch{'s' if history.num_epochs > 1 else ''}"]
    if history.code_digest:
        parts.append(f"code {history.code_digest[:12]}")
    return el("footer", join([" · ".join(parts)]), class_="page")
