"""What an actor is started with: names, factories, deadlines, Ray options. Owns no state.

Everything that crosses to a worker process is in `ActorSpec`, a frozen record of plain values, so that a worker can be
started again from it alone.
"""

import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coharness.config.schema import RunConfig
from coharness.records.ids import content_hash

NAMESPACE = "coharness"
"""The Ray namespace of all named actors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factories:
    """Dotted paths, `package.module:function`, of what the actors build; tests put doubles here."""

    rollout: str = "coharness.loop.build:build_rollout_worker"
    "(config, run_dir, worker_name) -> RolloutWorker"
    jobs: str = "coharness.loop.build:build_job_runner"
    "(config, run_dir, replay) -> JobRunner"
    replay: str = "coharness.loop.build:open_replay_store"
    "(run_dir, epoch) -> ReplayStore"
    weights: str = "coharness.loop.build:open_weight_store"
    "(run_dir) -> WeightStore"
    engine: str = "coharness.loop.build:build_engine"
    "(run_dir, fleet, epoch, resume) -> Engine"


START_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long anything is waited for."""

    start_s: float = START_S
    "From the request for a worker to its first answer; imports of torch on a busy machine are most of it."
    replay_s: float = 60.0
    "An append or a fetch, restarts of the replay actor included."
    ping_every_s: float = 5.0
    "Between two pings of the replay actor."
    ping_s: float = 30.0
    "A ping of the replay actor that takes longer means that it hangs."
    hearing_s: float = 30.0
    "A worker that hears no coordinator for so long ends itself."
    end_s: float = 10.0
    "For an actor that was killed to be gone."

    @classmethod
    def of(cls, config: RunConfig) -> "Deadlines":
        """The usual ones; an engine that starts processes of its own has its own deadline, which must come first."""
        engine = config.generation.vllm.start_s if config.generation.engine == "vllm" else 0.0
        trainer = config.training.deepspeed.start_s if config.training.backend == "deepspeed" else 0.0
        return cls(start_s=START_S + max(engine, trainer))


def trainer_cores(config: RunConfig) -> int:
    """Cores that one trainer asks for: those of all its ranks."""
    ranks = config.training.deepspeed.world_size if config.training.backend == "deepspeed" else 1
    return config.fleet.threads_per_worker * ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorSpec:
    """All that a worker process needs to build what it serves."""

    name: str
    "Name in events and logs: rollout-0, trainer-0, replay."
    run_dir: str
    config: dict[str, Any]
    "The resolved config as JSON values."
    epoch: int
    factories: Factories = field(default_factory=Factories)
    deadlines: Deadlines = field(default_factory=Deadlines)
    coordinator: str | None = None
    "Name of the coordinator that the worker listens for; None where a fleet has none (tests)."

    @property
    def path(self) -> Path:
        """The run directory."""
        return Path(self.run_dir)

    def load_config(self) -> RunConfig:
        """The resolved config."""
        return RunConfig.model_validate(self.config)


def resolve(dotted: str) -> Callable[..., Any]:
    """The function that a dotted path names.

    Raises:
        ValueError: the path has another shape, or the module has no such function.
    """
    module, separator, name = dotted.partition(":")
    if not separator:
        raise ValueError(f"a factory is written `package.module:function`, got {dotted!r}")
    found = vars(importlib.import_module(module)).get(name)
    if not callable(found):
        raise ValueError(f"{module} has no function {name!r}; check the factory path {dotted!r}")
    return found  # type: ignore[no-any-return]


def coordinator_name(run_dir: Path) -> str:
    """Name of the coordinator of a run: the folder's name, made unique by its full path."""
    path = Path(run_dir).resolve()
    return f"coharness/{path.name}-{content_hash(str(path), 8)}"


def thread_env(num_threads: int) -> dict[str, str]:
    """Environment that bounds the threads of every numeric library; read once, when a library loads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    return {**{name: str(num_threads) for name in names}, "TOKENIZERS_PARALLELISM": "false"}


def log_to(run_dir: Path, name: str) -> None:
    """Send what coharness logs in this process to `logs/<name>.log` of the run; called once, by an actor that starts."""
    folder = run_dir / "logs"
    folder.mkdir(exist_ok=True)
    handler = logging.FileHandler(folder / f"{name}.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    for package in ("coharness", "actors"):
        logger = logging.getLogger(package)
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)


def actor_name(spec: ActorSpec, incarnation: int) -> str:
    """Name of one life of a worker in Ray; recorded, so that a later epoch can end it."""
    return f"{spec.coordinator or coordinator_name(spec.path)}/e{spec.epoch}/{spec.name}.{incarnation}"
