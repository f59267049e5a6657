"""The state of a search: a pure fold of its events.

A *slot* is a place in the population; a *member* is who fills it, with a name of its own that changes when weights are copied,
merged or begun anew. A *segment* is one interval of one member, and the checkpoint that it ends with; segments and their parents
are the whole history, from which any member's schedule is read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from coharness.evolution.fitness_gaussian import GaussianEvidence, merged
from coharness.evolution.lineage import Birth
from coharness.evolution.selection.contract import Individual, Interval, Score, Selector
from coharness.spaces.domain import Value
from coharness.tune.config import TuneConfig
from coharness.tune.events import Decision, Ended, Event, Report, SegmentId

CURVE = 32
"""Reports of a member's curve that are kept."""
INTERVALS = 2_000
"""Finished intervals that are kept for rules that learn from them."""
DURATIONS = 0.3
"""Weight of a new duration in a member's mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One interval that was done."""

    parents: tuple[tuple[SegmentId, float], ...]
    member: str
    hyperparameters: Mapping[str, Value]
    seed: int
    reseed: bool
    steps: int
    metrics: Mapping[str, float]


@dataclass(slots=True)
class Slot:
    """A place in the population."""

    plan: Decision
    "What its member does next, or is doing."
    steps: int = 0
    "Steps done in this place."
    age: int = 0
    "Steps done since the member was born."
    num_reports: int = 0
    "Of the member."
    num_failures: int = 0
    "In a row, of this place."
    checkpoint: SegmentId | None = None
    "Where the member stands; its parent's before its own first report, None before there is any."
    work: float = 0.0
    score: float | None = None
    "Signed so that higher is better."
    evidence: GaussianEvidence = field(default_factory=GaussianEvidence)
    curve: tuple[tuple[float, float], ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    duration_s: float = 0.0
    is_waiting: bool = False
    "It reported, and nothing was decided yet."
    is_over: bool = False

    @property
    def segment(self) -> SegmentId:
        """Name of the interval that it does next."""
        return f"{self.plan.member}-{self.num_reports + 1}"


@dataclass(slots=True)
class SearchState:
    """Everything that decisions are made of."""

    slots: list[Slot] = field(default_factory=list)
    next_member: int = 0
    num_reports: int = 0
    num_steps: int = 0
    num_failures: int = 0
    births: dict[str, Birth] = field(default_factory=dict)
    intervals: list[Interval] = field(default_factory=list)
    elites: tuple[Individual, ...] = ()
    segments: dict[SegmentId, Segment] = field(default_factory=dict)
    best: tuple[float, SegmentId] | None = None
    "Highest signed score of any report, and where it stands."
    num_copies: int = 0
    turns: dict[str, tuple[int, float]] = field(default_factory=dict)
    "Member -> its reports and the seconds that they took, for the meter of evaluation-time bias."
    ended: str = ""

    @property
    def time(self) -> float:
        """Intervals of one member since the search began."""
        return self.num_reports / max(len(self.slots), 1)

    def needed(self) -> frozenset[SegmentId]:
        """Checkpoints that may still be loaded."""
        found = {segment for slot in self.slots for segment, _ in slot.plan.parents}
        found |= {slot.checkpoint for slot in self.slots if slot.checkpoint is not None}
        found |= {elite.name for elite in self.elites}
        if self.best is not None:
            found.add(self.best[1])
        return frozenset(found)


def fold(state: SearchState, event: Event, config: TuneConfig, selector: Selector) -> None:
    """Take one event into the state."""
    match event:
        case Report():
            _fold_report(state, event, config, selector)
        case Decision():
            _fold_decision(state, event, config)
        case Ended():
            state.ended = event.why


def individual(state: SearchState, slot: Slot, config: TuneConfig, clan: str = "") -> Individual:
    """What selection sees of a slot's member."""
    score = config.score
    return Individual(
        name=slot.plan.member,
        fitness=slot.evidence.faded(state.time, config.fitness.half_life).read(config.fitness.noise),
        hyperparameters=slot.plan.hyperparameters,
        work=slot.work,
        age=float(slot.age),
        curve=slot.curve,
        cases=_scores(slot.metrics, ((name, 1.0) for name in score.cases)),
        objectives=_scores(slot.metrics, ((o.metric, 1.0 if o.mode == "max" else -1.0) for o in score.objectives)),
        descriptor=tuple(slot.metrics[name] for name in score.descriptor) if slot.metrics else (),
        clan=clan or slot.plan.member,
        duration_s=slot.duration_s,
        is_fresh=slot.num_reports == 0,
    )


def _scores(metrics: Mapping[str, float], names: Iterable[tuple[str, float]]) -> tuple[Score, ...]:
    """Scores by metric; a metric `x_error` beside `x` is its standard error."""
    if not metrics:
        return ()
    return tuple(Score(sign * metrics[name], metrics.get(f"{name}_error", 0.0)) for name, sign in names)


def _fold_report(state: SearchState, report: Report, config: TuneConfig, selector: Selector) -> None:
    slot = state.slots[report.slot]
    plan = slot.plan
    state.num_reports += 1
    slot.is_waiting = True
    if report.error:
        slot.num_failures += 1
        state.num_failures += 1
        return
    slot.num_failures = 0
    num_turns, seconds = state.turns.get(plan.member, (0, 0.0))
    state.turns[plan.member] = (num_turns + 1, seconds + report.seconds)
    before = slot.score
    score = config.sign * report.metrics[config.score.metric]
    state.segments[report.segment] = Segment(
        parents=plan.parents,
        member=plan.member,
        hyperparameters=plan.hyperparameters,
        seed=plan.seed,
        reseed=plan.is_birth and slot.num_reports == 0,
        steps=report.steps,
        metrics=report.metrics,
    )
    begin = slot.work
    state.num_steps += report.steps
    slot.steps += report.steps
    slot.age += report.steps
    slot.work += report.steps
    slot.num_reports += 1
    slot.checkpoint = report.segment
    slot.score = score
    slot.metrics = report.metrics
    slot.evidence = slot.evidence.observed(score, state.time, config.fitness.half_life)
    slot.curve = (*slot.curve[-CURVE + 1 :], (slot.work, score))
    slot.duration_s = (
        report.seconds if slot.duration_s == 0 else slot.duration_s + DURATIONS * (report.seconds - slot.duration_s)
    )
    if before is not None and report.steps:
        state.intervals.append(
            Interval(
                hyperparameters=plan.hyperparameters, begin=begin, end=slot.work, gain=score - before, time=state.time
            )
        )
        del state.intervals[:-INTERVALS]
    if state.best is None or score > state.best[0]:
        state.best = (score, report.segment)
    # Only the first interval after a retest began is one of the elite's own setting.
    retests = plan.retests if slot.num_reports == 1 else ""
    newcomer = replace(individual(state, slot, config), name=report.segment, of=plan.member, retests=retests)
    state.elites = selector.remember(state.elites, newcomer)


def _fold_decision(state: SearchState, decision: Decision, config: TuneConfig) -> None:
    if decision.slot == len(state.slots):
        state.slots.append(Slot(plan=decision))
        state.next_member += 1
        return
    slot = state.slots[decision.slot]
    # Read before anything moves: the place itself may stand at the checkpoint that its next member goes on from.
    sources = [source_of(state, segment) for segment, _ in decision.parents] if decision.is_birth else []
    slot.plan = decision
    slot.is_waiting = False
    slot.is_over = decision.is_over
    if not decision.is_birth:
        return
    state.next_member += 1
    shares = [share for _, share in decision.parents]
    state.births[decision.member] = Birth(
        child=decision.member,
        parents=tuple(name for name, _ in sources),
        shares=tuple(shares),
        time=state.time,
    )
    known = [(s, share) for (_, s), share in zip(sources, shares, strict=True)]
    slot.age = 0
    slot.num_reports = 0
    slot.duration_s = 0.0
    slot.metrics = _blended([(state.segments[segment].metrics, share) for segment, share in decision.parents])
    if not known:
        slot.checkpoint, slot.work, slot.score, slot.curve = None, 0.0, None, ()
        slot.evidence = GaussianEvidence(at=state.time)
        return
    state.num_copies += 1
    heaviest = max(known, key=lambda pair: pair[1])[0]
    slot.checkpoint = decision.parents[0][0] if len(decision.parents) == 1 else None
    slot.work = sum(s.work * share for s, share in known)
    slot.score = sum((s.score or 0.0) * share for s, share in known)
    slot.curve = heaviest.curve
    if len(known) == 1:
        slot.evidence = heaviest.evidence.inherited(config.fitness.clone_share, heaviest.evidence.at)
    else:
        slot.evidence = merged([s.evidence for s, _ in known], shares, config.fitness.merge_share, state.time)


def _blended(parents: list[tuple[Mapping[str, float], float]]) -> dict[str, float]:
    """What a child is taken to score until it reports: the weighted mean of its parents' numbers."""
    if not parents:
        return {}
    names = set.intersection(*(set(metrics) for metrics, _ in parents))
    return {name: sum(metrics[name] * share for metrics, share in parents) for name in sorted(names)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a child takes from a checkpoint besides the weights."""

    work: float
    score: float | None
    curve: tuple[tuple[float, float], ...]
    evidence: GaussianEvidence


def source_of(state: SearchState, segment: SegmentId) -> tuple[str, Source]:
    """Who made a checkpoint, and what is known of it: by its maker, by a copy that has not moved yet, or by the archive."""
    maker = state.segments[segment].member
    standing = [slot for slot in state.slots if slot.checkpoint == segment]
    for slot in sorted(standing, key=lambda slot: slot.plan.member != maker):
        return maker, Source(work=slot.work, score=slot.score, curve=slot.curve, evidence=slot.evidence)
    for elite in state.elites:
        if elite.name == segment:
            mean = elite.fitness.mean
            evidence = GaussianEvidence(weight=1.0, squares=1.0, mean=mean, at=state.time)
            return maker, Source(work=elite.work, score=mean, curve=elite.curve, evidence=evidence)
    raise AssertionError(f"nobody stands at {segment}")
