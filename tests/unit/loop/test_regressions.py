"""Rules that the core once broke, each stated by the smallest case that showed it."""

import pytest

from coharness.harness.curriculum import level_step
from coharness.loop import choosing, gating, harnesses
from coharness.loop.core import Evolution
from coharness.loop.export import export
from coharness.loop.items import ItemMaker
from coharness.loop.journal import read_frames
from coharness.loop.pairs import pair_cell, pair_task
from coharness.loop.ranking import Ranking
from coharness.records import events as ev
from coharness.records.errors import ConfigError
from coharness.records.harness import SamplingGenes, TaskGene
from coharness.records.ids import ProposalId
from coharness.records.proposals import Proposal, ProposalKind, VerdictKind
from coharness.records.work import Serving
from coharness.stats.beta import BetaEvidence
from coharness.testing.runs import simulated_run
from coharness.testing.simulated import SimulatedFleet
from tests.unit.loop.handmade import begun, decide, ended, issue, open_test, publish


def test_choice_of_the_randomized_control_ends(tmp_path):
    core = begun(tmp_path / "run", schedule="randomized", harness={"max_shots": 2})
    s, c = core.state, core.context
    s.charged, s.choose_stage = 4_000, 2
    s.choose_tally = {"same": (1, 10), "num_shots=1": (5, 10), "num_shots=2": (4, 10)}
    spawned = []
    for _ in range(5):
        d = choosing.due_choice(s, c, Ranking(s, c), ItemMaker(c.config, s.next_item))
        if d is None:
            break
        spawned.append(d.harness.prompt.num_shots)
        issue(core, d)
    assert spawned == [1]


def test_randomized_pool_covers_a_small_space(tmp_path):
    core = begun(tmp_path / "run", schedule="randomized", harness={"max_retries": 1, "hints": ["none", "steps"]})
    while True:
        d = harnesses.due_slot(core.state, core.context)
        if d is None:
            break
        issue(core, d)
    assert len(set(core.state.pool)) == 4


def test_a_format_nobody_tried_does_not_hide_what_is_known():
    gene = TaskGene(family="count", level_low=1, level_high=3, weight=1.0)
    genes = SamplingGenes(level_up=0.6, level_down=0.2)
    failed, untried = BetaEvidence(failures=50.0), BetaEvidence()
    assert level_step(gene, [failed], genes, 100, 8) == -1
    assert level_step(gene, [failed, untried], genes, 100, 8) == -1


def test_a_lucky_glimpse_does_not_hide_what_is_known():
    gene = TaskGene(family="count", level_low=1, level_high=3, weight=1.0)
    genes = SamplingGenes(level_up=0.6, level_down=0.2)
    good, glimpse = BetaEvidence(successes=80.0, failures=20.0), BetaEvidence(successes=3.5)
    assert level_step(gene, [good], genes, 100, 8) == 1
    assert level_step(gene, [good, glimpse], genes, 100, 8) == 1


def challenge(core):
    inc = core.state.champion
    return open_test(
        core,
        ProposalKind.PAIR,
        challenger=Serving(publish(core, "p1"), inc.harness),
        incumbent=inc,
        test_index=core.state.num_tests + 1,
    )


def lease(core, n=1000):
    items = gating.lease_pairs(core.state, core.context, ItemMaker(core.context.config, core.state.next_item), n)
    if items:
        issue(core, ev.Lease(items=tuple(items)))
    return items


def test_a_test_whose_last_pair_failed_is_decided(tmp_path):
    core = begun(tmp_path / "run", gate={"max_pairs": 32, "look_every": 32})
    p = challenge(core)
    core.tell(ended(lease(core), lambda i: None if i.pair == 31 else True))
    assert core.state.tests[p.id].prefix == 32
    assert lease(core) == []
    assert gating.due_verdict(core.state, core.context) is not None


