"""Owns the summary of a run for a terminal: plain text of at most 100 columns, from the same figures as the page."""

import io
from pathlib import Path

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from coharness.loop.run_dir import RunDir
from coharness.records.proposals import ProposalKind, VerdictKind
from coharness.report.history import read_history
from coharness.report.sealed_view import CELLS, NOT_CLAIMED, Sealed, SealedError, read_sealed
from coharness.report.sentences import (
    evolution_sentence,
    judge_sentence,
    null_alarm,
    null_sentence,
    overlap_sentence,
    slow_workers_sentence,
    staleness_sentence,
    state_sentence,
    twin_sentence,
    unsafe_sentence,
)
from coharness.report.timeline import History
from coharness.report.wording import PROPOSAL_WORDS, change, count, duration, percent, plain, signed, span

WIDTH = 100
MAX_ACCEPTED = 12
"""Accepted proposals that are listed, the latest."""


def terminal_summary(run_dir: Path | str) -> str:
    """The summary of a run directory; the errors are those of `read_history`."""
    history = read_history(run_dir)
    try:
        return summarise(history, read_sealed(RunDir.open(run_dir).sealed_path))
    except SealedError as error:
        return summarise(history, None, str(error))


def summarise(history: History, sealed: Sealed | None, sealed_trouble: str = "") -> str:
    """The summary of a history, with the sealed readings where there are any."""
    blocks: list[RenderableType] = [Text(f"Run {history.run_id}"), Text(state_sentence(history))]
    blocks += [Text(sentence) for sentence in (unsafe_sentence(history), judge_sentence(history)) if sentence]
    blocks.append(Text(""))
    if sealed is None:
        why = f"sealed tasks cannot be shown: {sealed_trouble}" if sealed_trouble else "sealed tasks not read yet"
        blocks += [Text(f"Verdict: {why}."), *_track_lines(history)]
    else:
        blocks += [Text(sentence) for sentence in sealed.claims()]
        blocks += [Text(NOT_CLAIMED[0]), Text(""), *_sealed_tables(sealed)]
    blocks += [Text(""), Text(evolution_sentence(history)), *_accepted(history), Text("")]
    if null_alarm(history):
        blocks.append(Text("A/A ALARM: no promotion of this run should be trusted."))
    twin = twin_sentence(sealed) if sealed else ""
    lines = [null_sentence(history), twin, overlap_sentence(history), staleness_sentence(history)]
    lines.append(slow_workers_sentence(history) or "")
    blocks += [Text(line) for line in lines if line]
    if history.spend:
        blocks += [Text(""), _spend(history)]
    failures = [f"{f.boundary} {f.num_items + f.num_jobs}" for f in history.failures]
    if failures or history.losses:
        blocks.append(Text(f"Failures: {', '.join(failures) or 'none'}; workers lost: {len(history.losses)}."))
    return _plain(blocks)


def _plain(blocks: list[RenderableType]) -> str:
    console = Console(
        file=io.StringIO(), width=WIDTH, color_system=None, force_terminal=False, legacy_windows=False, markup=False,
        highlight=False, emoji=False,
    )  # fmt: skip
    with console.capture() as capture:
        for block in blocks:
            console.print(block)
    return plain("\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n")


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    for i, head in enumerate(heads):
        table.add_column(Text(head), justify="left" if i == 0 else "right", overflow="fold")
    return table


def _sealed_tables(sealed: Sealed) -> list[RenderableType]:
    cells = _table("four cells (swap at inference)", "solved", "95\u202f% interval", "tokens a task")
    named = [(words, sealed.arms[name]) for name, words in CELLS.items()]
    named += [(f"vote of {vote.k} samples of the base", vote) for vote in sealed.votes()]
    for words, arm in named:
        interval = sealed.success(arm)
        cells.add_row(Text(words), percent(interval.value), span(interval), f"{arm.tokens.mean():.1f}")
        oracle = sealed.oracle(arm)
        if oracle is not None:
            cells.add_row(Text("  oracle bound of these, no control"), percent(oracle.value), span(oracle), "")
    both = sealed.interaction()
    ends = f"{signed(100 * both.low)} to {signed(100 * both.high)}"
    return [cells, Text(f"Interaction of weights and harness: {signed(100 * both.value)} points ({ends}).")]


def _track_lines(history: History) -> list[RenderableType]:
    if not history.track:
        return []
    first, last = history.track[0].total, history.track[-1].total
    return [
        Text(
            f"On the visible TRACK pool, which is no evidence: {percent(first.num_correct / first.num_tasks)} at the first "
            f"reading, {percent(last.num_correct / last.num_tasks)} at the last, {last.num_tasks} tasks each."
        )
    ]


def _accepted(history: History) -> list[RenderableType]:
    lives = history.decided(
        ProposalKind.HARNESS, ProposalKind.PAIR, ProposalKind.MERGE, ProposalKind.ROLLBACK, verdict=VerdictKind.ACCEPTED
    )
    shown = lives[-MAX_ACCEPTED:]
    lines: list[RenderableType] = (
        [Text(f"Accepted proposals{', the latest' if len(shown) < len(lives) else ''}:")] if shown else []
    )
    for life in shown:
        when = duration(life.decided.elapsed_s) if life.decided else ""
        words = f"{when}  {PROPOSAL_WORDS[life.proposal.kind]} {life.proposal.id}: {change(life)}"
        lines.append(Padding(Text(words), (0, 0, 0, 2)))
    return lines


def _spend(history: History) -> Table:
    table = _table("purpose", "episodes", "prompt tokens", "written tokens", "charged")
    for purpose, spend in history.spend.items():
        table.add_row(
            Text(purpose.value), count(spend.num_episodes), count(spend.num_prompt_tokens), count(spend.num_output_tokens),
            "yes" if purpose.is_charged else "no",
        )  # fmt: skip
    return table
