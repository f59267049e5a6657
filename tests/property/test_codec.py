"""The codec's one promise, `decode(T, encode(T, x)) == x`, for work items and what surrounds them."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.records import events as ev
from coharness.records.codec import decode, encode
from coharness.records.errors import Boundary
from coharness.records.policy import VersionRef
from coharness.records.task import TaskRef
from coharness.records.work import BatchResult, Outcome, OutcomeStatus, Purpose, WorkItem

names = st.text(max_size=6)
naturals = st.integers(0, 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
items = st.builds(
    WorkItem,
    id=naturals,
    version=st.builds(VersionRef, names, naturals),
    harness=names,
    task=st.builds(TaskRef, family=names, level=st.integers(1, 9), seed=naturals, id=names),
    format=names,
    purpose=st.sampled_from(Purpose),
    seed=naturals,
    group_size=st.integers(1, 64),
    temperature=floats,
    max_tokens=st.integers(1, 512),
    proposal=st.none() | naturals,
    arm=names,
    pair=st.integers(-(2**20), 2**20),
)
outcomes = st.builds(
    Outcome,
    item=naturals,
    status=st.sampled_from(OutcomeStatus),
    num_correct=st.integers(0, 64),
    scores=st.lists(floats, max_size=3).map(tuple),
    boundary=st.none() | st.sampled_from(Boundary),
    message=names,
)
results = st.builds(
    BatchResult,
    batch=naturals,
    worker=names,
    outcomes=st.lists(outcomes, max_size=3).map(tuple),
    wall_s=floats,
    cpu_s=floats,
)


def through_json(kind: Any, value: Any) -> Any:
    return decode(kind, json.loads(json.dumps(encode(kind, value), allow_nan=False)))


@settings(deadline=None)
@given(items)
def test_a_work_item_comes_back(item: WorkItem) -> None:
    assert through_json(WorkItem, item) == item


@settings(deadline=None)
@given(st.lists(items, max_size=3).map(tuple), results)
def test_events_of_work_come_back(leased: tuple[WorkItem, ...], result: BatchResult) -> None:
    for event in (ev.Issued(directive=ev.Lease(items=leased)), ev.BatchDone(result=result)):
        assert through_json(ev.Event, event) == event
