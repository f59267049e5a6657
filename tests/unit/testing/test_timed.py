"""The fleet in virtual time: who does what when."""

from dataclasses import replace
from itertools import count

import pytest

from coharness.records import events as ev
from coharness.records.policy import VersionRef
from coharness.testing.fleets import make_batch
from coharness.testing.simulated import SIMULATED_BASE, SimulatedFleet
from coharness.testing.timed import TimedFleet


def batches(num: int, size: int) -> list:
    ids = count(1)
    made = [make_batch(ids, ["plain"] * size) for _ in range(num)]
    return [replace(batch, weights={VersionRef("p0", 0): SIMULATED_BASE}) for batch in made]


def fleet(*rollouts: float) -> TimedFleet:
    return TimedFleet(SimulatedFleet(), rollouts=rollouts, trainers=[1.0], batch_items=4)


def run_out(made: TimedFleet, num: int) -> list[float]:
    """Virtual seconds at which `num` batches came back."""
    found = []
    while len(found) < num:
        found += [made.monotonic() for e in made.poll(1e6) if isinstance(e, ev.BatchDone)]
    return found


def test_each_worker_goes_its_own_pace_and_a_free_one_takes_what_waits():
    made = fleet(1.0, 4.0)
    made.submit(batches(6, size=4))
    # Two batches stand behind each worker; the fast one takes the rest as it comes free.
    assert run_out(made, 6) == [4.0, 8.0, 12.0, 16.0, 16.0, 32.0]
    assert [(w.name, w.num_units) for w in made.workers if not w.is_trainer] == [("rollout-0", 16), ("rollout-1", 8)]


def test_what_is_over_the_capacity_waits_and_comes_back_once():
    made = fleet(1.0)
    made.submit(batches(5, size=2))
    assert made.capacity().num_items == 0
    assert run_out(made, 5) == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert made.capacity() == ev.Capacity(num_items=8, num_jobs=1)


@pytest.mark.parametrize("timeout_s", [0.5, 3.0])
def test_an_idle_poll_moves_the_clock_by_its_timeout_alone(timeout_s):
    made = fleet(1.0)
    assert made.poll(timeout_s) == []
    assert made.monotonic() == timeout_s
