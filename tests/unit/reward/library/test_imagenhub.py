"""Figures of human ratings of edited images (ImagenHub, MIT), recomputed with our metrics and with scipy."""

import csv
import json
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from coharness.reward.library.preferences import Label, group_accuracy
from coharness.reward.panel.davidson import Comparison, fit_davidson

ROOT = Path(__file__).resolve().parents[4]
FOLDER = next(
    (root / "shared/data/imagenhub" for root in (ROOT, ROOT.parent) if (root / "shared/data/imagenhub").is_dir()), None
)
pytestmark = pytest.mark.skipif(FOLDER is None, reason="shared/data/imagenhub is neither in the project nor beside it")
EDITORS = {
    "MagicBrush": (0.5112, 0.6480, 0.4665),
    "InstructPix2Pix": (0.2849, 0.6965, 0.2710),
    "Prompt2prompt": (0.1685, 0.5475, 0.1544),
    "CycleDiffusion": (0.1695, 0.5596, 0.1390),
    "SDEdit": (0.0410, 0.5559, 0.0406),
    "Text2Live": (0.0223, 0.8184, 0.0228),
    "DiffEdit": (0.0158, 0.2309, 0.0095),
    "Pix2PixZero": (0.0074, 0.4767, 0.0094),
    "Imagic": (0.0, 0.0317, 0.0),
}


@pytest.fixture(scope="module")
def ratings() -> tuple[tuple[str, ...], np.ndarray]:
    """Names of the editors, and [rater, sample, editor, (SC, PQ)]."""
    assert FOLDER is not None
    raters, names = [], ()
    for rater in (1, 2, 3):
        with (FOLDER / f"Text-Guided_IE_rater{rater}.tsv").open(encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file, delimiter="\t")
        names = tuple(head[1:])
        raters.append([[json.loads(cell) for cell in row[1:]] for row in sorted(rows)])
    return names, np.array(raters, dtype=np.float64)


def overall(values: np.ndarray) -> np.ndarray:
    return np.sqrt(values[..., 0] * values[..., 1])


def test_means_of_each_editor(ratings: tuple[tuple[str, ...], np.ndarray]) -> None:
    names, values = ratings
    assert values.shape == (3, 179, 9, 2)
    for index, name in enumerate(names):
        semantic, quality, both = EDITORS[name]
        own = values[:, :, index]
        assert own[..., 0].mean() == pytest.approx(semantic, abs=6e-5)
        assert own[..., 1].mean() == pytest.approx(quality, abs=6e-5)
        assert overall(own).mean() == pytest.approx(both, abs=6e-5)


def test_raters_correlate(ratings: tuple[tuple[str, ...], np.ndarray]) -> None:
    cells = overall(ratings[1]).reshape(3, -1)
    expected = {(0, 1): (0.7307, 0.7095, 0.7458), (0, 2): (0.6648, 0.6360, 0.6616), (1, 2): (0.7317, 0.7027, 0.7422)}
    for (one, two), (spearman, kendall, pearson) in expected.items():
        assert stats.spearmanr(cells[one], cells[two]).statistic == pytest.approx(spearman, abs=6e-5)
        assert stats.kendalltau(cells[one], cells[two]).statistic == pytest.approx(kendall, abs=6e-5)
        assert stats.pearsonr(cells[one], cells[two]).statistic == pytest.approx(pearson, abs=6e-5)


def label(left: float, right: float) -> Label:
    return Label.TIE if abs(left - right) < 1e-9 else Label.A if left > right else Label.B


def pair_labels(scores: np.ndarray) -> list[Label]:
    return [label(row[a], row[b]) for row in scores for a, b in combinations(range(scores.shape[1]), 2)]


def test_pairs_by_the_mean_of_three_and_agreement_of_two(ratings: tuple[tuple[str, ...], np.ndarray]) -> None:
    scores = overall(ratings[1])
    mean = pair_labels(scores.mean(axis=0))
    assert (len(mean), sum(one is not Label.TIE for one in mean)) == (6444, 2559)
    each = [pair_labels(own) for own in scores]
    agree = {(a, b): sum(x is y for x, y in zip(each[a], each[b], strict=True)) for a, b in combinations(range(3), 2)}
    assert agree == {(0, 1): 5517, (0, 2): 5277, (1, 2): 5571}
    majority = [max(set(votes), key=votes.count) if len(set(votes)) < 3 else None for votes in zip(*each, strict=True)]
    counts = [sum(one is wanted for one in majority) for wanted in (Label.A, Label.B, Label.TIE, None)]
    assert counts == [957, 767, 4677, 43]


