"""The in-process fleet keeps the contract of fleets; the Ray fleet's part is in tests/ray_local."""

import itertools
from pathlib import Path
from typing import Any, cast

import pytest

from coharness.config.schema import FleetSection, RunConfig
from coharness.loop.local_fleet import LocalFleet
from coharness.testing import fleet_doubles
from coharness.testing.fleets import FLEET_CHECKS, Check, FleetCase


def local_case(run_dir: Path) -> FleetCase:
    config = RunConfig(run_dir=str(run_dir), fleet=FleetSection(type="local", batch_items=8, max_attempts=2))
    store = fleet_doubles.open_store(run_dir, 1)
    fleet = LocalFleet(
        worker=fleet_doubles.build_worker(config, run_dir, "local"),
        jobs=cast(Any, fleet_doubles.build_jobs(config, run_dir, store)),
        replay=store,
        weights=fleet_doubles.open_weights(run_dir),
        batch_items=config.fleet.batch_items,
    )
    return FleetCase(fleet=fleet, run_dir=run_dir, config=config, ids=itertools.count(1))


@pytest.mark.parametrize("check", FLEET_CHECKS, ids=lambda check: check.__name__)
def test_the_in_process_fleet(check: Check, tmp_path: Path) -> None:
    check(local_case(tmp_path))
