"""A population over a model that judges well only by the right skill, and an analyser that proposes it among others."""

import threading
from collections.abc import Callable

import pytest

from coharness.records.errors import ConfigError
from coharness.reward.library.gate import Comparison
from coharness.reward.library.library import Library
from coharness.reward.library.population import LibraryTrial
from coharness.reward.library.router import LexicalRouter
from coharness.reward.library.society import Analyser, Telling
from coharness.reward.library.trial_pool import Judged, JudgeSpec, ThreadPool
from coharness.reward.library.vlm import VlmJudge
from tests.unit.reward.library.society import Model, pairs, society, spec, trials


@pytest.mark.parametrize("workers", [1, 4])
def test_every_island_comes_by_the_skill_that_helps_and_by_no_other(workers: int) -> None:
    state, analyser = society(Model(), workers=workers)
    for island in state.islands:
        assert [entry.name for entry in island.library.entries] == ["worth-of-a-star"]
        assert island.accuracy == 1.0
    assert analyser.failures == 0
    assert not state.out


def test_answers_that_are_kept_are_not_asked_for_again() -> None:
    model = Model()
    society(model, workers=1, islands=1)
    one_version = 2 * 12
    # Start, three challengers of it and two of the next version on 12 confirming pairs in two orders; two analyses of 10 pairs.
    assert model.calls <= 6 * one_version + 2 * (2 * 10 + 1)


def test_an_outage_decides_nothing() -> None:
    state, _ = society(Model(outage=True), workers=2, islands=1)
    assert state.islands[0].accepted == 0
    assert state.islands[0].refused == ()
    assert state.next_number == 30


def test_an_analysis_that_fails_is_counted() -> None:
    def make(library: Library) -> VlmJudge:
        return VlmJudge(Model(), library, LexicalRouter(), model="m")

    analyser = Analyser(complete=lambda messages: "no JSON", make=make, pairs=pairs(2))
    assert analyser.propose(Library.of("x"), 0) == []
    assert analyser.failures == 1


class Shuffled:
    """A pool whose trials end in an order of its own: all that are out are judged, and come back last first."""

    def __init__(self, judge: Callable[[LibraryTrial], Comparison | None], size: int, keep: int) -> None:
        self._judge, self.size, self._keep = judge, size, keep
        self.out: list[LibraryTrial] = []
        self.most = 0
        self.told: list[int] = []

    def submit(self, trial: LibraryTrial) -> None:
        self.out.append(trial)
        self.most = max(self.most, len(self.out))
        assert len(self.out) <= self.size

    def poll(self, timeout_s: float) -> list[Judged]:
        trial = self.out.pop(-1 if len(self.out) % 3 else -min(self._keep, len(self.out)))
        self.told.append(trial.number)
        return [Judged(number=trial.number, found=self._judge(trial))]

    def close(self) -> None:
        pass


def test_told_in_the_order_of_asking_a_population_does_not_depend_on_who_is_fast() -> None:
    ends, orders = set(), set()
    for keep in (1, 2, 3):
        pool = Shuffled(trials(Model()).judge, 3, keep)
        state, _ = society(Model(), pool=pool, telling=Telling.ASKED)
        assert pool.most == 3
        ends.add(repr((state.islands, state.next_number, state.stale)))
        orders.add(tuple(pool.told))
    threads, _ = society(Model(), workers=3, telling=Telling.ASKED)
    ends.add(repr((threads.islands, threads.next_number, threads.stale)))
    assert len(orders) > 1, "the pools ended in one order, which shows nothing"
    assert len(ends) == 1


def test_what_a_judge_raises_in_a_thread_is_raised_by_the_pool() -> None:
    def fail(trial: LibraryTrial) -> Comparison | None:
        raise ValueError("the judge is at fault")

    with pytest.raises(ValueError, match="the judge is at fault"):
        society(Model(), pool=ThreadPool(fail, 1))


def test_a_pool_that_is_slow_gives_nothing_in_the_meantime() -> None:
    go = threading.Event()

    def slow(trial: LibraryTrial) -> Comparison | None:
        assert go.wait(60.0)
        return None

    pool = ThreadPool(slow, 1)
    pool.submit(LibraryTrial(number=7, island=0, parent=None, challenger=None, proposal=None))  # type: ignore[arg-type]
    assert pool.poll(0.01) == []
    go.set()
    assert [judged.number for judged in pool.poll(60.0)] == [7]
    assert pool.poll(0.01) == []
    pool.close()


def test_a_spec_builds_its_judge_or_says_what_is_wrong() -> None:
    assert callable(spec().build())
    with pytest.raises(ConfigError, match=r"package\.module:function, got 'json:nothing'"):
        JudgeSpec(factory="json:nothing", settings={}).build()
