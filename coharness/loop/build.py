"""Builds the parts of a run from its config: the one place in `coharness` where they meet.

Heavy imports (torch, transformers) happen inside the functions that need them, in the process that uses them.
"""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import coharness
from coharness.config.reward import JudgeSection, LinearJudgeSection, TrainedJudgeSection
from coharness.config.schema import RunConfig
from coharness.loop.clock import SystemClock
from coharness.loop.core import Evolution
from coharness.loop.engine import Engine
from coharness.loop.journal import JournalWriter, read_frames
from coharness.loop.replay_store import ArrowReplayStore
from coharness.loop.run_dir import RunDir
from coharness.policy.threads import set_threads
from coharness.policy.weight_folders import WeightFolders
from coharness.records import events as ev
from coharness.records.ids import NO_JUDGE, JudgeId, content_hash
from coharness.records.policy import WeightsRef
from coharness.records.protocols import Fleet, Generator, ReplayStore
from coharness.reward.verify import VerifierRouter
from coharness.tasks.sources import TaskSources, build_sources

if TYPE_CHECKING:
    from coharness.loop.jobs import JobRunner, TrainingBackend
    from coharness.loop.worker import EpisodeWorker
    from coharness.reward.judges.protocol import AttemptJudge, JudgeShelf


def run_sources(config: RunConfig) -> TaskSources:
    """The task sources of a config; its paths are absolute since it was loaded."""
    return build_sources(config.tasks, Path.cwd())


def build_generator(config: RunConfig, run_dir: Path) -> tuple[Generator, int]:
    """The generation engine, and the longest context it may be asked for.

    Raises:
        PreflightError: the base or the engine's extra is not here.
        BoundaryError: the engine's process did not start.
    """
    from coharness.policy.bases import load_base, resolve_base

    set_threads(config.fleet.threads_per_worker)
    spec = resolve_base(config.policy.base)
    generator: Generator
    match config.generation.engine:
        case "transformers":
            from coharness.policy.generation.transformers_engine import TransformersGenerator

            generator = TransformersGenerator(
                load_base(spec, config.policy.dtype),
                run_dir,
                batch_size=config.generation.batch_size,
                max_adapters=config.generation.max_adapters,
                lora=config.policy.lora if config.policy.weights == "lora" else None,
            )
        case "vllm":
            from coharness.policy.generation.vllm_engine import VllmGenerator

            generator = VllmGenerator(
                spec, run_dir, config.policy, config.generation, num_threads=config.fleet.threads_per_worker
            )
        case "openai":
            from coharness.policy.generation.endpoint import EndpointGenerator

            generator = EndpointGenerator(spec, config.policy, config.generation)
    return generator, min(config.policy.max_context, spec.max_context)


def build_rollout_worker(config: RunConfig, run_dir: Path, worker_name: str) -> "EpisodeWorker":
    """A rollout worker for this process."""
    from coharness.loop.worker import EpisodeWorker

    sources = run_sources(config)
    generator, max_context = build_generator(config, run_dir)
    return EpisodeWorker(
        worker_name,
        sources,
        generator,
        VerifierRouter(sources.scorers, sandbox=config.reward.sandbox),
        max_context,
        judges=build_judge_shelf(config, run_dir),
        deadline_s=config.generation.deadline_s,
        concurrency=config.reward.concurrency,
    )


def build_judge_shelf(config: RunConfig, run_dir: Path) -> "JudgeShelf | None":
    """The versions of a run's judge; None where it has no judge.

    Raises:
        ConfigError: the rubric or an endpoint is wrong.
        PreflightError: the endpoint's key is not set.
    """
    match config.reward.judge:
        case None:
            return None
        case LinearJudgeSection():
            from coharness.reward.linear.files import LinearShelf

            return LinearShelf(RunDir(run_dir).judges_dir)
        case JudgeSection() | TrainedJudgeSection() as section:
            from coharness.reward.judges.protocol import OneJudge

            return OneJudge(build_fixed_judge(section, run_dir))


def build_fixed_judge(section: JudgeSection | TrainedJudgeSection, run_dir: Path) -> "AttemptJudge":
    """A run's judge of a single version, its judgments kept in the run's folder; see `build_judge_shelf` for what is refused."""
    cache = run_dir / "judge" / "cache.sqlite"
    if isinstance(section, TrainedJudgeSection):
        from coharness.loop.trained_judge import open_trained_judge
        from coharness.reward.judges.budget import Budget

        budget = Budget(max_calls=section.max_calls, max_tokens=10**15)
        return open_trained_judge(Path(section.folder), cache=cache if section.cache else None, budget=budget)
    from coharness.reward.judges.build import build_judge

    return build_judge(section, cache)


