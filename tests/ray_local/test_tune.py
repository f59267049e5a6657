"""A search on Ray actors decides what it decides in this process."""

from dataclasses import replace
from pathlib import Path

from actors.tune import RayPool
from coharness.tune.api import search
from coharness.tune.events import Event, Order, Report
from coharness.tune.files import SearchDir
from coharness.tune.journal import read_journal
from tests.unit.tune.small import config


def events(folder: Path) -> list[Event]:
    found = [event for frame in read_journal(folder / "journal.jsonl") for event in frame]
    return [replace(event, seconds=0.0) if isinstance(event, Report) else event for event in found]


def test_rounds_on_actors_are_the_rounds_of_this_process(ray_session: object, tmp_path: Path) -> None:
    pool = {"type": "ray", "workers": 2, "order": "rounds"}
    there = search(config(tmp_path / "ray", pool=pool), make_pool=RayPool)
    here = search(config(tmp_path / "here", pool={**pool, "type": "inline"}))
    del there["time_bias"], here["time_bias"]  # type: ignore[attr-defined]
    assert there == here
    assert events(tmp_path / "ray") == events(tmp_path / "here")


def test_an_actor_that_exceeds_its_deadline_is_replaced_and_its_member_fails_in_the_end(
    ray_session: object, tmp_path: Path
) -> None:
    made = config(tmp_path / "a", pool={"type": "ray", "workers": 1, "deadline_s": 0.01, "max_attempts": 2})
    pool = RayPool(SearchDir.create(made.run_dir, ""), made)
    try:
        pool.submit(
            Order(slot=3, segment="p0-1", parents=(), hyperparameters={"rate": 1.0}, seed=0, reseed=False, steps=10**9)
        )
        found: list[Report] = []
        while not found:
            found = pool.poll(10.0)
        assert (found[0].slot, found[0].steps) == (3, 0)
        assert "did not end within 0.01 s, 2 times" in found[0].error
        assert pool.num_free == 1
    finally:
        pool.close()
