"""The Ray fleet keeps the contract of fleets, kills included."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.fleet import RayFleet
from actors.options import ActorSpec, Deadlines, Factories
from actors.session import Session
from actors.slots import WorkerDied
from actors.workers import Starter
from coharness.config.schema import FleetSection, RunConfig
from coharness.testing.fleets import FLEET_CHECKS, PROCESS_FLEET_CHECKS, Check, FleetCase, collect, make_batch

DOUBLES = Factories(
    rollout="coharness.testing.fleet_doubles:build_worker",
    jobs="coharness.testing.fleet_doubles:build_jobs",
    replay="coharness.testing.fleet_doubles:open_store",
    weights="coharness.testing.fleet_doubles:open_weights",
)


def make_config(run_dir: Path, *, workers: int = 2, trainers: int = 2) -> RunConfig:
    section = FleetSection(rollout_workers=workers, trainers=trainers, batch_items=8, max_attempts=2, lease_s=4.0)
    return RunConfig(run_dir=str(run_dir), fleet=section)


@pytest.fixture(scope="module")
def case(ray_session: Session, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetCase]:
    run_dir = tmp_path_factory.mktemp("fleet")
    config = make_config(run_dir)
    fleet = RayFleet(run_dir, config, 1, factories=DOUBLES, deadlines=Deadlines(ping_every_s=0.5))
    yield FleetCase(fleet=fleet, run_dir=run_dir, config=config, ids=itertools.count(1))
    fleet.close(20.0)


@pytest.mark.parametrize("check", [*FLEET_CHECKS, *PROCESS_FLEET_CHECKS], ids=lambda check: check.__name__)
def test_the_ray_fleet(check: Check, case: FleetCase) -> None:
    check(case)


def test_a_batch_costs_the_fleet_little(case: FleetCase) -> None:
    batches = [make_batch(case.ids, ["ok"] * 8) for _ in range(100)]
    started = time.perf_counter()
    case.fleet.submit(batches)
    collect(case, batches)
    per_batch_ms = (time.perf_counter() - started) / len(batches) * 1e3
    # About 5 ms on an idle machine with the sync of the episodes to disk; the bound leaves room for a busy one.
    assert per_batch_ms < 60


def test_a_worker_that_cannot_be_built_dies_with_its_cause(ray_session: Session, tmp_path: Path) -> None:
    factories = Factories(rollout="coharness.testing.fleet_doubles:build_broken_worker")
    config = make_config(tmp_path).model_dump(mode="json")
    spec = ActorSpec(name="", run_dir=str(tmp_path), config=config, epoch=1, factories=factories)
    starter = Starter(spec=spec, num_cpus=1, record=tmp_path / "logs" / "actors.json")
    worker = starter.rollout("rollout-0", replay=None)
    with pytest.raises(WorkerDied, match="ValueError: this worker cannot be built"):
        worker.result(worker.ready())
    assert starter.end_all(20.0) == []