def build_job_runner(config: RunConfig, run_dir: Path, replay: ReplayStore) -> "JobRunner":
    """A trainer for this process."""
    from coharness.loop.jobs import JobRunner

    set_threads(config.fleet.threads_per_worker)
    repairer = None
    if config.reward.can_repair:
        from coharness.loop.repairing import JudgeRepairer

        repairer = JudgeRepairer(config, run_dir, run_sources(config))
    return JobRunner(run_dir, config.policy, build_training_backend(config, run_dir), replay, repairer)


def build_training_backend(config: RunConfig, run_dir: Path) -> "TrainingBackend":
    """What runs updates: in this process, or in a group of processes that this one starts and ends."""
    if config.training.backend == "deepspeed":
        from coharness.policy.training.deepspeed_trainer import DeepSpeedTrainer, group_starter

        start = group_starter(config.policy, config.training, num_threads=config.fleet.threads_per_worker)
        return DeepSpeedTrainer(start, run_dir, config.training)
    from coharness.policy.bases import load_base, resolve_base
    from coharness.policy.training.torch_trainer import TorchTrainer
    from coharness.policy.weights import DiskWeightStore

    base = load_base(resolve_base(config.policy.base), config.policy.dtype)
    return TorchTrainer(base, DiskWeightStore(run_dir), run_dir, config.training, config.policy)


def open_replay_store(run_dir: Path, epoch: int) -> ArrowReplayStore:
    """The run's replay store, for the one process that writes it."""
    return ArrowReplayStore(RunDir(run_dir).replay_dir, epoch)


def open_weight_store(run_dir: Path) -> WeightFolders:
    """The folders of the run's weights."""
    return WeightFolders(run_dir)


def code_digest() -> str:
    """SHA-256 over the package's sources: whether a replay runs the code that the run did."""
    root = Path(coharness.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def base_reference(config: RunConfig) -> WeightsRef:
    """The untouched base, where every member starts."""
    from coharness.policy.bases import base_weights_ref, load_base, resolve_base

    set_threads(config.fleet.threads_per_worker)
    return base_weights_ref(load_base(resolve_base(config.policy.base), config.policy.dtype))


def fold_run(run: RunDir) -> Evolution:
    """The core of a run as its journal tells it."""
    config = run.load_config()
    evolution = Evolution(config, run_sources(config))
    for frame in read_frames(run.journal_dir):
        for event in frame.events:
            evolution.tell(event)
    return evolution


def build_engine(run_dir: Path, fleet: Fleet, epoch: int, resume: bool) -> Engine:
    """The engine of a new run, or of one that goes on.

    Args:
        run_dir: a folder made by `RunDir.create`.
        fleet: what carries the work out.
        epoch: from `RunDir.acquire_lease`; the caller holds the lease.
        resume: whether to fold the journal and go on.
    """
    run = RunDir.open(run_dir)
    config = run.load_config()
    first: ev.Started | ev.Resumed
    if resume:
        journal = JournalWriter(run.journal_dir, epoch)
        evolution = fold_run(run)
        if not evolution.state.run_id:
            first = _started(run, config)
        else:
            first = ev.Resumed(epoch=epoch)
            _drop_orphans(run.path, evolution)
    else:
        evolution = Evolution(config, run_sources(config))
        journal = JournalWriter(run.journal_dir, epoch)
        first = _started(run, config)
    return Engine(evolution, fleet, journal, run, SystemClock(), epoch, first)


def _started(run: RunDir, config: RunConfig) -> ev.Started:
    data: dict[str, Any] = json.loads(config.model_dump_json())
    return ev.Started(
        run_id=run.run_id,
        seed=config.seed,
        config=data,
        base=base_reference(config),
        code_digest=code_digest(),
        judge=_first_judge(config, run),
    )


def _first_judge(config: RunConfig, run: RunDir) -> JudgeId:
    """Name of the judge that a run begins with, empty where it has none; a linear one is copied into the run's folder."""
    match config.reward.judge:
        case LinearJudgeSection(file=file):
            from coharness.reward.linear.files import LinearShelf, read_model

            return LinearShelf(run.judges_dir).add(read_model(Path(file)))
        case TrainedJudgeSection(folder=folder):
            from coharness.reward.training.record import read_record

            return JudgeId(f"t-{read_record(Path(folder)).id}")
        case JudgeSection() as section:
            from coharness.reward.judges.rubric import load_rubric

            return JudgeId(f"e-{content_hash([section.model, load_rubric(section.rubric).version])}")
        case _:
            return NO_JUDGE


def _drop_orphans(run_dir: Path, evolution: Evolution) -> None:
    """Delete weights that no event tells of: half written, half deleted, or published by a job that is run again."""
    folders = WeightFolders(run_dir)
    folders.retire(folders.unlisted([v.weights.uri for v in evolution.state.versions.values()]))
