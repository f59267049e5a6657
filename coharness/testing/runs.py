"""Whole runs in a second or two, on the simulated fleet: real core, real engine, real journal, no models."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coharness.config.schema import RunConfig
from coharness.loop.build import fold_run, run_sources
from coharness.loop.clock import SystemClock
from coharness.loop.core import Evolution
from coharness.loop.engine import Engine, StopKind
from coharness.loop.journal import JournalWriter
from coharness.loop.run_dir import RunDir
from coharness.records import events as ev
from coharness.records.ids import NO_JUDGE
from coharness.testing.simulated import FIRST_JUDGE, SIMULATED_BASE, SimulatedFleet


def simulated_config(run_dir: Path, **sections: Any) -> RunConfig:
    """A small config over the built-in families; sections as keyword arguments, e.g. `budget={"rollouts": 3000}`."""
    defaults: dict[str, Any] = {
        "budget": {"rollouts": 4_000},
        "tasks": [{"type": "builtin", "max_level": 3}],
        "evolution": {
            "assess_every": 12,
            "merge_every": 10,
            "propose_every": 6,
            "spawn_every": 20,
            "newborn_updates": 2,
        },
        "training": {"groups_per_update": 32},
        "gate": {"max_pairs": 256, "null_pairs": 64},
        "evaluation": {"track_every": 1_000, "track_tasks": 18},
    }
    merged: dict[str, Any] = {"run_dir": str(run_dir), **defaults}
    for name, value in sections.items():
        is_section = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = {**merged[name], **value} if is_section else value
    return RunConfig.model_validate(merged)


def simulated_engine(run: RunDir, fleet: SimulatedFleet, *, resume: bool = False) -> tuple[Engine, Evolution]:
    """An engine over a run's folder, with the core that it drives."""
    config = run.load_config()
    epoch = run.acquire_lease()
    journal = JournalWriter(run.journal_dir, epoch)
    first: ev.Started | ev.Resumed
    if resume:
        evolution = fold_run(run)
        first = ev.Resumed(epoch=epoch)
    else:
        evolution = Evolution(config, run_sources(config))
        data = json.loads(config.model_dump_json())
        first = ev.Started(
            run_id=run.run_id,
            seed=config.seed,
            config=data,
            base=SIMULATED_BASE,
            code_digest="simulated",
            judge=NO_JUDGE if config.reward.judge is None else FIRST_JUDGE,
        )
    return Engine(evolution, fleet, journal, run, SystemClock(), epoch, first), evolution


def simulated_run(path: Path, fleet: SimulatedFleet | None = None, **sections: Any) -> tuple[RunDir, Evolution]:
    """A run that has ended, and its core."""
    run = RunDir.create(simulated_config(path, **sections))
    engine, evolution = simulated_engine(run, fleet or SimulatedFleet())
    kind = engine.run()
    assert kind is StopKind.DONE, f"the simulated run ended as {kind}"
    return run, evolution
