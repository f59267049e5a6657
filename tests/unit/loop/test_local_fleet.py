"""The in-process fleet: one command a poll, in order, and every failure attributed."""

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coharness.config.schema import RunConfig
from coharness.loop.local_fleet import QUEUED_BATCHES, LocalFleet
from coharness.loop.replay_store import ArrowReplayStore
from coharness.records.errors import Boundary
from coharness.records.events import BatchDone, Cancel, Capacity, Event, JobDone, Retire
from coharness.records.ids import ItemId, JobId, PolicyId
from coharness.records.policy import PolicyVersion, VersionRef
from coharness.records.protocols import ReplayStore
from coharness.records.training import MergeJob, TrainJob
from coharness.records.work import OutcomeStatus
from coharness.testing.fleet_doubles import BASE, ScriptedJobs, ScriptedWeights, ScriptedWorker, marks
from coharness.testing.fleets import FleetCase, make_batch, make_job


class NoRoom:
    """A replay store on a full disk."""

    def append(self, table: pa.Table) -> None:
        raise OSError(28, "No space left on device")

    def fetch(self, items: Sequence[ItemId]) -> pa.Table:
        raise KeyError(items)


def fleet(run_dir: Path, store: ReplayStore | None = None) -> LocalFleet:
    replay = ArrowReplayStore(run_dir / "replay", 1) if store is None else store
    jobs: Any = ScriptedJobs(run_dir, replay)  # Has a job runner's one method.
    return LocalFleet(ScriptedWorker(run_dir, "local"), jobs, replay, ScriptedWeights(run_dir), batch_items=64)


def drained(made: LocalFleet) -> list[Event]:
    events: list[Event] = []
    for _ in range(20):
        events += made.poll(0.0)
    return events


@pytest.fixture
def ids() -> Iterator[int]:
    return count(1)


def test_commands_are_carried_out_one_a_poll_in_the_order_they_came(tmp_path: Path, ids: Iterator[int]) -> None:
    made = fleet(tmp_path)
    first, second = make_batch(ids, ["ok", "ok"]), make_batch(ids, ["ok"])
    case = FleetCase(fleet=made, run_dir=tmp_path, config=RunConfig(run_dir=str(tmp_path)), ids=ids)
    job = make_job(case, "p0", [first])
    made.submit([first, job, second])
    assert marks(tmp_path, f"began-{first.items[0].id}") == []
    events = [made.poll(0.0) for _ in range(4)]
    assert [[type(e) for e in found] for found in events] == [[BatchDone], [JobDone], [BatchDone], []]
    assert events[1][0].result.num_rows == 2  # type: ignore[union-attr]


def test_it_asks_for_two_batches_and_one_job_ahead(tmp_path: Path, ids: Iterator[int]) -> None:
    made = fleet(tmp_path)
    assert made.capacity() == Capacity(num_items=QUEUED_BATCHES * 64, num_jobs=1)
    made.submit([make_batch(ids, ["ok"])])
    assert made.capacity() == Capacity(num_items=(QUEUED_BATCHES - 1) * 64, num_jobs=1)
    version = PolicyVersion(ref=VersionRef(PolicyId("p0"), 0), weights=BASE, parents=(), operator="base")
    merge = MergeJob(id=JobId(9), child=PolicyId("p1"), rule="linear", parents=(version,), weights=(1.0,))
    made.submit([merge, *(make_batch(ids, ["ok"]) for _ in range(5))])
    assert made.capacity() == Capacity(num_items=0, num_jobs=0)
    drained(made)
    assert made.capacity() == Capacity(num_items=QUEUED_BATCHES * 64, num_jobs=1)


def test_a_cancelled_item_ends_as_cancelled_and_the_rest_of_its_batch_runs(tmp_path: Path, ids: Iterator[int]) -> None:
    made = fleet(tmp_path)
    batch, whole = make_batch(ids, ["ok", "ok", "ok"]), make_batch(ids, ["do:raise"])
    made.submit([batch, whole, Cancel(items=(batch.items[1].id, whole.items[0].id), reason="decided")])
    results = [event.result for event in drained(made) if isinstance(event, BatchDone)]
    statuses = {o.item: o.status for result in results for o in result.outcomes}
    assert [statuses[i.id] for i in batch.items] == [OutcomeStatus.DONE, OutcomeStatus.CANCELLED, OutcomeStatus.DONE]
    # A batch that nobody wants does not reach the worker.
    assert statuses[whole.items[0].id] is OutcomeStatus.CANCELLED
    assert marks(tmp_path, f"began-{batch.items[1].id}") == []


def test_a_worker_that_breaks_fails_the_batch_and_the_fleet_goes_on(tmp_path: Path, ids: Iterator[int]) -> None:
    made = fleet(tmp_path)
    made.submit([make_batch(ids, ["ok", "do:raise"]), make_batch(ids, ["ok"])])
    first, second = (event.result for event in drained(made) if isinstance(event, BatchDone))
    assert {(o.status, o.boundary) for o in first.outcomes} == {(OutcomeStatus.FAILED, Boundary.WORKER)}
    assert "scripted to break" in first.outcomes[0].message
    assert [o.status for o in second.outcomes] == [OutcomeStatus.DONE]


def test_episodes_that_cannot_be_kept_are_failed_items(tmp_path: Path, ids: Iterator[int]) -> None:
    made = fleet(tmp_path, NoRoom())
    made.submit([make_batch(ids, ["ok", "do:fail"])])
    (event,) = drained(made)
    assert isinstance(event, BatchDone)
    # Without its episodes a done item could be trained on and never found.
    assert {(o.status, o.boundary) for o in event.result.outcomes} == {(OutcomeStatus.FAILED, Boundary.REPLAY)}


def test_weights_are_retired_in_their_turn(tmp_path: Path) -> None:
    folder = tmp_path / "weights" / "p0" / "v1"
    folder.mkdir(parents=True)
    made = fleet(tmp_path)
    made.submit([Retire(uris=("weights/p0/v1", "weights/p0/v2"))])
    assert folder.exists()
    assert drained(made) == []
    assert not folder.exists()


def test_a_job_gets_the_episodes_of_its_groups(tmp_path: Path, ids: Iterator[int]) -> None:
    made = fleet(tmp_path)
    batches = [make_batch(ids, ["ok", "ok"], group_size=3) for _ in range(2)]
    version = PolicyVersion(ref=VersionRef(PolicyId("p0"), 0), weights=BASE, parents=(), operator="base")
    job = TrainJob(
        id=JobId(5),
        start=version,
        step=1,
        hyperparameters={},
        items=tuple(i.id for i in batches[0].items),
        borrowed=(batches[1].items[0].id,),
        seed=0,
    )
    made.submit([*batches, job])
    (result,) = (event.result for event in drained(made) if isinstance(event, JobDone))
    assert result.num_rows == 9


def test_closing_a_worker_that_has_nothing_to_close_is_fine(tmp_path: Path) -> None:
    fleet(tmp_path).close(1.0)