def test_a_test_that_begins_with_many_ties_runs(tmp_path):
    from coharness.harness.operators import set_format
    from coharness.records.task import FamilySpec, Task, VerifierKind, VerifierSpec, task_id
    from coharness.tasks.sources import TaskSources
    from coharness.testing.runs import simulated_config
    from coharness.testing.simulated import SIMULATED_BASE

    class Many:
        families = tuple(
            FamilySpec(name=f"f{i:02}", num_levels=1, formats=("plain", "trace"), num_tasks=(None,)) for i in range(40)
        )

        def make(self, family, level, seed):
            q = f"{family} {seed}"
            return Task(
                id=task_id(family, level, q, "a"),
                family=family,
                level=level,
                seed=seed,
                question=q,
                answer="a",
                verifier=VerifierSpec(kind=VerifierKind.EXACT),
                references={"plain": "a", "trace": ":a"},
            )

    core = Evolution(simulated_config(tmp_path / "run"), TaskSources([Many()]))
    core.tell(ev.Started(run_id="run", seed=0, config={}, base=SIMULATED_BASE, code_digest=""))
    issue(core, ev.Spawn(harness=core.context.h0, slot=0, operator="start", parents=()))
    h0, v = core.context.h0, core.state.champion.version
    child = set_format(h0, "f03", "trace")
    stuck = []
    for number in range(60):
        p = Proposal(
            id=ProposalId(number),
            kind=ProposalKind.HARNESS,
            operator="x",
            challenger=Serving(v, child.id),
            incumbent=Serving(v, h0.id),
            test_index=1,
            families=("f03",),
            manifest={"slot": 0},
        )
        issue(core, ev.Open(proposal=p, harness=child))
        if not lease(core):
            stuck.append(number)
        decide(core, p, VerdictKind.REJECTED)
    assert stuck == []


def test_a_redrawn_pair_stays_in_its_cell(tmp_path):
    wrong = []
    run, e = simulated_run(
        tmp_path / "run",
        SimulatedFleet(),
        budget={"rollouts": 4_000},
        tasks=[{"type": "builtin", "families": ["count", "parity"], "max_level": 2}],
    )
    proposals = {}
    for frame in read_frames(run.journal_dir):
        for event in frame.events:
            if isinstance(event, ev.Issued) and isinstance(event.directive, ev.Open):
                proposals[event.directive.proposal.id] = event.directive.proposal
            if isinstance(event, ev.Issued) and isinstance(event.directive, ev.Lease):
                for i in event.directive.items:
                    if i.proposal is None or i.pair < 0:
                        continue
                    if pair_cell(proposals[i.proposal], e.context, i.pair) != (i.task.family, i.task.level):
                        wrong.append((i.proposal, i.pair))
    assert wrong == []


def test_by_hand(tmp_path):
    core = begun(tmp_path / "run")
    p = challenge(core)
    task = pair_task(core.state.used_gate_tasks, p, core.context, 0)
    make = ItemMaker(core.context.config, 0)
    items = gating._pair(core.state, core.context, make, p, 0, {task.id})
    assert (items[0].task.family, items[0].task.level) == pair_cell(p, core.context, 0)


def test_the_watch_gets_every_eighth_pair_after_the_promotion(tmp_path):
    core = begun(tmp_path / "run")
    core.state.num_evaluation_pairs = 800
    decide(core, challenge(core), VerdictKind.ACCEPTED)
    issue(core, gating.due_rollback(core.state, core.context))
    assert lease(core) == []


def test_a_malformed_version_is_no_member(tmp_path):
    from tests.unit.loop.test_export import started

    run = started(tmp_path)
    with pytest.raises(ConfigError):
        export(run.path, "p1@latest", tmp_path / "out")


def test_a_tie_keeps_the_initial_format(tmp_path):
    core = begun(tmp_path / "run", schedule="randomized", harness={"format": "trace"})
    s, c = core.state, core.context
    s.charged, s.choose_stage = 4_000, 1
    s.choose_tally = {f"{f}={fmt}": (5, 10) for f in c.space.families for fmt in c.space.formats[f]}
    d = choosing.due_choice(s, c, Ranking(s, c), ItemMaker(c.config, 0))
    assert not isinstance(d, ev.Spawn)


def test_a_population_of_two_can_exploit():
    from coharness.evolution.exploit import choose_exploit
    from tests.unit.evolution.test_exploit import STRONG, WEAK, member

    assert choose_exploit((member("p0", STRONG), member("p1", WEAK)), 0.9, 0.67) is not None
