"""Mending a judge: fit a candidate to audited attempts, hold it against the present one, and decide by a test.

Questions are split by their hash: what the candidate is fitted to never gates it. The gate looks at two things and at nothing
that the policy earns: conflicts with the verifier on fresh questions, and the order of frozen anchor pairs. Both must hold, since
either alone is cheap to pass: a judge that says one half to everything has no conflicts, and one that never changes keeps
every anchor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

from coharness.records.ids import hash_unit
from coharness.records.judging import MendedJudge
from coharness.reward.linear.fit import Ordered, Settled, fit
from coharness.reward.linear.model import LinearModel
from coharness.reward.reflection.conflicts import Audited
from coharness.reward.reflection.pairs import Origin, Preference, preference_pairs

HARM_DELTA = 0.05
"""Share of anchors that a candidate may lose beside the present judge."""
FRESH_SHARE = 0.4
"""Share of questions that gate a candidate: a light judge needs few to be fitted, and a test over questions needs many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What counts as a conflict, and how sure a test must be."""

    high: float = 0.7
    low: float = 0.3
    level: float = 0.05


def mend(
    incumbent: LinearModel,
    attempts: Sequence[Audited],
    *,
    references: Mapping[str, str],
    clean: Sequence[Ordered],
    anchors: Sequence[Ordered],
    thresholds: Thresholds,
    seed: int,
) -> tuple[LinearModel, MendedJudge]:
    """A candidate and what it does beside the incumbent.

    Args:
        incumbent: the present judge, whose scores the attempts carry.
        attempts: audited ones.
        references: task -> an answer that is known to be right; used where no attempt at the task passed.
        clean: pairs from before, replayed among the new ones.
        anchors: frozen pairs; measured, never fitted to.
        thresholds: of conflicts; the level is `verdict`'s.
        seed: of splits, replay and corruptions.

    Raises:
        ValueError: there is nothing to learn from.
    """
    passed = {a.task for a in attempts if a.verified}
    known = [
        Audited(task=a.task, question=a.question, answer=references[a.task], format=a.format, judged=1.0, verified=True)
        for a in {b.task: b for b in attempts}.values()
        if a.task not in passed and a.task in references
    ]
    fitted = [a for a in [*attempts, *known] if not is_fresh(a.question, seed)]
    old = [_preference(pair) for pair in clean if not is_fresh(pair.question, seed)]
    pairs = preference_pairs(fitted, high=thresholds.high, replay=old, seed=seed)
    settled = {(a.question, a.answer): a.verified for a in fitted}
    candidate = fit(
        [Settled(question=q, answer=a, right=right) for (q, a), right in settled.items()],
        [Ordered(question=p.question, better=p.better, worse=p.worse) for p in pairs],
        parent=incumbent.id,
        about={"operator": "mend", "seed": seed},
    )
    return candidate, _measured(incumbent, candidate, attempts, pairs, len(fitted), anchors, thresholds, seed)


def verdict(mended: MendedJudge, level: float, *, harm_level: float) -> tuple[bool, str]:
    """Whether the candidate takes over, and why.

    Args:
        mended: what was measured.
        level: of the exact one-sided sign test over fresh questions, which must be passed; candidates for one place share one.
        harm_level: of the veto, an exact test that the candidate loses more than `HARM_DELTA` of the anchors, net of those it
            wins; it acts on evidence of harm, so it is never made laxer by sharing.
    """
    if mended.judge == mended.incumbent:
        return False, "the candidate is the present judge"
    decided = mended.fresh_wins + mended.fresh_losses
    better = sign_test(mended.fresh_wins, decided)
    conflicts = (
        f"{mended.fresh_conflicts_before} to {mended.fresh_conflicts_after} conflicts in {mended.fresh_attempts} fresh attempts "
        f"(fewer in {mended.fresh_wins} questions, more in {mended.fresh_losses}, p = {better:.3g})"
    )
    if better > level:
        return False, f"not surely fewer conflicts: {conflicts}"
    lost = mended.anchors_losses - mended.anchors_wins
    worse = float(stats.binom.sf(lost - 1, mended.num_anchors, HARM_DELTA)) if lost > 0 else 1.0
    anchors = (
        f"{mended.anchors_right_before} to {mended.anchors_right_after} of {mended.num_anchors} anchors in order "
        f"(p of no harm = {worse:.3g})"
    )
    if worse <= harm_level:
        return False, f"it forgets: {anchors}; {conflicts}"
    return True, f"{conflicts}; {anchors}"


def is_fresh(question: str, seed: int) -> bool:
    """Whether a question is kept to gate candidates, for this seed."""
    return hash_unit("fresh", seed, question) < FRESH_SHARE


def sign_test(wins: int, decided: int) -> float:
    """Chance of so many wins or more among the decided where neither side is better; 1 where none is decided."""
    return float(stats.binom.sf(wins - 1, decided, 0.5)) if decided else 1.0


def is_conflict(judged: float, verified: bool, thresholds: Thresholds) -> bool:
    """Whether judge and verifier contradict each other, either way."""
    return judged <= thresholds.low if verified else judged >= thresholds.high


def _measured(
    incumbent: LinearModel,
    candidate: LinearModel,
    attempts: Sequence[Audited],
    pairs: Sequence[Preference],
    num_fitted: int,
    anchors: Sequence[Ordered],
    thresholds: Thresholds,
    seed: int,
) -> MendedJudge:
    fresh = [a for a in attempts if is_fresh(a.question, seed)]
    before: dict[str, int] = {}
    after: dict[str, int] = {}
    for a in fresh:
        score = candidate.score(a.question, a.answer)
        before[a.task] = before.get(a.task, 0) + is_conflict(a.judged, a.verified, thresholds)
        after[a.task] = after.get(a.task, 0) + is_conflict(score, a.verified, thresholds)
    old, new = ([_in_order(model, pair) for pair in anchors] for model in (incumbent, candidate))
    return MendedJudge(
        judge=candidate.id,
        incumbent=incumbent.id,
        num_attempts=num_fitted,
        num_pairs=len(pairs),
        num_conflict_pairs=sum(p.origin is Origin.CONFLICT for p in pairs),
        fresh_attempts=len(fresh),
        fresh_conflicts_before=sum(before.values()),
        fresh_conflicts_after=sum(after.values()),
        fresh_wins=sum(after[task] < before[task] for task in before),
        fresh_losses=sum(after[task] > before[task] for task in before),
        num_anchors=len(anchors),
        anchors_right_before=sum(old),
        anchors_right_after=sum(new),
        anchors_wins=sum(n and not o for o, n in zip(old, new, strict=True)),
        anchors_losses=sum(o and not n for o, n in zip(old, new, strict=True)),
    )


def _in_order(model: LinearModel, pair: Ordered) -> bool:
    return model.logit(pair.question, pair.better) > model.logit(pair.question, pair.worse)


def _preference(pair: Ordered) -> Preference:
    return Preference(
        task=pair.question,
        question=pair.question,
        better=pair.better,
        worse=pair.worse,
        margin=1.0,
        origin=Origin.REPLAY,
    )
