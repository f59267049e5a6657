"""Tests of the gate by hand: a core, challenges and edits that are open in it, and their pairs run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from coharness.harness.operators import set_format
from coharness.loop import gating
from coharness.loop.core import Evolution
from coharness.loop.items import ItemMaker
from coharness.records import events as ev
from coharness.records.proposals import Proposal, ProposalKind
from coharness.records.work import Serving, WorkItem
from tests.unit.loop.handmade import begun, ended, issue, open_test, publish

SMALL = {"gate": {"max_pairs": 64, "look_every": 32}}


def core_of(tmp_path: Path, **sections: Any) -> Evolution:
    return begun(tmp_path / "run", **{**SMALL, **sections})


def champion_of(core: Evolution) -> Serving:
    assert core.state.champion is not None
    return core.state.champion


def challenge(core: Evolution, **fields: Any) -> Proposal:
    """A test of p1's newest version in the champion's harness."""
    incumbent = champion_of(core)
    challenger = Serving(publish(core, "p1"), incumbent.harness)
    return open_test(
        core,
        ProposalKind.PAIR,
        challenger=challenger,
        incumbent=incumbent,
        test_index=core.state.num_tests + 1,
        **fields,
    )


def edit(core: Evolution, *families: str) -> Proposal:
    """A test that serves these families in the trace format, at the base's weights."""
    parent = core.context.h0
    child = parent
    for family in families:
        child = set_format(child, family, "trace")
    version = champion_of(core).version
    proposal = Proposal(
        id=core.state.next_proposal,  # type: ignore[arg-type]
        kind=ProposalKind.HARNESS,
        operator="mutate_format",
        challenger=Serving(version, child.id),
        incumbent=Serving(version, parent.id),
        test_index=core.state.num_tests + 1,
        families=families,
        manifest={"slot": 0},
    )
    issue(core, ev.Open(proposal=proposal, harness=child))
    return proposal


def lease(core: Evolution, num_items: int = 1_000) -> list[WorkItem]:
    """Issue the next pairs."""
    items = gating.lease_pairs(
        core.state, core.context, ItemMaker(core.context.config, core.state.next_item), num_items
    )
    if items:
        issue(core, ev.Lease(items=tuple(items)))
    return items


def run_test(core: Evolution, correct: Callable[[WorkItem], bool | None]) -> ev.Decide:
    """Run pairs until the first verdict is due."""
    while True:
        verdict = gating.due_verdict(core.state, core.context)
        if verdict is not None:
            return verdict
        items = lease(core, 64)
        assert items, "a test that is not decided has pairs to run"
        core.tell(ended(items, correct))
