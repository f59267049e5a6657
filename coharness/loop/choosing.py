"""How the randomized control picks its harness at the end: on GATE tasks, paid from the same budget.

Two stages of coordinate search from the initial harness, for the policy that the last assessment found best: first the format
of each family, then each value of the genes that act on all families. The best observed option wins; the gate then tests the
result against the base like any other challenger.
"""

from dataclasses import replace

from coharness.config.schema import Schedule
from coharness.harness.compile import serving_format
from coharness.loop.context import Context
from coharness.loop.items import ItemMaker
from coharness.loop.ranking import Ranking
from coharness.loop.stage import is_closing
from coharness.loop.state import State
from coharness.records import events as ev
from coharness.records.harness import Harness
from coharness.records.ids import derive_seed
from coharness.records.task import Pool
from coharness.records.work import Purpose, WorkItem
from coharness.tasks.draw import draw_task

FORMATS_STAGE, GLOBAL_STAGE = 1, 2


def due_choice(state: State, ctx: Context, ranking: Ranking, make: ItemMaker) -> ev.Lease | ev.Spawn | None:
    """The next step of the choice: a round of trials, or the harness that the trials name."""
    if ctx.config.schedule is not Schedule.RANDOMIZED or not is_closing(state, ctx) or state.choose_pending:
        return None
    if any(m.job is not None or m.waiting for m in state.members) or any(
        i.purpose is Purpose.TRAIN for i in state.running.values()
    ):
        return None
    if state.choose_stage == 0:
        return _trials(state, ctx, ranking, make, _format_options(ctx))
    if state.choose_stage == FORMATS_STAGE and state.slots[0].harness == ctx.h0.id:
        child = _with_best_formats(state, ctx)
        if child.id != ctx.h0.id:
            return ev.Spawn(harness=child, slot=0, operator="chosen_formats", parents=(ctx.h0.id,))
    if state.choose_stage == FORMATS_STAGE:
        return _trials(state, ctx, ranking, make, _global_options(state.harnesses[state.slots[0].harness], ctx))
    if state.choose_stage == GLOBAL_STAGE and state.choose_tally:
        base = state.harnesses[state.slots[0].harness]
        child = _with_best_globals(state, ctx, base)
        if child.id != base.id:
            return ev.Spawn(harness=child, slot=0, operator="chosen_genes", parents=(base.id,))
    return None


def is_choosing(state: State, ctx: Context) -> bool:
    """Whether the choice is still going on."""
    return ctx.config.schedule is Schedule.RANDOMIZED and (
        state.choose_stage < GLOBAL_STAGE or state.choose_pending > 0
    )


def _format_options(ctx: Context) -> dict[str, tuple[Harness, str, str | None]]:
    """Option -> (harness, format, family)."""
    return {
        f"{family}={fmt}": (ctx.h0, fmt, family) for family in ctx.space.families for fmt in ctx.space.formats[family]
    }


def _global_options(base: Harness, ctx: Context) -> dict[str, tuple[Harness, str, str | None]]:
    options: dict[str, tuple[Harness, str, str | None]] = {"same": (base, "", None)}
    for name, child in _variants(base, ctx).items():
        options[name] = (child, "", None)
    return options


def _variants(base: Harness, ctx: Context) -> dict[str, Harness]:
    space, prompt, episode = ctx.space, base.prompt, base.episode
    variants = {f"template={t}": replace(base, prompt=replace(prompt, template=t)) for t in space.templates}
    variants |= {f"hint={h}": replace(base, prompt=replace(prompt, hint=h)) for h in space.hints}
    variants |= {
        f"num_shots={n}": replace(base, prompt=replace(prompt, num_shots=n)) for n in range(space.max_shots + 1)
    }
    variants |= {
        f"retries={n}": replace(base, episode=replace(episode, retries=n)) for n in range(space.max_retries + 1)
    }
    variants |= {
        f"num_distractors={n}": replace(base, episode=replace(episode, num_distractors=n))
        for n in range(space.max_distractors + 1)
    }
    return {name: child for name, child in variants.items() if child != base}


def _trials(
    state: State,
    ctx: Context,
    ranking: Ranking,
    make: ItemMaker,
    options: dict[str, tuple[Harness, str, str | None]],
) -> ev.Lease | None:
    lead = ranking.lead
    version = lead.version if lead is not None else state.members[0].head.ref
    items: list[WorkItem] = []
    for name, (harness, fmt, family) in options.items():
        cells = [cell for cell in ctx.space.mix if family is None or cell[0] == family]
        count = ctx.choose_global if family is None else ctx.choose_per_cell
        for index in range(count):
            cell_family, level = cells[index % len(cells)]
            # The same tasks for every option: options are compared pairwise.
            seed = derive_seed("choose", ctx.config.seed, state.choose_stage, cell_family, level, index)
            items.append(
                make.make(
                    version=version,
                    harness=harness,
                    harness_id=harness.id,
                    task=draw_task(ctx.sources, cell_family, level, Pool.GATE, seed),
                    answer_format=fmt or harness.prompt.formats[cell_family],
                    purpose=Purpose.CHOOSE,
                    seed=seed,
                    arm=name,
                )
            )
    return ev.Lease(items=tuple(items), harnesses=tuple(h for h, _, _ in options.values()))


def _rate(state: State, option: str) -> float:
    correct, tried = state.choose_tally.get(option, (0, 0))
    return correct / tried if tried else 0.0


def _with_best_formats(state: State, ctx: Context) -> Harness:
    formats = {}
    for family in ctx.space.families:
        initial = serving_format(ctx.h0, ctx.sources, family)
        rates = {fmt: (_rate(state, f"{family}={fmt}"), fmt == initial) for fmt in ctx.space.formats[family]}
        formats[family] = max(rates, key=lambda fmt: rates[fmt])
    return replace(ctx.h0, prompt=replace(ctx.h0.prompt, formats=formats))


def _with_best_globals(state: State, ctx: Context, base: Harness) -> Harness:
    child, baseline = base, _rate(state, "same")
    variants = _variants(base, ctx)
    best: dict[str, tuple[float, str]] = {}
    for name in state.choose_tally:
        gene = name.split("=")[0]
        if gene != "same" and name in variants and _rate(state, name) > best.get(gene, (baseline, ""))[0]:
            best[gene] = (_rate(state, name), name)
    for gene, (_, name) in best.items():
        chosen = variants[name]
        if gene in ("template", "hint", "num_shots"):
            child = replace(child, prompt=replace(child.prompt, **{gene: getattr(chosen.prompt, gene)}))
        else:
            child = replace(child, episode=replace(child.episode, **{gene: getattr(chosen.episode, gene)}))
    return child
