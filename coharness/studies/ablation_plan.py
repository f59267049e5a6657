"""The plan of an ablation: which arms run, and which contrasts between them are tested; pure, nothing is run here.

    factors ─▶ design ─▶ arms (a level of each factor) ─▶ contrasts (weights over arms) ─▶ tests, all planned beforehand
                          └ controls: arms that no ablation may leave out

Invariants: the first level of each factor is its reference, and the arm with all references is named `full`; weights of a
contrast sum to 0, and to 1 over the arms that stand for it, so every contrast is a difference of mean scores; what a design
cannot tell apart stands beside the contrast. Arms are overrides of one run's config and nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, product

from coharness.studies.ablation_fraction import Fraction, Word, smallest_fraction

FULL = "full"
"""The arm with every factor at its reference."""
WITH, WITHOUT = "with", "without"
"""Levels of a switch."""
MAX_ARMS = 512
CONTROLS: Mapping[str, tuple[str, ...]] = {
    "frozen": ("schedule=frozen",),
    "randomized": ("schedule=randomized",),
    "single": ("population.num_policies=1",),
}
"""Control arm -> its overrides: nothing moves; no evidence is used; one member has the population's budget."""


class Design(StrEnum):
    """Which combinations of levels are run."""

    ONE_OFF = "one_off"
    "All references, and each other level alone against them."
    FULL = "full"
    "All combinations."
    FRACTION = "fraction"
    "The smallest fraction of the two-level factorial that has the wanted resolution."


class ContrastKind(StrEnum):
    """What a contrast speaks of."""

    EFFECT = "effect"
    "What a factor's reference gives over another of its levels."
    INTERACTION = "interaction"
    "Whether two factors give more together than alone: half the difference of one's effects with and without the other."
    CONTROL = "control"
    "What the full arm gives over a control."


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One switch or value."""

    name: str
    levels: Mapping[str, tuple[str, ...]]
    "Level -> its overrides; the first is the reference."

    @property
    def reference(self) -> str:
        """The level that the full arm has."""
        return next(iter(self.levels))

    @property
    def others(self) -> tuple[str, ...]:
        """All levels but the reference."""
        return tuple(self.levels)[1:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What one column of the study runs, under every block and seed."""

    name: str
    levels: Mapping[str, str]
    "Factor -> level; empty for a control."
    overrides: tuple[str, ...]
    "What it lays over the base config."


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A difference of mean scores that was planned before the run."""

    name: str
    kind: ContrastKind
    weights: Mapping[str, float]
    "Arm -> weight; they sum to 0, the positive ones to 1."
    confused_with: tuple[str, ...] = ()
    "Effects of at most two factors that this design cannot tell from it."

    @property
    def scale(self) -> float:
        """Its standard deviation over that of a difference of two arms, if arms varied alike and independently of one another."""
        return float((sum(w * w for w in self.weights.values()) / 2) ** 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All arms and all contrasts."""

    arms: tuple[Arm, ...]
    contrasts: tuple[Contrast, ...]
    resolution: int | None = None
    "Of a fraction; None where nothing is confused."

    def arm(self, name: str) -> Arm:
        """The arm of this name."""
        return next(arm for arm in self.arms if arm.name == name)


def make_plan(
    factors: Sequence[Factor], design: Design, *, resolution: int = 4, controls: Sequence[str] = tuple(CONTROLS)
) -> Plan:
    """The plan of a design over factors, with its control arms.

    Args:
        factors: with at least two levels each; exactly two in a fraction.
        design: which combinations run.
        resolution: least resolution of a fraction.
        controls: names of CONTROLS.

    Raises:
        ValueError: no factor, a factor without another level, names that repeat, or too many arms for the design.
    """
    _refuse(factors, controls)
    match design:
        case Design.ONE_OFF:
            plan = _one_off(factors)
        case Design.FULL:
            plan = _factorial(factors)
        case Design.FRACTION:
            plan = _fraction(factors, resolution)
    extra = tuple(Arm(name=name, levels={}, overrides=CONTROLS[name]) for name in controls)
    against = tuple(
        Contrast(name=f"{FULL} − {name}", kind=ContrastKind.CONTROL, weights={FULL: 1.0, name: -1.0})
        for name in controls
    )
    return Plan(arms=plan.arms + extra, contrasts=plan.contrasts + against, resolution=plan.resolution)


def _refuse(factors: Sequence[Factor], controls: Sequence[str]) -> None:
    if not factors:
        raise ValueError("an ablation needs at least one factor")
    names = [factor.name for factor in factors]
    if len(set(names)) < len(names):
        raise ValueError(f"factors {', '.join(names)} repeat a name")
    for factor in factors:
        if len(factor.levels) < 2:
            raise ValueError(f"factor {factor.name} has {len(factor.levels)} level, expected at least 2")
    unknown = sorted(set(controls) - set(CONTROLS))
    if unknown:
        raise ValueError(f"no control {', '.join(unknown)}; there are {', '.join(CONTROLS)}")
    if len(set(controls)) < len(controls):
        raise ValueError(f"controls {', '.join(controls)} repeat a name")


