"""Can the base do anything here at all? A probe of each family before a run is paid for.

A family that the base never solves gives neither a verified answer to train on nor a difference between harnesses, so the
run would only burn its budget; such a family is refused. Beside the pass rate stands what always giving the family's
commonest answer would score: a base that is no better has not understood the question.
"""

from collections import Counter
from pathlib import Path

from coharness.config.schema import RunConfig
from coharness.harness.compile import serving_format
from coharness.loop.build import base_reference, build_rollout_worker, run_sources
from coharness.loop.context import build_context
from coharness.loop.items import ItemMaker
from coharness.loop.preflight import Finding, Level
from coharness.records.ids import PolicyId, derive_seed
from coharness.records.policy import VersionRef
from coharness.records.task import Pool
from coharness.records.work import OutcomeStatus, Purpose, WorkBatch
from coharness.tasks.draw import draw_task

BATCH = 32


def probe_families(config: RunConfig) -> tuple[Finding, ...]:
    """Greedy answers of the base under the initial harness to `evaluation.probe_tasks` SEARCH tasks of each family.

    Loads the model in this process. A family with no success is an error, one at or below its commonest answer a warning.
    """
    count = config.evaluation.probe_tasks
    if count == 0:
        return ()
    sources = run_sources(config)
    ctx = build_context(config, sources)
    worker = build_rollout_worker(config, Path(config.run_dir), "probe")
    base = VersionRef(PolicyId("p0"), 0)
    weights = {base: base_reference(config)}
    make = ItemMaker(config, 0)
    findings = []
    try:
        for family in ctx.space.families:
            gene = ctx.h0.task_gene(family)
            levels = range(gene.level_low, gene.level_high + 1) if gene else (1,)
            tasks = [
                draw_task(sources, family, levels[i % len(levels)], Pool.SEARCH, derive_seed("probe", config.seed, i))
                for i in range(count)
            ]
            items = [
                make.make(
                    version=base,
                    harness=ctx.h0,
                    harness_id=ctx.h0.id,
                    task=task,
                    answer_format=serving_format(ctx.h0, sources, family),
                    purpose=Purpose.FILL,
                )
                for task in tasks
            ]
            passed = 0
            for start in range(0, len(items), BATCH):
                part = tuple(items[start : start + BATCH])
                result, _ = worker.run(
                    WorkBatch(id=start, items=part, harnesses={ctx.h0.id: ctx.h0}, weights=weights, lease_s=3600.0)
                )
                for outcome in result.outcomes:
                    if outcome.status is not OutcomeStatus.DONE:
                        return (Finding(level=Level.ERROR, what=f"probe of {family}", message=outcome.message),)
                    passed += outcome.num_correct
            majority = Counter(task.answer for task in tasks).most_common(1)[0][1]
            findings.append(_finding(family, passed, majority, count))
    finally:
        worker.close()
    return tuple(findings)


def _finding(family: str, passed: int, majority: int, count: int) -> Finding:
    what = f"probe of {family}"
    rates = f"the base solves {passed} of {count}, its commonest answer alone {majority}"
    if passed == 0:
        return Finding(
            level=Level.ERROR,
            what=what,
            message=f"{rates}; nothing could be learned from it. Use lower levels, worked examples (harness.num_shots), "
            "or leave the family out",
        )
    if passed <= majority:
        return Finding(level=Level.WARNING, what=what, message=f"{rates}; it may not have understood the question")
    return Finding(level=Level.INFO, what=what, message=rates)
