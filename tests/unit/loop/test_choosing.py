"""The randomized control: it draws from the whole space, and picks its harness at the end on shared GATE tasks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coharness.harness.operators import set_format
from coharness.loop import choosing
from coharness.loop.core import Evolution
from coharness.loop.items import ItemMaker
from coharness.loop.journal import read_frames
from coharness.loop.ranking import Ranking
from coharness.records import events as ev
from coharness.records.proposals import ProposalKind
from coharness.records.task import Pool, pool_of
from coharness.records.work import Purpose, WorkItem
from coharness.testing.runs import simulated_run
from tests.unit.loop.handmade import begun, ended, issue

TASKS = [{"type": "builtin", "families": ["count", "sort"], "max_level": 2}]
SPACE = {"formats": ["plain", "trace"], "max_retries": 1, "hints": ["none", "steps"]}


def core_of(tmp_path: Path, **sections: Any) -> Evolution:
    """A randomized control whose training is over."""
    core = begun(tmp_path / "run", **{"schedule": "randomized", "tasks": TASKS, "harness": SPACE, **sections})
    core.state.charged = core.context.config.budget.rollouts - core.context.tests_reserve
    return core


def due(core: Evolution) -> ev.Lease | ev.Spawn | None:
    state, ctx = core.state, core.context
    return choosing.due_choice(state, ctx, Ranking(state, ctx), ItemMaker(ctx.config, state.next_item))


def trial(core: Evolution, rates: Mapping[str, float]) -> list[WorkItem]:
    """Run the round of trials that is due, each option solving this share of its tasks, and go on to what follows."""
    directive = due(core)
    assert isinstance(directive, ev.Lease)
    issue(core, directive)
    tried: dict[str, int] = {}
    solved = []
    for item in directive.items:
        tried[item.arm] = tried.get(item.arm, 0) + 1
        total = sum(i.arm == item.arm for i in directive.items)
        if tried[item.arm] <= rates.get(item.arm, 0.0) * total:
            solved.append(item.id)
    core.tell(ended(directive.items, lambda item: item.id in solved))
    return list(directive.items)


def test_formats_are_chosen_first_by_family_and_the_best_observed_wins(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    items = trial(core, {"count=trace": 1.0, "count=plain": 0.5, "sort=plain": 0.5})
    assert {item.arm for item in items} == {"count=plain", "count=trace", "sort=plain", "sort=trace"}
    spawn = due(core)
    assert isinstance(spawn, ev.Spawn)
    assert (spawn.slot, spawn.harness) == (0, set_format(core.context.h0, "count", "trace"))


def test_then_the_genes_of_all_families_are_varied_around_the_chosen_formats(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    trial(core, {"count=trace": 1.0})
    spawn = due(core)
    assert isinstance(spawn, ev.Spawn)
    issue(core, spawn)
    items = trial(core, {"same": 0.5, "retries=1": 0.9, "hint=steps": 0.2})
    assert {item.arm for item in items} == {"same", "retries=1", "hint=steps"}
    assert {item.format for item in items if item.task.family == "count"} == {"trace"}
    chosen = due(core)
    assert isinstance(chosen, ev.Spawn)
    assert chosen.harness.episode.retries == 1
    assert chosen.harness.prompt.hint == "none"
    assert chosen.harness.prompt.formats["count"] == "trace"
    issue(core, chosen)
    assert due(core) is None
    assert not choosing.is_choosing(core.state, core.context)


def test_where_nothing_is_better_the_initial_harness_stays(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    trial(core, {"count=plain": 0.5, "count=trace": 0.5, "sort=plain": 0.5, "sort=trace": 0.2})
    trial(core, {"same": 0.5, "retries=1": 0.5, "hint=steps": 0.1})
    assert due(core) is None
    assert core.state.slots[0].harness == core.context.h0.id


def test_every_option_is_tried_on_the_same_gate_tasks(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    by_option: dict[str, list[str]] = {}
    for item in trial(core, {}):
        by_option.setdefault(item.arm, []).append(item.task.id)
        assert pool_of(item.task.id) is Pool.GATE
        assert (item.purpose, item.temperature) == (Purpose.CHOOSE, 0.0)
    assert by_option["count=plain"] == by_option["count=trace"]
    assert by_option["sort=plain"] == by_option["sort=trace"]


def test_nothing_is_chosen_while_training_goes_on(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    first = due(core)
    assert isinstance(first, ev.Lease)
    core.state.members[0].waiting.append((first.items[0].id, 0))
    assert due(core) is None
    core.state.members[0].waiting.clear()
    core.state.charged = 0
    assert due(core) is None


def test_only_the_randomized_control_chooses(tmp_path: Path) -> None:
    core = core_of(tmp_path, schedule="weights_only")
    assert due(core) is None
    assert not choosing.is_choosing(core.state, core.context)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[ev.Event]:
    path = tmp_path_factory.mktemp("runs") / "run"
    run, _ = simulated_run(path, schedule="randomized", tasks=TASKS, harness=SPACE, budget={"rollouts": 2_000})
    return [event for frame in read_frames(run.journal_dir) for event in frame.events]


def leases(events: list[ev.Event]) -> list[list[WorkItem]]:
    return [
        list(event.directive.items)
        for event in events
        if isinstance(event, ev.Issued) and isinstance(event.directive, ev.Lease)
    ]


def test_a_run_chooses_in_two_rounds_after_its_last_training_group(events: list[ev.Event]) -> None:
    purposes = [[item.purpose for item in items] for items in leases(events)]
    rounds = [i for i, found in enumerate(purposes) if Purpose.CHOOSE in found]
    assert len(rounds) == 2
    assert max(i for i, found in enumerate(purposes) if Purpose.TRAIN in found) < rounds[0]
    arms = [{item.arm for item in leases(events)[i]} for i in rounds]
    assert arms[0] == {f"{family}={fmt}" for family in ("count", "sort") for fmt in ("plain", "trace")}
    assert arms[1] == {"same", "retries=1", "hint=steps"}


def test_its_training_groups_are_drawn_uniformly_over_levels_and_formats(events: list[ev.Event]) -> None:
    drawn = [item for items in leases(events) for item in items if item.purpose is Purpose.TRAIN]
    cells = {(item.task.family, item.task.level, item.format) for item in drawn}
    assert len(cells) == 2 * 2 * 2
    for cell in cells:
        share = sum((i.task.family, i.task.level, i.format) == cell for i in drawn) / len(drawn)
        assert abs(share - 1 / 8) < 4 * (7 / 64 / len(drawn)) ** 0.5
    pool = {
        event.directive.harness.id
        for event in events
        if isinstance(event, ev.Issued) and isinstance(event.directive, ev.Spawn) and event.directive.slot < 0
    }
    assert {item.harness for item in drawn} == pool


def test_no_edit_is_ever_proposed(events: list[ev.Event]) -> None:
    opened = [
        e.directive.proposal.kind for e in events if isinstance(e, ev.Issued) and isinstance(e.directive, ev.Open)
    ]
    assert ProposalKind.HARNESS not in opened
