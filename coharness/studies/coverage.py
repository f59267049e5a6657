"""Which operators, merge rules, selectors, objectives and judges the studies' runs have exercised, read from their journals.

Each known one has a row, whether or not anything exercised it: what no run has used is claimed by no study. Counts are of
issued directives and verdicts; a withdrawn proposal counts as proposed and as neither of the others.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from coharness.config.merging import MERGE_RULE_NAMES
from coharness.config.schema import Schedule, TrainingSection
from coharness.harness.operators import SERVING_MUTATIONS
from coharness.loop.journal import read_frames
from coharness.records import events as ev
from coharness.records.ids import ProposalId
from coharness.records.proposals import VerdictKind
from coharness.records.training import JobStatus
from coharness.studies.contract import Table

CELLS_FOLDER = Path("runs") / "studies"
Key = tuple[str, str]
"""Kind and name: ("merge rule", "linear")."""


@dataclass(slots=True)
class Count:
    """How often one thing was tried and what became of it."""

    proposed: int = 0
    accepted: int = 0
    rejected: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    "Run folder below runs/studies -> times proposed there."


def known() -> tuple[Key, ...]:
    """Everything that a run can exercise, in the order of the table."""
    proposals = ["format_by_evidence", "crossover", *(f"mutate_{name}" for name in SERVING_MUTATIONS)]
    keys: list[Key] = [("harness edit", name) for name in proposals]
    keys += [("slot", name) for name in ("start", "levels", "crossover", "random", "chosen_formats", "chosen_genes")]
    keys += [("selector", name) for name in ("exploit", "challenge", "rollback_watch", "null")]
    keys += [("merge rule", name) for name in MERGE_RULE_NAMES]
    keys += [("objective", name) for name in _literals(TrainingSection, "objective")]
    keys += [("schedule", schedule.value) for schedule in Schedule]
    keys += [("judge", name) for name in ("endpoint", "linear", "trained", "mended")]
    return tuple(keys)


def _literals(section: type, name: str) -> tuple[str, ...]:
    return get_args(section.model_fields[name].annotation)  # type: ignore[attr-defined]


def coverage(root: Path) -> dict[Key, Count]:
    """Counts over all runs of all studies of a project, everything known included.

    Raises:
        JournalError: a run's journal is damaged or of a newer schema.
    """
    counts = {key: Count() for key in known()}
    for journal in journals(root):
        run = journal.parent.relative_to(root / CELLS_FOLDER).as_posix()
        for key, count in count_run(journal).items():
            total = counts.setdefault(key, Count())
            total.proposed += count.proposed
            total.accepted += count.accepted
            total.rejected += count.rejected
            total.runs[run] += count.proposed
    return counts


def journals(root: Path) -> Iterator[Path]:
    """Journal folders of all runs of all studies' cells."""
    for path in sorted((root / CELLS_FOLDER).rglob("journal")):
        if path.is_dir() and (path.parent / "config.yaml").is_file():
            yield path


def count_run(journal: Path) -> dict[Key, Count]:
    """What one run exercised.

    An objective and a schedule count once for each update and each run: nothing rejects them but a failed update.
    """
    counts: dict[Key, Count] = {}
    open_proposals: dict[ProposalId, Key] = {}
    objective = ""

    def count(kind: str, name: str) -> Count:
        return counts.setdefault((kind, name), Count())

    for frame in read_frames(journal):
        for event in frame.events:
            match event:
                case ev.Started(config=config):
                    objective = config["training"]["objective"]
                    count("schedule", config["schedule"]).proposed += 1
                    if (judge := config["reward"]["judge"]) is not None:
                        count("judge", judge["type"]).proposed += 1
                case ev.Issued(directive=ev.Repair()):
                    count("judge", "mended").proposed += 1
                case ev.Issued(directive=ev.Appoint(accepted=accepted)):
                    count("judge", "mended").accepted += accepted
                    count("judge", "mended").rejected += not accepted
                case ev.Issued(directive=ev.Open(proposal=proposal)):
                    key = _proposal_key(proposal.operator)
                    open_proposals[proposal.id] = key
                    count(*key).proposed += key[0] != "merge rule"
                case ev.Issued(directive=ev.Decide(verdict=verdict)):
                    decided = count(*open_proposals.pop(verdict.proposal))
                    decided.accepted += verdict.kind is VerdictKind.ACCEPTED
                    decided.rejected += verdict.kind is VerdictKind.REJECTED
                case ev.Issued(directive=ev.Merge(job=job)):
                    # Counted here, not when its race opens: a merge may fail before it races.
                    count("merge rule", job.rule).proposed += 1
                case ev.Issued(directive=ev.Clone()):
                    _taken(count("selector", "exploit"))
                case ev.Issued(directive=ev.Spawn(operator=operator)):
                    _taken(count("slot", operator))
                case ev.Issued(directive=ev.Train()):
                    count("objective", objective).proposed += 1
                case ev.JobDone(result=result) if result.version is not None and result.version.operator == "train":
                    count("objective", objective).accepted += 1
                case ev.JobDone(result=result) if result.status is JobStatus.QUARANTINED:
                    count("objective", objective).rejected += 1
    return counts


def _proposal_key(operator: str) -> Key:
    if operator.startswith("merge."):
        return "merge rule", operator.removeprefix("merge.")
    return ("selector", operator) if ("selector", operator) in known() else ("harness edit", operator)


def _taken(count: Count) -> None:
    """Count something that acts without a test."""
    count.proposed += 1
    count.accepted += 1


def coverage_table(counts: dict[Key, Count]) -> Table:
    """The counts as a table, with the run that exercised each most."""
    rows = []
    for (kind, name), count in counts.items():
        runs = count.runs.most_common(1)
        where = f"{runs[0][0]}" + (f" and {len(count.runs) - 1} more" if len(count.runs) > 1 else "") if runs else "–"
        rows.append((kind, name, count.proposed, count.accepted, count.rejected, where))
    return Table(
        title="Coverage of the studies' runs",
        columns=("kind", "name", "proposed", "accepted", "rejected", "run"),
        rows=tuple(rows),
        note="Slots and exploits act without a test and count as accepted; objectives count updates, accepted where a "
        "version was published; schedules and judges count runs, mended judges their candidates.",
    )
