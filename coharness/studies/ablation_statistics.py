"""What finished arms say about planned contrasts: estimates, intervals, tests, and whether anything may be said at all.

The unit is one difference a (block, seed): the arms of one seed share it, so they are paired, and tasks are averaged before they
come here. Blocks are strata: a contrast is the mean over blocks of its mean over seeds. Two intervals stand beside each estimate,
Student's, with the spread pooled over blocks, and a bootstrap of the seeds inside each block; a verdict needs both to exclude 0
and a p-value that survives Holm's correction over all contrasts of the plan. Random draws come from a seed of their own, so the
same scores always print the same numbers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from scipy import special

from coharness.records.ids import derive_seed
from coharness.stats.bootstrap import iqm, stratified_mean_interval
from coharness.stats.interval import Interval
from coharness.stats.paired import holm
from coharness.studies.ablation_plan import Contrast, ContrastKind

Values = npt.NDArray[np.float64]
Scores = Mapping[str, Mapping[str, Sequence[float]]]
"""Arm -> block -> score of each seed; the seeds of all arms stand in one order."""
NUM_RESAMPLES = 4000
EXACT_FLIPS = 14
"""Up to this many pairs all sign flips are counted; beyond, 2 ** EXACT_FLIPS are drawn."""


class Verdict(StrEnum):
    """What the numbers allow to be said of a contrast."""

    HELPS = "helps"
    "Both intervals lie above 0, and the corrected test agrees."
    HARMS = "harms"
    "Both intervals lie below 0, and the corrected test agrees."
    UNDECIDED = "undecided"
    "Anything else; no difference was shown, which is not that there is none."


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A contrast as it was found; what needs two seeds is None with one."""

    contrast: Contrast
    value: float
    student: Interval | None
    "Student's interval, paired."
    resampled: Interval | None
    "Bootstrap interval, seeds drawn inside each block."
    sd: float | None
    "Spread between seeds, pooled over blocks."
    p: float | None
    "Two-sided, paired t test."
    p_flip: float | None
    "Two-sided, all sign flips of the differences (Fisher, 1935); assumes symmetry instead of normality."
    p_holm: float | None
    "The t test's, corrected for all contrasts of the plan (Holm, 1979)."
    detectable: float | None
    "Least true difference that this spread and these seeds find with the wanted power at Holm's first step."
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmScore:
    """One arm over all blocks and seeds."""

    name: str
    iqm: float
    interval: Interval | None
    "Stratified bootstrap of the interquartile mean (Agarwal et al., 2021)."
    mean: float
    sd: float | None
    "Between seeds, pooled over blocks."
    low: float
    high: float
    num: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paired:
    """One number a (block, seed)."""

    by_block: Mapping[str, Values]

    @property
    def value(self) -> float:
        return float(np.mean([v.mean() for v in self.by_block.values()]))

    @property
    def num(self) -> int:
        return sum(v.size for v in self.by_block.values())

    @property
    def df(self) -> int:
        return self.num - len(self.by_block)

    @property
    def sd(self) -> float:
        """Spread inside blocks, pooled: all blocks have the same seeds."""
        squares = sum(float(((v - v.mean()) ** 2).sum()) for v in self.by_block.values())
        return math.sqrt(squares / self.df)

    @property
    def error(self) -> float:
        return self.sd / math.sqrt(self.num)


def effects(
    contrasts: Sequence[Contrast], scores: Scores, *, alpha: float = 0.05, power: float = 0.8
) -> tuple[Effect, ...]:
    """All contrasts of a plan with their verdicts.

    Raises:
        ValueError: arms or blocks are missing, or arms do not have the same number of seeds.
    """
    paired = [_differences(contrast, scores) for contrast in contrasts]
    if not paired or paired[0].df < 1:
        return tuple(_bare(contrast, found.value) for contrast, found in zip(contrasts, paired, strict=True))
    tests = [_t_test(found) for found in paired]
    corrected = holm(tests)
    made = []
    for contrast, found, p, p_holm in zip(contrasts, paired, tests, corrected, strict=True):
        student, resampled = _student(found, 1 - alpha), _resampled(contrast.name, found, 1 - alpha)
        made.append(
            Effect(
                contrast=contrast,
                value=found.value,
                student=student,
                resampled=resampled,
                sd=found.sd,
                p=p,
                p_flip=sign_flip_p(list(found.by_block.values())),
                p_holm=p_holm,
                detectable=detectable(
                    found.sd, len(next(iter(found.by_block.values()))), len(found.by_block), len(contrasts), alpha, power
                ),
                verdict=_verdict(student, resampled, p_holm, alpha),
            )
        )  # fmt: skip
    return tuple(made)


