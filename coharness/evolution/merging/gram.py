"""Rules on the sphere see parents only through their inner products: what a tensor is merged by is decided on a small matrix.

One pass takes the Gram matrix of the parents (or of their changes) in float64, the rule finds coefficients on it, and one
more pass takes the linear combination. So an iteration, such as that of a mean on the sphere, costs nothing that grows with
the tensor.

Invariants as in `walk`; sums go by blocks of a fixed size. Driven by `spherical` and `model_stock`.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from coharness.evolution.merging.walk import Chunk, Kernel, Prepare, View

Matrix: TypeAlias = npt.NDArray[np.float64]
Coefficients: TypeAlias = Callable[[Matrix, Sequence[float]], Sequence[float]]
"""(Gram matrix [parents, parents], weights) -> one coefficient a parent."""

_BLOCK: int = 2**14


def by_gram(coefficients: Coefficients) -> Prepare:
    """A rule that merges each tensor by sum_i c_i theta_i, or base + sum_i c_i (theta_i - base) where there is a base."""

    def prepare(view: View) -> Kernel:
        # Values too large for float64's squares give coefficients that are not finite, which the result then shows.
        with np.errstate(all="ignore"):
            found = [float(c) for c in coefficients(gram(view), view.weights)]
        return _combination(view, found)

    return prepare


def gram(view: View) -> Matrix:
    """Inner products of the parents, or of their changes where there is a base [parents, parents]."""
    num_parents = len(view.parents)
    total = torch.zeros((num_parents, num_parents), dtype=torch.float64)
    wide = torch.empty((num_parents, _BLOCK), dtype=torch.float64)
    for block in view.blocks():
        rows = wide[:, : block.parents[0].numel()]
        for row, parent in zip(rows, block.parents, strict=True):
            row.copy_(parent)
            if block.base is not None:
                row.sub_(block.base)
        total.addmm_(rows, rows.T)
    found: Matrix = total.numpy()
    symmetric: Matrix = (found + found.T) / 2
    return symmetric


def norms(inner: Matrix) -> Matrix:
    """Lengths of the parents [parents]."""
    found: Matrix = np.sqrt(np.maximum(np.diag(inner), 0.0))
    return found


def cosines(inner: Matrix) -> Matrix:
    """Cosines between the parents [parents, parents]; 0 with a parent of no length, which has no direction."""
    lengths = norms(inner)
    products = np.outer(lengths, lengths)
    found: Matrix = np.divide(inner, products, out=np.zeros_like(inner), where=products > 0)
    return np.clip(found, -1.0, 1.0, out=found)


def _combination(view: View, coefficients: Sequence[float]) -> Kernel:
    scratch = view.scratch(1)[0]

    def kernel(chunk: Chunk, out: Tensor) -> None:
        part = scratch[: out.numel()]
        out.zero_()
        for parent, coefficient in zip(chunk.parents, coefficients, strict=True):
            if chunk.base is None:
                torch.mul(parent, coefficient, out=part)
            else:
                torch.sub(parent, chunk.base, out=part).mul_(coefficient)
            out.add_(part)
        if chunk.base is not None:
            out.add_(chunk.base)

    return kernel
