"""Sources with K graded candidates each: what a benchmark or a set of demonstrations consists of."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coharness.reward.images.pixels import Image
from coharness.reward.images.spec import Operation
from coharness.reward.images.synthetic.edits import random_edit
from coharness.reward.images.synthetic.faults import OF_IMAGE, Fault, Made, faults_of, make
from coharness.reward.images.synthetic.scenes import Backgrounds, random_layout, render

OPERATIONS = (Operation.RECOLOR, Operation.REMOVE, Operation.ADD, Operation.MOVE)
"""Operations that are trained on; REPLACE and TEXT are kept for tests of transfer, unless asked for."""
TIE = 0.05
"""Difference of worth below which two candidates are a tie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One source with its candidates."""

    name: str
    source: Image
    instruction: str
    operation: Operation
    candidates: tuple[Made, ...]


def draw(
    rng: np.random.Generator,
    name: str,
    backgrounds: Backgrounds,
    *,
    num_candidates: int = 4,
    operations: Sequence[Operation] = OPERATIONS,
    without: Sequence[Fault] = (),
) -> Drawn:
    """One source with candidates of mixed quality.

    Args:
        rng: where all chance comes from.
        name: of the source, unique in a set.
        backgrounds: the family of backgrounds.
        num_candidates: K.
        operations: one of these is asked for.
        without: faults that do not occur.
    """
    operation = operations[int(rng.integers(len(operations)))]
    layout = random_layout(rng, word=operation is Operation.TEXT)
    background, grain = backgrounds.draw(rng), int(rng.integers(2**31))
    edit = random_edit(rng, operation, layout)
    source = render(layout, background, grain)
    candidates = tuple(
        make(edit, source, background, grain, _random_faults(rng, operation, without), rng)
        for _ in range(num_candidates)
    )
    return Drawn(
        name=name, source=source, instruction=edit.instruction, operation=operation, candidates=candidates
    )  # fmt: skip


def _random_faults(
    rng: np.random.Generator, operation: Operation, without: Sequence[Fault]
) -> tuple[tuple[Fault, float], ...]:
    faults = []
    if rng.random() < 0.6:
        options = [fault for fault in faults_of(operation) if fault not in without]
        faults.append(options[int(rng.integers(len(options)))])
    num = int(rng.choice([0, 1, 2], p=[0.35, 0.45, 0.2]))
    options = [fault for fault in OF_IMAGE if fault not in without]
    faults += [options[i] for i in sorted(rng.permutation(len(options))[:num])]
    return tuple((fault, float(rng.uniform(0.1, 1.0))) for fault in faults)
