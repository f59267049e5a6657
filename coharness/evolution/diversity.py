"""How different the members of a population are in what they do, not in their numbers.

All figures are taken on shared probes: the same prompts or tasks for every member. They stand beside the reward in reports, and
a low effective size (`coharness.evolution.lineage`) calls immigrants.
"""

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]


def mean_jensen_shannon(distributions: npt.ArrayLike) -> float:
    """Mean pairwise Jensen-Shannon divergence of what members do on probes, in bits (Lin, 1991): 0 all alike, 1 nothing shared.

    Args:
        distributions: [members, probes, actions], each row over the actions non-negative and summing to 1.

    Raises:
        ValueError: the shape is another one, or a row is no distribution.
    """
    p = np.asarray(distributions, dtype=np.float64)
    if p.ndim != 3 or 0 in p.shape:
        raise ValueError(f"distributions: got the shape {p.shape}, expected [members, probes, actions], none of them 0")
    if (p < 0).any() or not np.allclose(p.sum(axis=-1), 1.0, atol=1e-6):
        raise ValueError(
            "distributions: every row over the actions is non-negative and sums to 1; normalise them first"
        )
    num = len(p)
    if num < 2:
        return 0.0
    entropy = _entropy(p)  # [members, probes]
    total = 0.0
    for i in range(num):
        for j in range(i + 1, num):
            total += float((_entropy((p[i] + p[j]) / 2) - (entropy[i] + entropy[j]) / 2).mean())
    return max(0.0, 2 * total / (num * (num - 1)))


def _entropy(p: Matrix) -> Matrix:
    """Entropy over the last axis in bits."""
    positive = np.where(p > 0, p, 1.0)
    entropy: Matrix = -(p * np.log2(positive)).sum(axis=-1)
    return entropy


def mean_disagreement(answers: npt.ArrayLike) -> float:
    """Share of shared tasks on which two members drawn at random answer differently.

    Args:
        answers: [members, tasks], any values that can be compared, e.g. answer texts or 0/1 for wrong/right.

    Raises:
        ValueError: the shape is another one.
    """
    table = np.asarray(answers)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"answers: got the shape {table.shape}, expected [members, tasks], none of them 0")
    num = len(table)
    if num < 2:
        return 0.0
    differ = sum(float((table[i] != table[j]).mean()) for i in range(num) for j in range(i + 1, num))
    return 2 * differ / (num * (num - 1))


def useful_diversity(passes: npt.ArrayLike) -> float:
    """What a population solves together minus what its best member solves alone, as a share of the tasks.

    0 where one member solves all that any of them does: then the others' differences are worth nothing on these tasks.

    Args:
        passes: [members, tasks] of truth values.

    Raises:
        ValueError: the shape is another one, or an entry is neither 0 nor 1.
    """
    table = np.asarray(passes)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"passes: got the shape {table.shape}, expected [members, tasks], none of them 0")
    if not np.isin(table, (0, 1)).all():
        raise ValueError("passes: expected truth values or 0 and 1")
    solved = table.astype(bool)
    return float(solved.any(axis=0).mean() - solved.mean(axis=1).max())