def _arm(factors: Sequence[Factor], levels: Mapping[str, str]) -> Arm:
    changed = [factor.name for factor in factors if levels[factor.name] != factor.reference]
    spelled = ", ".join(_level(name, levels[name]) for name in changed)
    # References come first: what a factor leaves out must win over what another's reference says.
    ordered = sorted(factors, key=lambda factor: levels[factor.name] != factor.reference)
    return Arm(
        name=spelled or FULL,
        levels=dict(levels),
        overrides=tuple(word for factor in ordered for word in factor.levels[levels[factor.name]]),
    )


def _level(factor: str, level: str) -> str:
    return f"without {factor}" if level == WITHOUT else f"{factor} {level}"


def _one_off(factors: Sequence[Factor]) -> Plan:
    references = {factor.name: factor.reference for factor in factors}
    arms, contrasts = [_arm(factors, references)], []
    for factor in factors:
        for level in factor.others:
            name = _level(factor.name, level)
            arms.append(_arm(factors, {**references, factor.name: level}))
            contrasts.append(
                Contrast(name=_effect(factor, level), kind=ContrastKind.EFFECT, weights={FULL: 1.0, name: -1.0})
            )
    return Plan(arms=tuple(arms), contrasts=tuple(contrasts))


def _effect(factor: Factor, level: str) -> str:
    return f"{factor.name}: {factor.reference} − {level}"


def _factorial(factors: Sequence[Factor]) -> Plan:
    num_arms = 1
    for factor in factors:
        num_arms *= len(factor.levels)
    if num_arms > MAX_ARMS:
        raise ValueError(f"all combinations are {num_arms} arms, more than {MAX_ARMS}; ask for one_off or a fraction")
    names = [factor.name for factor in factors]
    arms = [
        _arm(factors, dict(zip(names, levels, strict=True))) for levels in product(*(tuple(f.levels) for f in factors))
    ]
    contrasts = [
        Contrast(
            name=_effect(factor, level),
            kind=ContrastKind.EFFECT,
            weights=_marginal(arms, factor.name, factor.reference, level),
        )
        for factor in factors
        for level in factor.others
    ]
    contrasts += [
        Contrast(
            name=f"{first.name} × {second.name}" + ("" if len(first.others) * len(second.others) == 1 else f" ({a}, {b})"),
            kind=ContrastKind.INTERACTION,
            weights=_interaction(arms, first, a, second, b),
        )
        for first, second in combinations(factors, 2)
        for a in first.others
        for b in second.others
    ]  # fmt: skip
    return Plan(arms=tuple(arms), contrasts=tuple(contrasts))


def _marginal(arms: Sequence[Arm], factor: str, plus: str, minus: str) -> dict[str, float]:
    return _weights(arms, lambda arm: {plus: 1, minus: -1}.get(arm.levels[factor], 0))


def _interaction(arms: Sequence[Arm], first: Factor, a: str, second: Factor, b: str) -> dict[str, float]:
    def sign(arm: Arm) -> int:
        one = {first.reference: 1, a: -1}.get(arm.levels[first.name], 0)
        return one * {second.reference: 1, b: -1}.get(arm.levels[second.name], 0)

    return _weights(arms, sign)


def _weights(arms: Sequence[Arm], sign: Callable[[Arm], int]) -> dict[str, float]:
    """Weights of the mean over arms of sign +1 less the mean over arms of sign -1."""
    signs = {arm.name: sign(arm) for arm in arms}
    num = {s: sum(value == s for value in signs.values()) for s in (1, -1)}
    return {name: s / num[s] for name, s in signs.items() if s}


def _fraction(factors: Sequence[Factor], resolution: int) -> Plan:
    wide = [factor.name for factor in factors if len(factor.levels) != 2]
    if wide:
        raise ValueError(
            f"a fraction is of factors with two levels, {', '.join(wide)} has more; ask for full or one_off"
        )
    fraction = smallest_fraction(len(factors), resolution)
    arms = [
        _arm(factors, {f.name: f.reference if sign > 0 else f.others[0] for f, sign in zip(factors, run, strict=True)})
        for run in fraction.runs()
    ]
    contrasts = []
    seen: set[Word] = set()
    words = [frozenset(places) for order in (1, 2) for places in combinations(range(len(factors)), order)]
    for word in words:
        if word in seen:
            # The same numbers as a contrast before it, which names this one as its alias.
            continue
        aliases = fraction.aliases(word)
        seen |= {word, *aliases}
        contrasts.append(_fraction_contrast(factors, fraction, arms, word, aliases))
    return Plan(arms=tuple(arms), contrasts=tuple(contrasts), resolution=fraction.resolution)


def _fraction_contrast(
    factors: Sequence[Factor], fraction: Fraction, arms: Sequence[Arm], word: Word, aliases: Sequence[Word]
) -> Contrast:
    signs = {}
    for arm, run in zip(arms, fraction.runs(), strict=True):
        value = 1
        for place in word:
            value *= run[place]
        signs[arm.name] = value

    def spelled(effect: Word) -> str:
        return " × ".join(factors[place].name for place in sorted(effect))

    only = factors[min(word)]
    return Contrast(
        name=_effect(only, only.others[0]) if len(word) == 1 else spelled(word),
        kind=ContrastKind.EFFECT if len(word) == 1 else ContrastKind.INTERACTION,
        weights={name: 2 * sign / len(arms) for name, sign in signs.items()},
        confused_with=tuple(map(spelled, aliases)),
    )
