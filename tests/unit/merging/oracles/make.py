"""Records what mergekit 0.1.5 and PEFT 0.21.2 make of small inputs, as numbers in JSON.

In an environment of its own with mergekit==0.1.5, peft==0.21.2 and torch==2.13.0, from the project's root:

    python tests/unit/merging/oracles/make.py

The inputs are pure functions of numpy's PCG64, so the tests make them again instead of reading them. Nothing of either
library is in this project; the recorded numbers are what their functions return.
"""

import json
from pathlib import Path

import numpy as np
import torch
from mergekit.merge_methods import merge_tensors
from peft.utils import merge_utils

SHAPE = (5, 6)
WEIGHTS = [0.5, 0.3, 0.9]


def inputs() -> tuple[torch.Tensor, list[torch.Tensor]]:
    rng = np.random.default_rng(20261201)
    base = torch.tensor(rng.normal(size=SHAPE))
    return base, [base + torch.tensor(0.1 * rng.normal(size=SHAPE)) for _ in WEIGHTS]


def mergekit() -> dict[str, list[float]]:
    base, parents = inputs()

    def run(
        method: str, *, with_base: bool, weighted: bool = True, count: int = 3, **parameters: object
    ) -> list[float]:
        tensors = [*([base] if with_base else []), *parents[:count]]
        found = merge_tensors(
            tensors,
            method,
            base_index=0 if with_base else None,
            parameters={**({"weight": WEIGHTS[:count]} if weighted else {}), **parameters},
            dtype=torch.float64,
        )
        return found.reshape(-1).tolist()

    t = WEIGHTS[1] / (WEIGHTS[0] + WEIGHTS[1])
    return {
        "linear": run("linear", with_base=False),
        "task_arithmetic": run("task_arithmetic", with_base=True, normalize=True, **{"lambda": 0.7}),
        "ties": run("ties", with_base=True, density=0.4, **{"lambda": 0.7}),
        "ties_unnormalized": run("ties", with_base=True, density=0.4, normalize=False),
        "breadcrumbs": run("breadcrumbs", with_base=True, density=0.6, gamma=0.1, normalize=True),
        "breadcrumbs_ties": run("breadcrumbs_ties", with_base=True, density=0.6, gamma=0.1, normalize=True),
        "breadcrumbs_crowded": run("breadcrumbs", with_base=True, density=0.9, gamma=0.3, normalize=True),
        "sce": run("sce", with_base=True, weighted=False),
        "sce_select": run("sce", with_base=True, weighted=False, select_topk=0.4),
        "ram": run("ram", with_base=True, weighted=False, epsilon=0.08),
        "ram_plus": run("ramplus_tl", with_base=True, weighted=False, epsilon=0.08, r=0.1, alpha=0.9),
        "model_stock": run("model_stock", with_base=True, weighted=False),
        "karcher": run("karcher", with_base=False, weighted=False, max_iter=200, tol=1e-12),
        "multislerp": run("multislerp", with_base=False),
        "multislerp_base": run("multislerp", with_base=True),
        "nuslerp_base": run("nuslerp", with_base=True, count=2),
        "slerp": merge_tensors(parents[:2], "slerp", base_index=0, parameters={"t": t}, dtype=torch.float64)
        .reshape(-1)
        .tolist(),
    }


def peft() -> dict[str, list[float]]:
    base, parents = inputs()
    deltas, weights = [parent - base for parent in parents], torch.tensor(WEIGHTS, dtype=torch.float64)

    def shown(delta: torch.Tensor) -> list[float]:
        return (base + delta).reshape(-1).tolist()

    return {
        "ties": shown(merge_utils.ties(deltas, weights, density=0.4)),
        "magnitude_prune": shown(merge_utils.magnitude_prune(deltas, weights, density=0.6)),
        "task_arithmetic": shown(merge_utils.task_arithmetic(deltas, weights)),
    }


if __name__ == "__main__":
    path = Path(__file__).with_name("recorded.json")
    recorded = {"weights": WEIGHTS, "shape": list(SHAPE), "mergekit": mergekit(), "peft": peft()}
    path.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
