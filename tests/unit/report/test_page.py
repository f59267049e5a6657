import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from coharness.records.proposals import ProposalKind, VerdictKind
from coharness.records.work import Purpose
from coharness.report import write_report
from coharness.report.history import project
from coharness.report.html import render
from coharness.report.markup import Markup
from coharness.report.sealed_view import parse_sealed
from coharness.report.timeline import History
from tests.unit.report.synthetic import (
    H0,
    H_TRACE,
    Script,
    config,
    proposal,
    sealed_json,
    serving,
    verdict,
    write_sealed,
)

VOID = {"meta", "br", "hr", "img", "col"}
SECTIONS = [
    "verdict", "cells", "curves", "heat", "populations", "proposals", "null", "work", "budget", "failures", "config",
]  # fmt: skip


class Page(HTMLParser):
    """Tags, attributes and text of a page; fails on an element that is not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.sections: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag == "section":
            self.sections.append(dict(attrs)["id"] or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data


def history_of(script: Script) -> History:
    return project(script.frames, run_id="run", config=script.config.model_dump(mode="json"))


@pytest.fixture(scope="module")
def page(finished_run: Path) -> str:
    return write_report(finished_run).read_text(encoding="utf-8")


def test_sections_stand_in_the_agreed_order_and_every_element_is_closed(page: str) -> None:
    assert Page(page).sections == SECTIONS


def test_the_page_needs_nothing_from_outside_and_runs_no_script(page: str) -> None:
    found = Page(page)
    assert not {"script", "link", "iframe", "object", "img"} & set(found.tags)
    assert not [a for a in found.attributes if a[0] in ("src", "href", "style") or a[0].startswith("on")]
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert ("content", f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'") in (
        found.attributes
    )
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_the_verdict_compares_champion_and_base_with_an_interval_and_says_what_is_not_shown(page: str) -> None:
    text = Page(page).text
    sealed = parse_sealed(sealed_json())
    for sentence in sealed.claims():
        assert sentence in text
    assert "One run cannot say" in text
    assert "co-evolution wins" not in text.lower()


def test_four_cells_votes_and_oracle_bounds_are_labelled_with_tokens_beside_them(page: str) -> None:
    text = Page(page).text
    assert "Four cells: swap at inference" in text
    assert text.count("oracle bound, no control") == 2
    assert "majority vote of 16 samples of the base" in text
    assert "tokens a task" in text
    assert "interaction" in text


def test_accepted_proposals_are_told_in_words_and_the_others_are_folded(page: str) -> None:
    shown, folded = page.split("rejected, withdrawn or open</summary>", 1)
    assert "format of count, parity: default → trace" in shown
    assert "weights: p0@0 → p1@9" in shown
    assert "format of reverse: default → filler" in folded


def test_text_of_models_and_workers_is_escaped_everywhere() -> None:
    evil = "<script>alert(1)</script>"
    script = Script(config=config(f"runs/{evil}")).start(evil).spawn(0.0, H0, 0, evil)
    track = [
        replace(item, task=replace(item.task, family=evil)) for item in script.items(Purpose.TRACK, 4, serving("p0", 0))
    ]
    script.work(1, 2, track, [1, 0, 1, 1], worker=evil)
    edit = proposal(
        0,
        ProposalKind.HARNESS,
        serving("p0", 0, H_TRACE),
        serving("p0", 0),
        operator=evil,
        manifest={"slot": 0, evil: [evil]},
    )
    script.test(3, 4, edit, verdict(0, VerdictKind.ACCEPTED, reason=evil), H_TRACE)
    script.lost(5, evil, evil).end(6, evil)
    data = json.loads(json.dumps(sealed_json()).replace("p0@0", evil).replace('"count"', json.dumps(evil)))
    page = render(history_of(script), parse_sealed(data), evil)
    assert "script" not in Page(page).tags
    assert "<script" not in page.lower()
    assert evil in Page(page).text


def test_a_run_without_sealed_readings_claims_nothing(run_copy: Path) -> None:
    (run_copy / "sealed.json").unlink()
    found = Page(write_report(run_copy).read_text(encoding="utf-8"))
    assert "The sealed tasks have not been read yet." in found.text
    assert "this page claims nothing" in found.text
    assert "cells" not in found.sections
    assert "untouched base" not in found.text


def test_sealed_readings_that_cannot_be_read_are_named_instead_of_ending_the_report(run_copy: Path) -> None:
    write_sealed(run_copy, sealed_json() | {"schema": 99})
    assert "has schema 99" in Page(write_report(run_copy).read_text(encoding="utf-8")).text


def test_an_empty_run_and_one_interrupted_at_once_have_a_page(tmp_path: Path) -> None:
    empty = Script(config=config(tmp_path / "empty")).write()
    begun = Script(config=config(tmp_path / "begun")).start().write()
    for run_dir, said in ((empty, "before its populations were founded"), (begun, "No pairing served yet.")):
        text = Page(write_report(run_dir).read_text(encoding="utf-8")).text
        assert said in text
        assert "the journal holds no end" in text


def test_the_alarm_is_raised_when_the_gate_accepts_the_champion_against_itself_too_often() -> None:
    script, champion = Script(config=config()).start().spawn(0.0, H0, 0), serving("p0", 0)
    for number in range(6):
        null = proposal(number, ProposalKind.NULL, champion, champion)
        script.test(number, number + 0.5, null, verdict(number, VerdictKind.ACCEPTED, level=0.0))
    text = Page(render(history_of(script), parse_sealed(sealed_json()))).text
    assert "6 of 6 A/A tests" in text
    assert "no promotion of this run should be trusted" in text


def test_a_twin_that_differs_is_called_a_bug() -> None:
    data = sealed_json() | {"twin": {"pairs": 64, "discordant": 1}}
    text = Page(render(history_of(Script(config=config()).start()), parse_sealed(data))).text
    assert "1 differ, which is a bug" in text


def test_the_page_is_replaced_whole_and_leaves_no_scratch_file(run_copy: Path) -> None:
    before = {path.name for path in run_copy.iterdir()}
    first = write_report(run_copy).read_text(encoding="utf-8")
    assert write_report(run_copy).read_text(encoding="utf-8") == first
    assert {path.name for path in run_copy.iterdir()} - before <= {"report.html"}


def test_the_lineage_shows_every_birth_and_every_accepted_edit(page: str) -> None:
    for told in (
        "p3: clone of p1@11",
        "p4: merge of p0@14",
        "accepted proposal 0 (mutate.format)",
        "rejected: format of",
    ):
        assert Markup(told) in page
