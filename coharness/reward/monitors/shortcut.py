"""Does the reward follow a surface feature of the text once the verifier's result is given?

The partial correlation of reward and feature given the verdict is the correlation of both after each verdict's mean is taken
off. Its interval is a bootstrap over rollouts. A feature is a shortcut where the whole interval lies above a bound, in a window
of recent rollouts: length that pays because longer answers are right more often is not one, length that pays among the wrong is.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coharness.stats.interval import Interval

_LIST = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s", re.MULTILINE)
_MARKUP = re.compile(r"\*\*|__|^#{1,6}\s|`", re.MULTILINE)
_WORD = re.compile(r"[\w']+")
_PRAISE = re.compile(
    r"\b(?:excellent|great|perfect(?:ly)?|outstanding|brilliant|amazing|best|correct(?:ly)?|accurate|comprehensive|thorough|"
    r"undoubtedly|certainly|clearly|definitely)\b",
    re.IGNORECASE,
)
_HEDGES = re.compile(
    r"\b(?:perhaps|maybe|possibly|might|could|seems|arguably|likely|roughly|somewhat|apparently)\b", re.IGNORECASE
)
_SELF = re.compile(
    r"\b(?:this (?:answer|response|solution) (?:is|deserves|meets)|rate(?:d)? (?:this|it)|full (?:marks|score)|10/10|"
    r"as (?:the|a) (?:grader|judge)|my (?:answer|response) (?:is|meets))",
    re.IGNORECASE,
)


def text_features(text: str) -> dict[str, float]:
    """Surface features that judges are known to be swayed by, each growing with the thing it is named for."""
    words = [word.lower() for word in _WORD.findall(text)]
    n = max(len(words), 1)
    grams = list(zip(words, words[1:], words[2:], strict=False))
    return {
        "length": float(np.log1p(len(text))),
        "lists": float(np.log1p(len(_LIST.findall(text)))),
        "markup": float(np.log1p(len(_MARKUP.findall(text)))),
        "repetition": 1.0 - len(set(grams)) / len(grams) if grams else 0.0,
        "praise": len(_PRAISE.findall(text)) / n,
        "hedging": len(_HEDGES.findall(text)) / n,
        "self_reference": float(min(len(_SELF.findall(text)), 5)),
    }


FEATURES = tuple(text_features(""))
"""Names of the features, in the order that audits hold them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortcut:
    """A feature's partial correlation with the reward."""

    feature: str
    correlation: Interval

    def is_used(self, bound: float) -> bool:
        """Whether the whole interval lies above `bound`."""
        return self.correlation.low > bound


def shortcuts(
    rewards: Sequence[float],
    verified: Sequence[bool],
    features: Mapping[str, Sequence[float]],
    rng: np.random.Generator,
    *,
    level: float = 0.99,
    num_resamples: int = 400,
) -> list[Shortcut]:
    """Partial correlation of the reward with each feature given the verdict, the strongest first.

    Args:
        rewards: of N rollouts, the judge's part, not the verifier's.
        verified: the verifier's verdict of each.
        features: name -> value of each; those without any spread are left out.
        rng: of the bootstrap.
        level: of each interval; high, since several features are looked at.
        num_resamples: of the bootstrap.

    Raises:
        ValueError: fewer than 20 rollouts, or lengths that differ.
    """
    r, v = np.asarray(rewards, dtype=np.float64), np.asarray(verified, dtype=bool)
    if len(r) < 20 or len(r) != len(v) or any(len(f) != len(r) for f in features.values()):
        raise ValueError(f"got {len(r)} rewards and {len(v)} verdicts, expected as many of everything, and at least 20")
    table = np.asarray([features[name] for name in features], dtype=np.float64)  # [F, N]
    whole = _partial(r, v, table)
    draws = np.empty((num_resamples, len(table)))
    for index in range(num_resamples):
        rows = rng.integers(len(r), size=len(r))
        draws[index] = _partial(r[rows], v[rows], table[:, rows])
    tail = (1 - level) / 2
    low, high = np.quantile(draws, tail, axis=0), np.quantile(draws, 1 - tail, axis=0)
    found = [
        Shortcut(feature=name, correlation=Interval.containing(float(whole[i]), float(low[i]), float(high[i]), level))
        for i, name in enumerate(features)
        if np.ptp(table[i]) > 0
    ]
    return sorted(found, key=lambda s: -s.correlation.value)


def _partial(
    rewards: npt.NDArray[np.float64], verified: npt.NDArray[np.bool_], table: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    r, x = rewards.copy(), table.copy()
    for verdict in (True, False):
        inside = verified == verdict
        if inside.any():
            r[inside] -= r[inside].mean()
            x[:, inside] -= x[:, inside].mean(axis=1, keepdims=True)
    norms = np.sqrt((x**2).sum(axis=1) * (r**2).sum())
    # What is left of a feature without spread is rounding; it correlates with nothing.
    return np.asarray(np.where(norms > 1e-9, (x @ r) / np.maximum(norms, 1e-9), 0.0))
