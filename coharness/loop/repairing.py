"""Runs repairs of a linear judge in a trainer's process: reads what was audited, fits a candidate, measures it, keeps it.

The candidate is on disk before its numbers are reported, accepted or not: a verdict can be looked into later. No model is asked
anything; the judge's scores are those that the store holds.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from coharness.config.reward import LinearJudgeSection, MonitorSection
from coharness.config.schema import RunConfig
from coharness.loop.run_dir import RunDir
from coharness.records.errors import PreflightError
from coharness.records.ids import TaskId
from coharness.records.protocols import TextCodec
from coharness.records.task import TaskRef
from coharness.records.training import JobResult, JobStatus, RepairJob
from coharness.reward.algebra.part import PartOutcome
from coharness.reward.judges.protocol import SCORE_PART
from coharness.reward.linear.files import LinearShelf
from coharness.reward.linear.rows import read_pairs
from coharness.reward.reflection.conflicts import Audited
from coharness.reward.reflection.mend import Thresholds, mend
from coharness.tasks.sources import TaskSources


class JudgeRepairer:
    """Mends the judge of one run."""

    def __init__(self, config: RunConfig, run_dir: Path, sources: TaskSources) -> None:
        self._config = config
        self._shelf = LinearShelf(RunDir(run_dir).judges_dir)
        self._sources = sources
        self._codec: TextCodec | None = None

    def run(self, job: RepairJob, episodes: pa.Table) -> JobResult:
        """The end of a repair whose groups have these episodes; who drives it adds what it took.

        Raises:
            PreflightError: the run's judge cannot be mended.
            ValueError: the episodes hold nothing to learn from.
        """
        section, monitor = self._section(), self._config.reward.monitor
        if self._codec is None:
            self._codec = _open_codec(self._config)
        attempts, references = stored_audits(episodes, self._sources, self._codec)
        attempts = attempts[-monitor.window :]
        candidate, measured = mend(
            self._shelf.model(job.judge),
            attempts,
            references=references,
            clean=read_pairs(Path(section.pairs)) if section.pairs is not None else [],
            anchors=read_pairs(Path(str(section.anchors))),
            thresholds=thresholds_of(monitor),
            seed=job.seed,
        )
        self._shelf.add(candidate)
        return JobResult(
            job=job.id,
            status=JobStatus.DONE,
            metrics={"judge/attempts": float(len(attempts)), "judge/pairs": float(measured.num_pairs)},
            num_rows=len(attempts),
            mended=measured,
        )

    def _section(self) -> LinearJudgeSection:
        section = self._config.reward.judge
        if not isinstance(section, LinearJudgeSection) or section.anchors is None:
            raise PreflightError(
                "this run's judge cannot be mended; repairs need reward.judge of type linear with anchors"
            )
        return section


def thresholds_of(monitor: MonitorSection) -> Thresholds:
    """What counts as a conflict in a run."""
    return Thresholds(high=monitor.high, low=monitor.low, level=monitor.repair_level)


def stored_audits(episodes: pa.Table, sources: TaskSources, codec: TextCodec) -> tuple[list[Audited], dict[str, str]]:
    """Attempts of a replay store that a judge has scored, in its order, and the reference answer of each of their tasks.

    Attempts without an answer, or whose judge gave no score, are left out.
    """
    columns = ("task", "family", "level", "task_seed", "format", "token_ids", "loss_mask", "reference_ids")
    rows = episodes.select([*columns, "answer", "exact", "partial", "judged"]).to_pylist()
    questions: dict[str, str] = {}
    references: dict[str, str] = {}
    audited = []
    for row in rows:
        score = _score(row["judged"])
        if score is None or row["answer"] is None:
            continue
        task = row["task"]
        if task not in questions:
            ref = TaskRef(family=row["family"], level=row["level"], seed=row["task_seed"], id=TaskId(task))
            questions[task] = sources.make(ref).question
            references[task] = codec.decode(row["reference_ids"])
        written = [token for token, own in zip(row["token_ids"], row["loss_mask"], strict=True) if own]
        audited.append(
            Audited(
                task=task,
                question=questions[task],
                answer=codec.decode(written),
                format=row["format"],
                judged=score,
                verified=row["exact"] == 1.0,
                partial=row["partial"],
            )
        )
    return audited, references


def _score(judged: list[Mapping[str, Any]]) -> float | None:
    for part in judged:
        if part["name"] == SCORE_PART and part["outcome"] == PartOutcome.OK.value:
            return float(part["value"])
    return None


def _open_codec(config: RunConfig) -> TextCodec:
    from coharness.policy.bases import resolve_base
    from coharness.policy.codec import open_codec

    spec = resolve_base(config.policy.base)
    return open_codec(spec.path, is_chat=spec.is_chat)
