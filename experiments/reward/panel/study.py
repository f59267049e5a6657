"""Can a panel of judges be trusted without anchors, and what do forty anchors give? On recorded verdicts, no model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coharness.records.errors import ConfigError
from coharness.reward.panel.choice import by_best, choose_count
from coharness.reward.panel.dawid_skene import fit_dawid_skene
from coharness.reward.panel.effective import effective_votes
from coharness.reward.panel.log_odds import fit_vote
from coharness.reward.panel.votes import accuracy, anchors_of, majority, swap_inconsistency, symmetrised
from coharness.studies.contract import Cell, Figure, Summary, Table
from experiments.reward.llmbar import PANEL, PROMPT, data_digest, load

SPLITS = 200
QUICK_SPLITS = 10
ANCHORS = (10, 20, 40, 80)
NO_STRONG = PANEL[1:]
"""The panel without its one strong judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelStudy:
    """Six recorded judges under random anchors; see `coharness.studies.contract.Study`."""

    name: str = "reward/panel"
    question: str = (
        "Does an anchored panel of judges reach its best member, where a majority and an unanchored model fail?"
    )
    num_seeds: int = 1
    cell_deadline_s: float = 1800.0

    def budget(self, *, quick: bool, rollouts: int | None) -> Mapping[str, float]:
        """Random draws of the anchors."""
        if rollouts is not None:
            raise ConfigError("reward/panel draws anchors and rolls nothing out; leave --rollouts out")
        return {"splits": QUICK_SPLITS if quick else SPLITS}

    def cells(self, seeds: Sequence[int], *, quick: bool, rollouts: int | None) -> list[Cell]:
        """One cell a number of anchors, and one for what needs none."""
        splits = int(self.budget(quick=quick, rollouts=rollouts)["splits"])
        shared = {"data": data_digest(), "splits": splits}
        return [
            Cell(arm=arm, seed=seed, config={**shared, "anchors": anchors})
            for seed in seeds
            for arm, anchors in [("unanchored", 0), *((f"anchored_{n}", n) for n in ANCHORS)]
        ]

    def run_cell(self, cell: Cell, folder: Path) -> dict[str, Any]:
        """Accuracies of all ways of counting on the items that are no anchors."""
        recorded = load()
        names = [f"{family}/{PROMPT}" for family in PANEL]
        first, swapped = (np.stack([recorded.orders[name][order] for name in names]) for order in (0, 1))
        verdicts, truth = symmetrised(first, swapped), recorded.truth
        if not cell.config["anchors"]:
            return _without_anchors(verdicts, first, swapped, truth)
        weak = verdicts[[PANEL.index(family) for family in NO_STRONG]]
        rows = []
        for split in range(int(cell.config["splits"])):
            rng = np.random.default_rng([cell.seed, split])
            items = rng.permutation(len(truth))[: int(cell.config["anchors"])]
            anchors = anchors_of(items.tolist(), truth[items].tolist())
            rest = np.setdiff1d(np.arange(len(truth)), items)
            held = fit_dawid_skene(verdicts, anchors)
            chosen = choose_count(verdicts, anchors, rng)
            decided = {
                "vote": fit_vote(verdicts, anchors).log_odds(verdicts),
                "best": by_best(verdicts, anchors),
                "dawid_skene": held.probability - 0.5,
                "choice": chosen.decisions,
                "vote_without_strong": fit_vote(weak, anchors).log_odds(weak),
            }
            rows.append({name: accuracy(d[rest], truth[rest]) for name, d in decided.items()})
            rows[-1] |= {"n_eff": effective_votes(verdicts, anchors)}
        return {"rows": rows}

    def summarise(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
        """Accuracies over the draws, and the panel beside its best member."""
        free = next(result for cell, result in cells.items() if cell.arm == "unanchored")
        figures = [
            _figure("majority/accuracy", free["majority"]),
            _figure("best/accuracy", max(free["judges"].values())),
            _figure("unanchored_dawid_skene/accuracy", free["dawid_skene"]),
            _figure("unanchored_dawid_skene/confidence", free["confidence"]),
            _figure("unanchored_dawid_skene/correlation_with_truth", free["correlation"]),
            _figure("unanchored_dawid_skene/flagged", float(not free["identifiable"])),
            _figure("panel/effective_votes", free["n_eff"]),
        ]
        table = []
        for cell, result in sorted(cells.items(), key=lambda item: item[0].config["anchors"]):
            if not cell.config["anchors"]:
                continue
            n, rows = cell.config["anchors"], result["rows"]
            ways = ("vote", "choice", "best", "dawid_skene", "vote_without_strong")
            means = {way: np.asarray([row[way] for row in rows]) for way in ways}
            for way in ways:
                low, high = np.quantile(means[way], (0.05, 0.95))
                figures.append(
                    _figure(f"anchored_{n}/{way}", float(means[way].mean()), float(low), float(high), "5-95 % of draws")
                )
            gap = means["vote"] - means["best"]
            figures.append(
                _figure(f"anchored_{n}/vote-best", float(gap.mean()), float(gap.min()), float(gap.max()), "extremes")
            )
            table.append(
                (n, *(round(float(means[way].mean()), 4) for way in ways), round(float((gap < -0.02).mean()), 3))
            )
        return Summary(
            figures=tuple(figures),
            tables=(
                Table(
                    title="Accuracy on the pairs that are no anchors, mean over draws",
                    columns=(
                        "anchors",
                        "vote",
                        "choice",
                        "best judge",
                        "Dawid-Skene",
                        "vote without GPT-4",
                        "P(vote < best - .02)",
                    ),
                    rows=tuple(table),
                ),
                Table(
                    title="Judges, all 419 pairs, both orders",
                    columns=("judge", "accuracy", "swap inconsistency"),
                    rows=tuple((n, round(a, 3), round(free["swap"][n], 3)) for n, a in free["judges"].items()),
                    note="consistency is no correctness: compare the second and third columns",
                ),
            ),
        )


def _without_anchors(verdicts: Any, first: Any, swapped: Any, truth: Any) -> dict[str, Any]:
    # Both orders as twelve judges, as the model is commonly fitted.
    both = np.concatenate([first, swapped])
    fitted = fit_dawid_skene(both, None)
    believed = (fitted.sensitivity + fitted.specificity) / 2
    real = [accuracy(row, truth) for row in both]
    inconsistency = swap_inconsistency(first, swapped)
    return {
        "judges": {name: accuracy(row, truth) for name, row in zip(PANEL, verdicts, strict=True)},
        "swap": {name: float(rate) for name, rate in zip(PANEL, inconsistency, strict=True)},
        "majority": accuracy(majority(verdicts), truth),
        "dawid_skene": accuracy(fitted.probability - 0.5, truth),
        "confidence": float(np.maximum(fitted.probability, 1 - fitted.probability).mean()),
        "correlation": float(np.corrcoef(believed, real)[0, 1]),
        "identifiable": fitted.identifiable,
        "n_eff": effective_votes(verdicts, anchors_of(range(len(truth)), truth.tolist())),
    }


def _figure(name: str, value: float, low: float | None = None, high: float | None = None, note: str = "") -> Figure:
    unit = "votes" if "votes" in name else "share"
    return Figure(name=name, value=value, low=low, high=high, unit=unit, seeds=(0,), note=note)


STUDY = PanelStudy()
