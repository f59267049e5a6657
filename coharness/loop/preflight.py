"""Checks before a run starts: what the config needs and this machine, these files and these engines have.

Each finding names the thing, what was found and the fix; an error refuses the run before any work is done.
"""

import os
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from coharness.config.reward import LinearJudgeSection, TrainedJudgeSection
from coharness.config.schema import CodeTasks, RunConfig, Schedule
from coharness.loop.build import run_sources
from coharness.loop.context import build_context
from coharness.policy.generation.declared import declared_capabilities, require_engine
from coharness.records.errors import CoharnessError, PreflightError
from coharness.reward.judges.lint import lint
from coharness.reward.judges.rubric import load_rubric
from coharness.reward.judges.secrets import key_from_env
from coharness.reward.linear.files import read_model
from coharness.reward.linear.rows import read_pairs
from coharness.reward.sandbox import Layer
from coharness.reward.training.record import read_record
from coharness.reward.verify.code import make_sandbox

MIN_FREE_BYTES = 2 * 2**30
MIN_ANCHORS_RIGHT = 0.6
"""Share of anchors that a judge should order rightly before a run trusts it."""


class Level(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    "The run is refused."
    WARNING = "warning"
    "The run starts; a person should know."
    INFO = "info"
    "Worth reading."


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a check found."""

    level: Level
    what: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightReport:
    """All findings."""

    findings: tuple[Finding, ...]

    def raise_if_failed(self) -> None:
        """Refuse the run where there is an error.

        Raises:
            PreflightError: names every error.
        """
        errors = [f"{f.what}: {f.message}" for f in self.findings if f.level is Level.ERROR]
        if errors:
            raise PreflightError("\n".join(errors))


def preflight(config: RunConfig) -> PreflightReport:
    """Check tasks, base, disk and cores; loads neither torch nor ray."""
    findings: list[Finding] = []
    try:
        sources = run_sources(config)
        ctx = build_context(config, sources)
        findings.append(
            Finding(
                level=Level.INFO,
                what="tasks",
                message=f"{len(ctx.space.formats)} families, {len(ctx.space.mix)} evaluation cells, "
                f"{ctx.space.num_variants} serving variants a family",
            )
        )
        sealed = len(ctx.space.mix)
        all_cells = sum(ctx.space.num_levels.values())
        if sealed < all_cells:
            findings.append(
                Finding(
                    level=Level.WARNING,
                    what="tasks",
                    message=f"{all_cells - sealed} of {all_cells} (family, level) cells have too few distinct tasks to be "
                    "sealed; they are trained on and not measured",
                )
            )
    except CoharnessError as error:
        findings.append(Finding(level=Level.ERROR, what="tasks", message=str(error)))
    findings += _sandbox_findings(config)
    findings += _judge_findings(config)
    findings += _base_findings(config)
    findings += _generation_findings(config)
    findings += _training_findings(config)
    findings += _machine_findings(config)
    return PreflightReport(findings=tuple(findings))


def _judge_findings(config: RunConfig) -> list[Finding]:
    """Whether the judge's rubric can be read and its key is set; nothing is asked of an endpoint."""
    section = config.reward.judge
    if section is None:
        return []
    what = "reward.judge"
    if isinstance(section, LinearJudgeSection):
        return _linear_judge_findings(config, section)
    if isinstance(section, TrainedJudgeSection):
        return _trained_judge_findings(section)
    try:
        rubric = load_rubric(section.rubric)
        key_from_env(section.api_key_env)
    except CoharnessError as error:
        return [Finding(level=Level.ERROR, what=what, message=str(error))]
    findings = [
        Finding(level=Level.WARNING, what=what, message=f"rubric {rubric.name}, {f.where}: {f.message}")
        for f in lint(rubric)
    ]
    about = f"{section.model} by rubric {rubric.name}@{rubric.version}, at most {section.max_calls} calls a worker"
    return [Finding(level=Level.INFO, what=what, message=about), *findings]


def _trained_judge_findings(section: TrainedJudgeSection) -> list[Finding]:
    """Whether the judge and its base are there, and whether it passed its gate."""
    from coharness.policy.bases import resolve_base

    what = "reward.judge"
    try:
        record = read_record(Path(section.folder))
        found = resolve_base(record.base).digest
    except CoharnessError as error:
        return [Finding(level=Level.ERROR, what=what, message=str(error))]
    if found != record.base_digest:
        message = (
            f"the judge in {section.folder} was trained on another base than {record.base} is here; train it again"
        )
        return [Finding(level=Level.ERROR, what=what, message=message)]
    about = (
        f"judge {record.id} on {record.base}, trained {record.objective}, at most {section.max_calls} answers a worker"
    )
    findings = [Finding(level=Level.INFO, what=what, message=about)]
    if not record.promoted:
        message = "it did not pass its gate: it is not known to be better than the judge before it"
        findings.append(Finding(level=Level.WARNING, what=what, message=message))
    return findings


def _linear_judge_findings(config: RunConfig, section: LinearJudgeSection) -> list[Finding]:
    """Whether the judge and the pairs it is mended by can be read, and how it orders its own anchors."""
    what = "reward.judge"
    try:
        model = read_model(Path(section.file))
        anchors = read_pairs(Path(section.anchors)) if section.anchors is not None else []
        clean = read_pairs(Path(section.pairs)) if section.pairs is not None else []
    except CoharnessError as error:
        return [Finding(level=Level.ERROR, what=what, message=str(error))]
    shared = {p.question for p in anchors} & {p.question for p in clean}
    if shared:
        message = (
            f"{len(shared)} questions stand in reward.judge.anchors and in reward.judge.pairs, the first is {min(shared)!r}; a "
            "judge that was fitted to its anchors is gated by nothing: take them out of one"
        )
        return [Finding(level=Level.ERROR, what=what, message=message)]
    ladder = ", ".join(config.reward.ladder) or "nothing"
    about = f"linear judge {model.id}, {len(anchors)} anchors, {len(clean)} pairs to replay; after alarms: {ladder}"
    findings = [Finding(level=Level.INFO, what=what, message=about)]
    right = sum(model.logit(p.question, p.better) > model.logit(p.question, p.worse) for p in anchors)
    if anchors and right < MIN_ANCHORS_RIGHT * len(anchors):
        message = f"orders {right} of {len(anchors)} anchors rightly, little better than a coin; fit it again"
        findings.append(Finding(level=Level.WARNING, what=what, message=message))
    return findings


def _sandbox_findings(config: RunConfig) -> list[Finding]:
    """Which layers run what the policies write; nothing is looked at where no task asks for code."""
    if not any(isinstance(section, CodeTasks) for section in config.tasks):
        return []
    sandbox = make_sandbox(config.reward.sandbox)
    try:
        layers = sandbox.layers
        absent = "".join(f"; {layer} is absent: {reason}" for layer, reason in sandbox.absent.items())
    except CoharnessError as error:
        return [Finding(level=Level.ERROR, what="reward.sandbox", message=str(error))]
    finally:
        sandbox.close()
    if Layer.UNSAFE in layers:
        message = f"code that a policy wrote runs UNSAFE, as a plain process of this machine{absent}"
        return [Finding(level=Level.WARNING, what="reward.sandbox", message=message)]
    level = Level.WARNING if absent else Level.INFO
    return [Finding(level=level, what="reward.sandbox", message=f"code runs in {', '.join(layers)}{absent}")]


def _training_findings(config: RunConfig) -> list[Finding]:
    """Whether the training backend is here."""
    if config.training.backend != "deepspeed":
        return []
    from coharness.policy.training.deepspeed_extra import deepspeed_problem

    what = "training.backend"
    if (problem := deepspeed_problem()) is not None:
        return [Finding(level=Level.ERROR, what=what, message=problem)]
    section = config.training.deepspeed
    message = f"deepspeed, ZeRO stage {section.stage}, {section.world_size} processes a trainer"
    return [Finding(level=Level.INFO, what=what, message=message)]


def _base_findings(config: RunConfig) -> list[Finding]:
    from coharness.policy.bases import resolve_base

    try:
        spec = resolve_base(config.policy.base)
    except CoharnessError as error:
        return [Finding(level=Level.ERROR, what="policy.base", message=str(error))]
    findings = [
        Finding(
            level=Level.INFO,
            what="policy.base",
            message=f"{spec.name}: {spec.num_parameters / 1e6:.2f} M parameters, digest {spec.digest[:12]}",
        )
    ]
    if config.policy.max_context > spec.max_context:
        findings.append(
            Finding(
                level=Level.ERROR,
                what="policy.max_context",
                message=f"is {config.policy.max_context}, the base {spec.name} has room for {spec.max_context} tokens",
            )
        )
    template = config.harness.template
    if spec.is_chat != template.startswith("chat"):
        kind = "chat" if spec.is_chat else "raw"
        findings.append(
            Finding(
                level=Level.WARNING,
                what="harness.template",
                message=f"is {template!r}, and {spec.name} is a {kind} base; "
                f"{'use a chat template' if spec.is_chat else 'use a template with a cue, such as bare'}",
            )
        )
    return findings


def _generation_findings(config: RunConfig) -> list[Finding]:
    """Whether the engine is here, and can do what the run will ask of it."""
    what = "generation.engine"
    try:
        word = require_engine(config.generation)
    except CoharnessError as error:
        return [Finding(level=Level.ERROR, what=what, message=str(error))]
    findings = [Finding(level=Level.INFO, what=what, message=word)] if word else []
    able = declared_capabilities(config.policy, config.generation)
    trains = config.schedule not in (Schedule.HARNESS_ONLY, Schedule.FROZEN)
    if trains and not (config.policy.weights in able.kinds and able.exact_tokens):
        findings.append(
            Finding(
                level=Level.ERROR,
                what=what,
                message=f"is {able.name!r}, which serves {', '.join(sorted(able.kinds))}, and schedule={config.schedule.value} "
                f"trains members of {config.policy.weights} weights on what the engine wrote; use transformers or vllm, or "
                "schedule=harness_only",
            )
        )
    if not able.counter_noise:
        findings.append(
            Finding(
                level=Level.WARNING,
                what=what,
                message=f"{able.name} draws by noise of its own: greedy answers are repeatable, the majority-vote control and "
                "other sampled ones are not",
            )
        )
    together = able.max_adapters
    if trains and 0 < together < config.population.num_policies:
        findings.append(
            Finding(
                level=Level.WARNING,
                what=what,
                message=f"{able.name} holds {together} set of {config.policy.weights} weights at a time and loads another for "
                f"each of {config.population.num_policies} members in turn; policy.weights=lora serves them side by side",
            )
        )
    return findings


def _machine_findings(config: RunConfig) -> list[Finding]:
    findings = []
    folder = Path(config.run_dir).absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        findings.append(
            Finding(
                level=Level.ERROR,
                what="run_dir",
                message=f"{folder} has {free / 2**30:.1f} GiB free, a run needs at least {MIN_FREE_BYTES / 2**30:.0f} GiB; "
                "free some, or choose another run_dir",
            )
        )
    if not os.access(folder, os.W_OK):
        findings.append(Finding(level=Level.ERROR, what="run_dir", message=f"{folder} cannot be written to"))
    cores = os.cpu_count() or 1
    processes = config.training.deepspeed.world_size if config.training.backend == "deepspeed" else 1
    wanted = (config.fleet.rollout_workers + config.fleet.trainers * processes) * config.fleet.threads_per_worker
    if wanted > 2 * cores:
        findings.append(
            Finding(
                level=Level.WARNING,
                what="fleet",
                message=f"asks for {wanted} threads on {cores} cores; oversubscribed, everything is slower",
            )
        )
    return findings