def _bare(contrast: Contrast, value: float) -> Effect:
    return Effect(
        contrast=contrast, value=value, student=None, resampled=None, sd=None, p=None, p_flip=None, p_holm=None, detectable=None,
        verdict=Verdict.UNDECIDED,
    )  # fmt: skip


def _verdict(student: Interval, resampled: Interval, p_holm: float, alpha: float) -> Verdict:
    if p_holm > alpha:
        return Verdict.UNDECIDED
    if student.low > 0 and resampled.low > 0:
        return Verdict.HELPS
    if student.high < 0 and resampled.high < 0:
        return Verdict.HARMS
    return Verdict.UNDECIDED


def _differences(contrast: Contrast, scores: Scores) -> _Paired:
    missing = sorted(set(contrast.weights) - set(scores))
    if missing:
        raise ValueError(f"contrast {contrast.name!r} needs the arms {', '.join(missing)}, which have no scores")
    first = scores[next(iter(contrast.weights))]
    sums: dict[str, Values] = {block: np.zeros(len(seeds)) for block, seeds in first.items()}
    for arm, weight in contrast.weights.items():
        shape = {block: len(seeds) for block, seeds in scores[arm].items()}
        if shape != {block: len(seeds) for block, seeds in first.items()} or len(set(shape.values())) != 1:
            raise ValueError(f"arm {arm!r} has scores {shape}, expected the same seeds in the same blocks as all arms")
        for block in sums:
            sums[block] = sums[block] + weight * np.asarray(scores[arm][block], dtype=np.float64)
    return _Paired(by_block=sums)


def _t_test(found: _Paired) -> float:
    """Two-sided p of "the mean is 0"; blocks may differ in their mean, their spread is pooled.

    Seeds that all differ by the same amount, as coarse scores may, show no spread to measure by: then sign flips decide, which
    cannot make much of a few seeds.
    """
    if found.error <= 1e-12 * abs(found.value):
        return sign_flip_p(list(found.by_block.values()))
    return float(min(1.0, 2 * special.stdtr(found.df, -abs(found.value) / found.error)))


def _student(found: _Paired, level: float) -> Interval:
    half = float(special.stdtrit(found.df, 0.5 + level / 2)) * found.error
    return Interval(low=found.value - half, value=found.value, high=found.value + half, level=level)


def _resampled(name: str, found: _Paired, level: float) -> Interval:
    rng = np.random.default_rng(derive_seed("ablation", name))
    return stratified_mean_interval(found.by_block, rng=rng, num_resamples=NUM_RESAMPLES, level=level)


def sign_flip_p(differences: Sequence[npt.ArrayLike]) -> float:
    """Two-sided p of the mean of block means under all sign flips of the differences, block by block [N_b].

    Exact for up to EXACT_FLIPS differences; beyond, that many flips are drawn and the observed one is counted among them. With
    five pairs it is never below 2/32: few seeds cannot show much without assuming a distribution. Source: Fisher (1935).
    """
    terms = np.concatenate([np.asarray(block, dtype=np.float64) / np.size(block) for block in differences])
    observed = abs(float(terms.sum()))
    num = terms.size
    if num <= EXACT_FLIPS:
        bits = (np.arange(2**num)[:, None] >> np.arange(num)) & 1
        flipped = np.abs((1 - 2 * bits) @ terms)
    else:
        rng = np.random.default_rng(derive_seed("sign_flip", num))
        flipped = np.abs(rng.choice((-1.0, 1.0), size=(2**EXACT_FLIPS, num)) @ terms)
        flipped[0] = observed
    # Sums of the same numbers in another order differ by rounding.
    return float(np.mean(flipped >= observed - 1e-12 * max(1.0, observed)))