@pytest.mark.parametrize(
    ("editors", "pairs", "correct"),
    [
        (("InstructPix2Pix", "MagicBrush", "Prompt2prompt"), 418, 117),
        (("InstructPix2Pix", "MagicBrush", "Prompt2prompt", "CycleDiffusion"), 851, 106),
    ],
)
def test_one_rater_judged_by_another(
    ratings: tuple[tuple[str, ...], np.ndarray], editors: tuple[str, ...], pairs: int, correct: int
) -> None:
    names, values = ratings
    scores = overall(values)[:, :, [names.index(name) for name in editors]]
    right: dict[str, list[bool | None]] = {}
    for sample in range(scores.shape[1]):
        said, truth = (pair_labels(scores[rater, sample : sample + 1]) for rater in (0, 1))
        right[str(sample)] = [x is y for x, y in zip(said, truth, strict=True)]
    assert sum(sum(bool(x) for x in row) for row in right.values()) == pairs
    found = group_accuracy(right, len(editors))
    assert (found.correct, found.groups) == (correct, 179)


def test_rank_correlation_of_one_rater_with_the_mean_of_the_others(ratings: tuple[tuple[str, ...], np.ndarray]) -> None:
    names, values = ratings
    scores = overall(values)
    expected = {
        "InstructPix2Pix": 0.7709, "MagicBrush": 0.7572, "Prompt2prompt": 0.7275, "CycleDiffusion": 0.6845, "DiffEdit": 0.5691,
        "Pix2PixZero": 0.3117, "SDEdit": 0.2876, "Text2Live": 0.1204,
    }  # fmt: skip
    found = {}
    for name in expected:
        own = scores[:, :, names.index(name)]
        found[name] = stats.spearmanr(own[0], own[1:].mean(axis=0)).statistic
    assert found == pytest.approx(expected, abs=6e-5)
    assert math.tanh(np.mean(np.arctanh(list(found.values())))) == pytest.approx(0.5682, abs=6e-5)
    assert np.mean(list(found.values())) == pytest.approx(0.5286, abs=6e-5)
    assert not scores[0, :, names.index("Imagic")].any()


def test_strengths_of_editors_from_strict_pairs(ratings: tuple[tuple[str, ...], np.ndarray]) -> None:
    names, values = ratings
    means = overall(values).mean(axis=0)
    comparisons = [
        Comparison(judge=0, first=a, second=b, verdict=1 if row[a] > row[b] else -1)
        for row in means
        for a, b in combinations(range(9), 2)
        if label(row[a], row[b]) is not Label.TIE
    ]
    wins = {
        n: sum(c.verdict == (1 if c.first == i else -1) for c in comparisons if i in (c.first, c.second))
        for i, n in enumerate(names)
    }
    losses = {n: sum(i in (c.first, c.second) for c in comparisons) - wins[n] for i, n in enumerate(names)}
    assert (len(comparisons), wins["MagicBrush"], losses["MagicBrush"]) == (2559, 971, 107)
    assert (wins["Imagic"], losses["Imagic"]) == (0, 377)
    # Without a prior the one that never won has no finite strength; a tiny one leaves the others as they are.
    # Both orders of each pair leave nothing to the bias of position, which the order of columns would feign.
    back = [Comparison(judge=0, first=c.second, second=c.first, verdict=-c.verdict) for c in comparisons]
    strengths = fit_davidson([*comparisons, *back], 9, ridge=1e-6).strengths
    assert np.isfinite(strengths).all()
    shares = np.exp(strengths - strengths.max())
    shares = dict(zip(names, (shares / shares.sum()).tolist(), strict=True))
    expected = {
        "MagicBrush": 0.49401, "InstructPix2Pix": 0.22315, "Prompt2prompt": 0.11914, "CycleDiffusion": 0.10401, "SDEdit": 0.02914,
        "Text2Live": 0.01688, "DiffEdit": 0.00777, "Pix2PixZero": 0.00591, "Imagic": 0.0,
    }  # fmt: skip
    assert shares == pytest.approx(expected, abs=2e-4)
