"""The pool of one role, against a worker whose answers the test writes; no Ray."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from actors.slots import Ended, Lease, Lost, Pool, WorkerDied
from coharness.records.errors import Boundary, BoundaryError

Ref = tuple[str, int, str]


@dataclass
class ScriptedLife:
    """One life of a worker; references are (name, life, work), answers are looked up in `answers`."""

    name: str
    life: int
    answers: dict[Ref, Any]
    killed: bool = False

    def ready(self) -> Ref:
        return (self.name, self.life, "ready")

    def run(self, work: str) -> Ref:
        return (self.name, self.life, work)

    def result(self, ref: Ref) -> Any:
        answer = self.answers.get(ref)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self) -> None:
        self.killed = True


@dataclass
class Bench:
    """A pool and the lives that it started."""

    num: int = 1
    depth: int = 2
    lives: list[ScriptedLife] = field(default_factory=list)
    answers: dict[Ref, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [f"w{n}" for n in range(self.num)]
        self.pool: Pool[str, str] = Pool(names, depth=self.depth, start=self.start, start_s=60.0, max_starts=2, now=0.0)

    def start(self, name: str) -> ScriptedLife:
        life = ScriptedLife(name, sum(known.name == name for known in self.lives), self.answers)
        self.lives.append(life)
        return life

    def ready(self, now: float = 0.0) -> None:
        self.pool.step({ref for ref in self.pool.refs() if ref[2] == "ready"}, now)

    def give(self, *works: str, now: float = 0.0, lease_s: float = 10.0) -> None:
        for work in works:
            self.pool.give(self.pool.free()[0], Lease(work=work, lease_s=lease_s, num_items=1), now)

    def step(self, *done: Ref, now: float) -> tuple[list[Ended[str, str]], list[Lost[str]]]:
        return self.pool.step(set(done), now)


def works(leases: Sequence[Lease[str]]) -> list[tuple[str, int]]:
    return [(lease.work, lease.attempts) for lease in leases]


def test_work_is_given_only_to_workers_that_are_ready_the_emptiest_first() -> None:
    bench = Bench(num=2)
    assert bench.pool.free() == []
    assert bench.pool.num_places == 4, "places count while workers start, so that work is asked for early"
    bench.ready()
    bench.give("a", "b", "c", "d")
    assert [works(list(slot.leases)) for slot in bench.pool.slots] == [[("a", 0), ("c", 0)], [("b", 0), ("d", 0)]]
    assert bench.pool.free() == []


def test_results_come_with_their_lease() -> None:
    bench = Bench()
    bench.ready()
    bench.give("a")
    bench.answers["w0", 0, "a"] = "done"
    ((ended,), lost) = bench.step(("w0", 0, "a"), now=1.0)
    assert (ended.lease.work, ended.result, ended.error, lost) == ("a", "done", None, [])
    assert bench.pool.num_leases == 0


def test_the_clock_of_a_lease_starts_when_the_one_before_it_ended() -> None:
    bench = Bench()
    bench.ready()
    bench.give("a", "b", lease_s=10.0)
    assert bench.pool.next_deadline() == 10.0
    bench.step(("w0", 0, "a"), now=9.0)
    assert bench.pool.next_deadline() == 19.0
    assert bench.step(now=18.0) == ([], [])
    _, (lost,) = bench.step(now=19.5)
    assert (lost.boundary, works(lost.leases)) == (Boundary.DEADLINE, [("b", 1)])


def test_what_waited_behind_a_lost_lease_is_not_charged_an_attempt() -> None:
    bench = Bench()
    bench.ready()
    bench.give("a", "b")
    bench.answers["w0", 0, "a"] = bench.answers["w0", 0, "b"] = WorkerDied("killed")
    ended, (lost,) = bench.step(("w0", 0, "a"), ("w0", 0, "b"), now=1.0)
    assert ended == []
    assert (lost.boundary, works(lost.leases)) == (Boundary.WORKER, [("a", 1), ("b", 0)])
    assert bench.lives[0].killed
    assert len(bench.lives) == 2


def test_a_result_that_came_before_the_death_counts() -> None:
    bench = Bench()
    bench.ready()
    bench.give("a", "b")
    bench.answers["w0", 0, "a"] = "done"
    bench.answers["w0", 0, "b"] = WorkerDied("killed")
    (ended,), (lost,) = bench.step(("w0", 0, "a"), ("w0", 0, "b"), now=1.0)
    assert (ended.lease.work, ended.result) == ("a", "done")
    assert works(lost.leases) == [("b", 1)]


def test_a_late_answer_of_a_lease_that_was_taken_away_is_never_seen() -> None:
    bench = Bench()
    bench.ready()
    bench.give("a", lease_s=1.0)
    _, (lost,) = bench.step(now=2.0)
    bench.ready(now=3.0)
    bench.pool.give(bench.pool.free()[0], lost.leases[0], 3.0)
    late = ("w0", 0, "a")
    bench.answers[late] = "late"
    assert late not in bench.pool.refs()
    assert bench.step(late, now=3.1) == ([], [])
    bench.answers["w0", 1, "a"] = "again"
    (ended,), _ = bench.step(("w0", 1, "a"), now=3.2)
    assert ended.result == "again"


def test_a_call_that_fails_leaves_its_worker_alone() -> None:
    bench = Bench()
    bench.ready()
    bench.give("a")
    bench.answers["w0", 0, "a"] = BoundaryError(Boundary.REPLAY, "no answer")
    (ended,), lost = bench.step(("w0", 0, "a"), now=1.0)
    assert ended.error is not None
    assert ended.error.boundary is Boundary.REPLAY
    assert (lost, bench.lives[0].killed) == ([], False)


def test_a_worker_that_does_not_start_in_time_is_replaced() -> None:
    bench = Bench()
    assert bench.pool.next_deadline() == 60.0
    _, (lost,) = bench.step(now=61.0)
    assert lost.reason == "not ready after 60 s"
    assert bench.pool.next_deadline() == 121.0


def test_a_slot_that_never_starts_is_closed_and_the_others_go_on() -> None:
    bench = Bench(num=2)
    bench.step(("w1", 0, "ready"), now=0.0)
    bench.answers["w0", 0, "ready"] = bench.answers["w0", 1, "ready"] = WorkerDied("ValueError: no model")
    bench.step(("w0", 0, "ready"), now=1.0)
    bench.step(("w0", 1, "ready"), now=2.0)
    assert bench.pool.num_places == 2
    assert [slot.name for slot in bench.pool.free()] == ["w1"]


def test_a_start_that_succeeds_forgives_the_failures_before_it() -> None:
    bench = Bench()
    for life in (0, 2):
        bench.answers["w0", life, "ready"] = WorkerDied("out of memory")
    for life in range(4):
        bench.step(("w0", life, "ready"), now=float(life))
        if life == 1:
            bench.give("a", now=1.0)
            bench.answers["w0", 1, "a"] = WorkerDied("killed")
            bench.step(("w0", 1, "a"), now=1.5)
    assert bench.pool.num_places == 2


def test_a_role_without_a_single_worker_is_an_error_with_the_last_cause() -> None:
    bench = Bench()
    for life in (0, 1):
        bench.answers["w0", life, "ready"] = WorkerDied("ValueError: no model")
    bench.step(("w0", 0, "ready"), now=1.0)
    with pytest.raises(
        BoundaryError, match="none of w0 started in 2 attempts; the last one died: ValueError: no model"
    ):
        bench.step(("w0", 1, "ready"), now=2.0)