def detectable(
    sd: float, num_seeds: int, num_blocks: int, num_contrasts: int, alpha: float = 0.05, power: float = 0.8
) -> float:
    """Minimum detectable effect: the true difference that a two-sided paired t test finds with chance `power`.

    The level is alpha / num_contrasts, the first step of Holm's correction; the chance of a finding in the wrong direction is
    left out. Exact by the noncentral t distribution (Owen, 1965); the unit is that of `sd`.

    Raises:
        ValueError: fewer than two seeds, or a spread that is negative or not finite.
    """
    if num_seeds < 2:
        raise ValueError(f"num_seeds: got {num_seeds}, expected 2 or more; a t test needs a spread")
    if not (math.isfinite(sd) and sd >= 0):
        raise ValueError(f"sd: got {sd!r}, expected a finite standard deviation of 0 or more")
    df = num_blocks * (num_seeds - 1)
    critical = float(special.stdtrit(df, 1 - alpha / (2 * num_contrasts)))
    return float(special.nctdtrinc(df, 1 - power, critical)) * sd / math.sqrt(num_blocks * num_seeds)


# Arms ---------------------------------------------------------------------------------------------------------------


def arm_scores(scores: Scores, *, level: float = 0.95) -> tuple[ArmScore, ...]:
    """Each arm over all its blocks and seeds."""
    made = []
    for name, blocks in scores.items():
        by_block = _Paired(by_block={block: np.asarray(seeds, dtype=np.float64) for block, seeds in blocks.items()})
        values = np.concatenate(list(by_block.by_block.values()))
        has_spread = by_block.df > 0
        made.append(
            ArmScore(
                name=name,
                iqm=iqm(values),
                interval=iqm_interval(by_block.by_block, derive_seed("iqm", name), level) if has_spread else None,
                mean=by_block.value,
                sd=by_block.sd if has_spread else None,
                low=float(values.min()),
                high=float(values.max()),
                num=values.size,
            )
        )
    return tuple(made)


def iqm_interval(blocks: Mapping[str, Values], seed: int, level: float = 0.95) -> Interval:
    """Percentile bootstrap interval of the interquartile mean; seeds [N] are drawn with replacement inside each block.

    Source: Agarwal et al. (2021). With few seeds it is too narrow, so no verdict rests on it.
    """
    rng = np.random.default_rng(seed)
    drawn = [v[rng.integers(0, v.size, size=(NUM_RESAMPLES, v.size))] for v in blocks.values()]
    pooled = np.sort(np.concatenate(drawn, axis=1), axis=1)  # [NUM_RESAMPLES, N of all blocks]
    num_dropped = pooled.shape[1] // 4
    means = pooled[:, num_dropped : pooled.shape[1] - num_dropped].mean(axis=1)
    tail = (1 - level) / 2
    low, high = np.quantile(means, (tail, 1 - tail)).tolist()
    return Interval.containing(iqm(np.concatenate(list(blocks.values()))), low, high, level)


def winner(scores: Scores, *, alpha: float = 0.05) -> str | None:
    """The arm that is better than every other one, None where the numbers do not say so.

    It is picked after the fact, so each of its differences to the others must survive a correction for all pairs of arms
    (Bonferroni), with both intervals above 0.
    """
    if len(scores) < 2:
        return None
    lead = max(scores, key=lambda arm: float(np.mean([np.mean(seeds) for seeds in scores[arm].values()])))
    others = [
        Contrast(name=f"{lead} − {arm}", kind=ContrastKind.CONTROL, weights={lead: 1.0, arm: -1.0})
        for arm in scores
        if arm != lead
    ]
    num_pairs = len(scores) * (len(scores) - 1) // 2
    for found in effects(others, scores, alpha=alpha):
        if found.verdict is not Verdict.HELPS or found.p is None or found.p * num_pairs > alpha:
            return None
    return lead
