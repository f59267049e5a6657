"""Drawn sources as files: images, and preferences in rows of the shape that EditReward's data have."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from coharness.reward.images.pixels import Image
from coharness.reward.images.synthetic.draw import TIE, Drawn
from coharness.reward.images.synthetic.faults import Worth

FILE = "preferences.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotator:
    """How preferences are given."""

    flips: float = 0.0
    "Chance that a strict preference is written the other way round."
    ties: bool = False
    "Whether pairs of nearly equal worth are written as ties; left out otherwise."
    guesses: bool = False
    "Whether each preference is drawn by a coin: labels without any meaning, for the null."


def write(sources: Iterable[Drawn], folder: Path, annotator: Annotator, rng: np.random.Generator) -> Path:
    """Write sources and all pairs of their candidates.

    Args:
        sources: what was drawn.
        folder: made where it is not there.
        annotator: how labels come about.
        rng: of the annotator.

    Returns:
        The file of preferences.
    """
    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for drawn in sources:
        _png(images / f"{drawn.name}.png", drawn.source)
        for index, candidate in enumerate(drawn.candidates):
            _png(images / f"{drawn.name}-{index}.png", candidate.image)
        for first, second in combinations(range(len(drawn.candidates)), 2):
            row = _row(drawn, first, second, annotator, rng)
            if row is not None:
                rows.append(row)
    path = folder / FILE
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _row(
    drawn: Drawn, first: int, second: int, annotator: Annotator, rng: np.random.Generator
) -> dict[str, Any] | None:
    left, right = drawn.candidates[first].worth, drawn.candidates[second].worth
    gap = left.total - right.total
    vote = "leftvote" if gap > 0 else "rightvote"
    if abs(gap) < TIE:
        if not annotator.ties:
            return None
        vote = "tie"
    elif annotator.guesses or rng.random() < annotator.flips:
        wrong = rng.random() < 0.5 if annotator.guesses else True
        vote = {"leftvote": "rightvote", "rightvote": "leftvote"}[vote] if wrong else vote
    scores = {
        f"{side}_{name}_score": value
        for side, worth in (("left", left), ("right", right))
        for name, value in _scores(worth)
    }
    return {
        "dev_id": f"{drawn.name}:{first}v{second}", "instruction": drawn.instruction, "category": drawn.operation.value,
        "group": drawn.name, "source_image": f"images/{drawn.name}.png",
        "left_image": f"images/{drawn.name}-{first}.png", "right_image": f"images/{drawn.name}-{second}.png",
        "left_model": f"{first}", "right_model": f"{second}", "vote_type": vote, **scores,
    }  # fmt: skip


def _scores(worth: Worth) -> tuple[tuple[str, int], ...]:
    """Scores of two axes from 1 to 4, and their sum, as people give them."""
    followed = 1 + round(3 * worth.followed)
    quality = 1 + round(3 * (0.6 * worth.preserved + 0.4 * worth.clean))
    return ("instruction_following", followed), ("quality_aesthetic", quality), ("overall", followed + quality)


def _png(path: Path, image: Image) -> None:
    if not cv2.imwrite(str(path), image[..., ::-1]):
        raise OSError(f"{path} could not be written")
