"""Owns the scalars of a run: `area/thing` names with their axes, written to metrics.jsonl and read by trackers.

A rate carries its numerator and denominator, so that rates can be merged without a mean of means. The journal stays the
truth: the file is written anew from it each time, never appended to.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coharness.loop.run_dir import RunDir
from coharness.records.proposals import VerdictKind
from coharness.report.history import read_history
from coharness.report.timeline import History, Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """One value of one metric at one moment."""

    name: str
    "`area/thing`; never holds the name of a member or family, which are labels."
    value: float
    at: Moment
    labels: Mapping[str, str] = field(default_factory=dict)
    numerator: float | None = None
    "Of a rate, with its denominator; None for other values."
    denominator: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The line of metrics.jsonl."""
        line: dict[str, Any] = {"name": self.name, "value": self.value}
        if self.denominator is not None:
            line |= {"numerator": self.numerator, "denominator": self.denominator}
        axes = {
            "rollouts": self.at.rollouts,
            "elapsed_s": round(self.at.elapsed_s, 3),
            "updates": self.at.updates,
        }
        return line | {"axes": axes, "labels": dict(self.labels)}


def _rate(name: str, numerator: float, denominator: float, at: Moment, **labels: str) -> Scalar:
    return Scalar(
        name=name, value=numerator / denominator, at=at, labels=labels, numerator=numerator, denominator=denominator
    )


def scalars(history: History) -> list[Scalar]:
    """All scalars of a history, in the order of running time."""
    found = [*_track(history), *_training(history), *_throughput(history), *_evolution(history)]
    return sorted(found, key=lambda scalar: scalar.at.elapsed_s)


def write(run_dir: Path | str) -> Path:
    """Write metrics.jsonl of a run directory and give its path; the errors are those of `read_history`."""
    run = RunDir.open(run_dir)
    lines = [json.dumps(s.to_json(), ensure_ascii=False, allow_nan=False) for s in scalars(read_history(run_dir))]
    scratch = run.metrics_path.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    scratch.replace(run.metrics_path)
    return run.metrics_path


def _track(history: History) -> Iterator[Scalar]:
    for reading in history.track:
        total = reading.total
        yield _rate("track/success", total.num_correct, total.num_tasks, reading.at)
        yield _rate("track/tokens_per_task", reading.num_output_tokens, total.num_tasks, reading.at)
        families = sorted({family for family, _ in reading.cells})
        for family in families:
            tallies = [tally for (name, _), tally in reading.cells.items() if name == family]
            correct, tasks = sum(t.num_correct for t in tallies), sum(t.num_tasks for t in tallies)
            yield _rate("track/family_success", correct, tasks, reading.at, family=family)
    for reading in history.member_track:
        labels = {"member": reading.serving.version.policy}
        total = reading.total
        yield _rate("track/member_success", total.num_correct, total.num_tasks, reading.at, **labels)


def _training(history: History) -> Iterator[Scalar]:
    for life in history.policies.values():
        for version in life.versions:
            for name, value in version.metrics.items():
                yield Scalar(name=name, value=value, at=version.at, labels={"member": life.id})
            for name, value in version.hyperparameters.items():
                yield Scalar(name=f"hyperparameters/{name}", value=value, at=version.at, labels={"member": life.id})
    for update in history.staleness:
        behind = update.versions_behind
        labels = {"member": update.policy}
        yield _rate("staleness/mean", sum(behind), len(behind), update.at, **labels)
        yield Scalar(name="staleness/max", value=max(behind), at=update.at, labels=labels)


def _throughput(history: History) -> Iterator[Scalar]:
    for window in history.throughput:
        at = Moment(elapsed_s=window.start_s + window.width_s)
        yield _rate("throughput/episodes_per_s", window.num_episodes, window.width_s, at)
        yield _rate("throughput/output_tokens_per_s", window.num_output_tokens, window.width_s, at)


def _evolution(history: History) -> Iterator[Scalar]:
    counts: Counter[VerdictKind] = Counter()
    for life in sorted(history.decided(), key=lambda life: life.decided.elapsed_s if life.decided else 0.0):
        if life.verdict is not None and life.decided is not None:
            kind = life.verdict.kind
            counts[kind] += 1
            yield Scalar(name=f"gate/{kind}", value=counts[kind], at=life.decided)
            labels = {"kind": life.proposal.kind.value}
            yield Scalar(name="gate/log_evalue", value=life.verdict.log_evalue, at=life.decided, labels=labels)
    for number, child in enumerate((p for p in history.policies.values() if p.origin != "base"), 1):
        yield Scalar(name="population/births", value=number, at=child.born)
    for number, span in enumerate(history.champions[1:], 1):
        yield Scalar(name="population/champion_changes", value=number, at=span.start)
    for purpose, spend in history.spend.items():
        yield Scalar(name=f"budget/{purpose}_episodes", value=spend.num_episodes, at=history.end)
    overlap = history.overlap
    if overlap.total_s > 0:
        yield _rate("overlap/in_flight", overlap.in_flight_s, overlap.total_s, history.end)
        yield _rate("overlap/running", overlap.running_s, overlap.total_s, history.end)
