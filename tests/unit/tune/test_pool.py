"""Worker processes: what comes back when they die, hang or chatter."""

import time
from pathlib import Path

import pytest

from coharness.tune.api import search
from coharness.tune.config import dump_tune_config
from coharness.tune.events import Order, Report
from coharness.tune.files import SearchDir
from coharness.tune.pool import ProcessPool
from tests.unit.tune.small import Dies, config


def order(rate: float, slot: int = 0) -> Order:
    return Order(
        slot=slot, segment=f"p{slot}-1", parents=(), hyperparameters={"rate": rate}, seed=0, reseed=False, steps=2
    )


def reports(pool: ProcessPool, num: int) -> list[Report]:
    found: list[Report] = []
    until = time.monotonic() + 120
    while len(found) < num:
        assert time.monotonic() < until, "the pool sent nothing"
        found += pool.poll(1.0)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a"


def test_a_worker_that_dies_is_replaced_and_the_others_go_on(folder: Path) -> None:
    made = config(folder, kind=Dies, pool={"type": "process", "workers": 2, "max_attempts": 2})
    pool = ProcessPool(SearchDir.create(folder, dump_tune_config(made)), made)
    try:
        pool.submit(order(0.95, slot=0))
        pool.submit(order(0.5, slot=1))
        assert pool.num_free == 0
        found = {report.slot: report for report in reports(pool, 2)}
        assert "died with exit code 3, 2 times" in found[0].error
        assert (found[1].error, found[1].steps) == ("", 2)
        assert pool.num_free == 2
        pool.submit(order(0.5, slot=0))
        assert reports(pool, 1)[0].error == ""
    finally:
        pool.close()


def test_a_worker_that_hangs_is_ended_at_its_deadline(folder: Path) -> None:
    made = config(folder, kind=Dies, pool={"type": "process", "workers": 1, "max_attempts": 1, "deadline_s": 0.2})
    pool = ProcessPool(SearchDir.create(folder, dump_tune_config(made)), made)
    try:
        pool.submit(order(0.85))
        assert "did not end within 0.2 s" in reports(pool, 1)[0].error
    finally:
        pool.close()


def test_a_search_survives_members_that_take_their_process_with_them(folder: Path) -> None:
    initial = [{"rate": 0.95}, {"rate": 0.5}, {"rate": 0.4}]
    pool = {"type": "process", "workers": 2, "max_attempts": 1}
    found = search(config(folder, kind=Dies, members=3, initial=initial, pool=pool, budget={"steps": 9}))
    assert found["failures"] >= 1
    assert found["steps"] == 27
    assert "a trainable may print" in "".join(path.read_text() for path in (folder / "logs").iterdir())
