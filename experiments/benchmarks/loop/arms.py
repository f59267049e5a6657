"""What is compared with what: the comparisons, their sides, and the configs that make two loops do the same work."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GROUP_SIZE = 8
GROUPS_PER_UPDATE = 2
LEARNING_RATE = 3e-5
BETAS = (0.9, 0.95)
"""Of our optimizer, told to TRL's; a test compares them, since what trains here is not to be loaded for its constants."""
MAX_CONTEXT = 256
CORES = (0, 1)
SHARED: Mapping[str, Any] = {
    "group_size": GROUP_SIZE,
    "groups_per_update": GROUPS_PER_UPDATE,
    "learning_rate": LEARNING_RATE,
    "betas": list(BETAS),
}
"""What TRL is told besides the load; the rest of what both share stands in `peer` and in `run_config`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way to carry a comparison's work out."""

    name: str
    threads: int = 1
    "Of TRL's process; ours has one a worker."
    is_trl: bool = False
    max_staleness: int = 0
    fleet: Mapping[str, Any] = field(default_factory=dict)
    reward: Mapping[str, Any] = field(default_factory=dict)
    "The config's `reward` section."


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A load, and the sides that carry it."""

    name: str
    base: str
    "`1m`, the tiny base, or `10m`, one of the same kind with random weights."
    task: str
    "Function in tasks.py; empty for the built-in families."
    lengths: str | None
    "See `load.answer_length`; None where answers end by themselves."
    reward: str
    "What TRL pays, in `peer`'s words."
    warm_updates: int
    updates: int
    rounds: int
    sides: tuple[Side, ...]
    "Ours first: its prompts are TRL's, in the same order. Every other round goes backwards."


TRL = (Side(name="trl_1", is_trl=True), Side(name="trl_2", is_trl=True, threads=2))
ON_RAY: Mapping[str, Any] = {"type": "ray", "rollout_workers": 1, "batch_items": GROUPS_PER_UPDATE}
LOCAL: Mapping[str, Any] = {"type": "local", "batch_items": GROUPS_PER_UPDATE}
PLAIN = (
    Side(name="ours", max_staleness=1, fleet=ON_RAY),
    Side(name="ours_bound_0", max_staleness=0, fleet=ON_RAY),
    Side(name="ours_in_process", max_staleness=0, fleet=LOCAL),
    *TRL,
)
WIDE = 4
"""Staleness bound where waits are to be hidden: what is under way at any time is several updates' worth."""
LATE = (
    Side(
        name="ours",
        max_staleness=WIDE,
        fleet={**ON_RAY, "rollout_workers": 3},
        reward={"concurrency": GROUP_SIZE * GROUPS_PER_UPDATE},
    ),
    Side(
        name="ours_bound_1",
        max_staleness=1,
        fleet={**ON_RAY, "rollout_workers": 2},
        reward={"concurrency": GROUP_SIZE * GROUPS_PER_UPDATE},
    ),
    *TRL,
)
TAIL = (
    Side(name="ours", max_staleness=WIDE, fleet={**ON_RAY, "rollout_workers": 2}),
    Side(name="ours_bound_1", max_staleness=1, fleet={**ON_RAY, "rollout_workers": 2}),
    *TRL,
)
_NUMBERS: Mapping[str, Any] = {"task": "prompt", "reward": "number", "rounds": 2}
COMPARISONS = (
    Comparison(name="plain_1m", base="1m", lengths="fixed", warm_updates=10, updates=300, sides=PLAIN, **_NUMBERS),
    Comparison(name="plain_10m", base="10m", lengths="fixed", warm_updates=4, updates=40, sides=PLAIN, **_NUMBERS),
    Comparison(
        name="late",
        base="1m",
        task="late",
        lengths="fixed",
        reward="late",
        warm_updates=10,
        updates=200,
        rounds=2,
        sides=LATE,
    ),
    Comparison(name="tail", base="1m", lengths="tail", warm_updates=10, updates=200, sides=TAIL, **_NUMBERS),
)
LEARNING = Comparison(
    name="quality",
    base="1m",
    task="",
    lengths=None,
    reward="exact",
    warm_updates=10,
    updates=600,
    rounds=1,
    sides=(Side(name="ours", max_staleness=WIDE, fleet={**ON_RAY, "rollout_workers": 2}), TRL[0]),
)
"""Both learn the built-in families from the same prompts, and are read on the same sealed tasks."""
MAX_LEVEL = 4


def run_config(comparison: Comparison, side: Side, *, seed: int, run_dir: Path, base: str) -> dict[str, Any]:
    """The config of a run of ours: one member, one harness that never moves; nothing is selected, merged, tested or read."""
    learns = not comparison.task
    tasks = {"type": "builtin", "max_level": MAX_LEVEL}
    if not learns:
        tasks = {"type": "python", "path": f"{HERE / 'tasks.py'}:{comparison.task}"}
    return {
        "run_dir": str(run_dir),
        "seed": seed,
        "schedule": "weights_only",
        "budget": {"rollouts": 10**7, "minutes": 24 * 60},
        "population": {"num_policies": 1, "num_harnesses": 1},
        "fleet": {"trainers": 1, "threads_per_worker": 1, **side.fleet},
        "tasks": [tasks],
        "policy": {"base": base, "max_context": MAX_CONTEXT},
        "training": {
            "objective": "grpo",
            "group_size": GROUP_SIZE,
            "groups_per_update": GROUPS_PER_UPDATE,
            "max_staleness": side.max_staleness,
            "kl_coefficient": 0.0,
            "temperature": [1.0, 1.0],
            "learning_rate": [LEARNING_RATE, LEARNING_RATE],
            "initial_learning_rate": LEARNING_RATE,
        },
        "harness": {
            "level_low": 1,
            "level_high": MAX_LEVEL if learns else 1,
            "formats": ["plain"],
            "reward": {} if learns else {"exact": 0.0, "partial": 1.0},
        },
        "reward": dict(side.reward),
        "evaluation": {"tokens_per_task": max_tokens(comparison), "track_tasks": 0},
        "gate": {"null_tests": 0},
        "evolution": {"exploit": "none", "merge_every": 0, "assess_every": 10**6, "spawn_every": 0},
    }


def max_tokens(comparison: Comparison) -> int:
    """Bound on the tokens of an answer, the same for both sides."""
    return 64 if comparison.lengths is None else 128
