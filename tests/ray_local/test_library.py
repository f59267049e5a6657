"""A society of libraries on Ray actors decides what it decides on threads; whoever dies or hangs is replaced."""

from pathlib import Path

import pytest

from actors.library import RayTrialPool
from coharness.records.errors import PreflightError
from coharness.reward.library.gate import GateRule
from coharness.reward.library.library import Library
from coharness.reward.library.population import LibraryPopulation, LibraryTrial
from coharness.reward.library.society import Telling
from coharness.reward.library.trial_pool import Judged
from tests.unit.reward.library.society import Model, society, spec


def a_trial() -> LibraryTrial:
    state = LibraryPopulation.of([Library.of("start")], GateRule(level=0.84), seed=3)
    _, analyser = society(Model(outage=True), islands=1)
    _, trial = state.ask(analyser.propose)
    assert trial is not None
    return trial


def waited(pool: RayTrialPool) -> Judged:
    found: list[Judged] = []
    for _ in range(12):
        found = found or pool.poll(10.0)
    assert len(found) == 1
    return found[0]


def test_told_in_the_order_of_asking_actors_give_the_population_of_threads(ray_session: object) -> None:
    pool = RayTrialPool(spec(), 2, deadline_s=120.0)
    there, analyser = society(Model(), pool=pool, telling=Telling.ASKED)
    here, _ = society(Model(), workers=2, telling=Telling.ASKED)
    assert there == here
    assert [entry.name for entry in there.best.library.entries] == ["worth-of-a-star"]
    assert analyser.failures == 0


def test_an_actor_that_dies_is_replaced_and_its_trial_judged_again(ray_session: object, tmp_path: Path) -> None:
    marker = tmp_path / "die"
    marker.touch()
    pool = RayTrialPool(spec(die=str(marker)), 1, deadline_s=120.0)
    try:
        pool.submit(a_trial())
        judged = waited(pool)
        assert not marker.exists()
        assert judged.failure == ""
        assert judged.found is not None
        assert judged.found.counts.num_pairs == 12
    finally:
        pool.close()


def test_a_trial_that_exceeds_its_deadline_is_no_verdict_in_the_end(ray_session: object) -> None:
    pool = RayTrialPool(spec(hang=True), 1, deadline_s=0.5, start_s=60.0, max_attempts=1)
    try:
        pool.submit(a_trial())
        judged = waited(pool)
        assert judged.found is None
        assert judged.failure == "its actor did not end within 0.5 s, 1 times"
    finally:
        pool.close()


def test_a_judge_that_raises_is_not_tried_again_and_one_that_cannot_be_built_is_refused(ray_session: object) -> None:
    pool = RayTrialPool(spec(fail=True), 1, deadline_s=60.0)
    try:
        pool.submit(a_trial())
        with pytest.raises(ValueError, match="the judge is at fault"):
            waited(pool)
    finally:
        pool.close()
    with pytest.raises(PreflightError, match=r"cannot build its judge: .*no model here"):
        RayTrialPool(spec(broken=True), 1, deadline_s=60.0)
