"""How sure is a judge, and may it say so? Temperature, abstention at a bounded risk, and rates corrected by settled items."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coharness.records.errors import ConfigError
from coharness.reward.panel.calibration import cross_fitted, report_calibration
from coharness.reward.panel.estimation import mean_interval, prediction_powered_mean
from coharness.reward.panel.selective import fit_selection
from coharness.reward.panel.votes import symmetrised
from coharness.studies.contract import Cell, Figure, Summary, Table
from experiments.reward.llmbar import data_digest, load

SPLITS, QUICK_SPLITS = 500, 20
NUM_ANCHORS = 150
NUM_SETTLED = 40
TEMPERATURES = {"wide_a": 14.0, "wide_b": 12.0, "wide_c": 6.0, "wide_d": 3.0, "wide_e": 1.0}
"""Simulated reward models: raw margins divided by these are honest log odds."""
GOOD_JUDGE, USELESS_JUDGE = "GPT-4/Metrics_Reference", "ChatGPT/Vanilla"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationStudy:
    """Confidence of recorded and simulated judges; see `coharness.studies.contract.Study`."""

    name: str = "reward/calibration"
    question: str = "Do calibrated confidence, abstention and corrected rates keep what they promise?"
    num_seeds: int = 1
    cell_deadline_s: float = 1800.0

    def budget(self, *, quick: bool, rollouts: int | None) -> Mapping[str, float]:
        """Random splits."""
        if rollouts is not None:
            raise ConfigError("reward/calibration draws splits and rolls nothing out; leave --rollouts out")
        return {"splits": QUICK_SPLITS if quick else SPLITS}

    def cells(self, seeds: Sequence[int], *, quick: bool, rollouts: int | None) -> list[Cell]:
        """One cell a promise."""
        config = {"data": data_digest(), "splits": int(self.budget(quick=quick, rollouts=rollouts)["splits"])}
        return [
            Cell(arm=arm, seed=seed, config=config)
            for seed in seeds
            for arm in ("selective", "estimation", "temperature")
        ]

    def run_cell(self, cell: Cell, folder: Path) -> dict[str, Any]:
        """Run one promise over all splits."""
        splits = int(cell.config["splits"])
        match cell.arm:
            case "selective":
                return _selective(cell.seed, splits)
            case "estimation":
                return _estimation(cell.seed, splits)
            case _:
                return _temperature(cell.seed)

    def summarise(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
        """Promises beside what was kept."""
        figures: list[Figure] = []
        rows: dict[str, list[tuple[Any, ...]]] = {}
        for cell, result in cells.items():
            for name, values in result.items():
                for key, value in values.items():
                    figures.append(
                        Figure(name=f"{name}/{key}", value=value, low=None, high=None, unit="share", seeds=(cell.seed,))
                    )
                rows.setdefault(cell.arm, []).append((name, *(round(v, 4) for v in values.values())))
        columns = {
            "selective": ("risk allowed", "coverage", "risk", "violations"),
            "estimation": (
                "judge",
                "coverage of the interval",
                "width against settled items alone",
                "judge's own rate",
            ),
            "temperature": ("simulated judge", "ECE raw", "ECE cross-fitted"),
        }
        return Summary(
            figures=tuple(figures),
            tables=tuple(Table(title=arm, columns=columns[arm], rows=tuple(rows[arm])) for arm in sorted(rows)),
        )


def _selective(seed: int, splits: int) -> dict[str, dict[str, float]]:
    recorded = load()
    orders = [rows for name, rows in recorded.orders.items() if name.startswith("GPT-4/")]
    verdicts = symmetrised([rows[0] for rows in orders], [rows[1] for rows in orders])
    mean, truth = verdicts.mean(axis=0), recorded.truth
    confidence, wrong = np.abs(mean), (np.sign(mean) != truth).astype(float)
    results = {}
    for alpha in (0.1, 0.05):
        coverage, risk, broken = [], [], 0
        for split in range(splits):
            order = np.random.default_rng([seed, split]).permutation(len(truth))
            anchors, rest = order[:NUM_ANCHORS], order[NUM_ANCHORS:]
            found = fit_selection(confidence[anchors], wrong[anchors], alpha=alpha, delta=0.1)
            answered = found.answers(confidence[rest])
            coverage.append(float(answered.mean()))
            risk.append(float(wrong[rest][answered].mean()) if answered.any() else 0.0)
            broken += risk[-1] > alpha
        results[f"selective_{alpha:g}"] = {
            "coverage": float(np.mean(coverage)),
            "risk": float(np.mean(risk)),
            "violations": broken / splits,
        }
    return results


def _estimation(seed: int, splits: int) -> dict[str, dict[str, float]]:
    recorded = load()
    y = (recorded.longer == recorded.truth).astype(float)
    results = {}
    for role, name in (("good_judge", GOOD_JUDGE), ("useless_judge", USELESS_JUDGE)):
        f = (recorded.orders[name] == recorded.longer).mean(axis=0)
        covered, ratios = 0, []
        for split in range(splits):
            order = np.random.default_rng([seed, split]).permutation(len(y))
            settled, rest = order[:NUM_SETTLED], order[NUM_SETTLED:]
            interval = prediction_powered_mean(y[settled], f[settled], f[rest])
            alone = mean_interval(y[settled])
            covered += not interval.excludes(float(y.mean()))
            ratios.append((interval.high - interval.low) / max(alone.high - alone.low, 1e-12))
        results[role] = {"coverage": covered / splits, "width_ratio": float(np.mean(ratios)), "naive": float(f.mean())}
    return results


def _temperature(seed: int) -> dict[str, dict[str, float]]:
    rng = np.random.default_rng([seed, 77])
    results = {}
    for name, temperature in TEMPERATURES.items():
        # 350 pairs of a judge that is right in about 6 of 10, as reward models are on hard pairs.
        margins = temperature * rng.normal(0.0, 0.9, size=350)
        labels = (rng.random(350) < 1 / (1 + np.exp(-margins / temperature))).astype(float)
        raw = report_calibration(1 / (1 + np.exp(-margins)), labels)
        results[name] = {"ece_raw": raw.ece, "ece": cross_fitted(margins, labels, rng).ece}
    return results


STUDY = CalibrationStudy()
