"""The rules against numbers that mergekit and PEFT gave for the same inputs (`oracles/make.py` records them)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coharness.evolution.merging import RULES

RECORDED = json.loads(Path(__file__).with_name("oracles").joinpath("recorded.json").read_text(encoding="utf-8"))
WEIGHTS: list[float] = RECORDED["weights"]
SHAPE: tuple[int, ...] = tuple(RECORDED["shape"])
THIRDS = [1.0, 1.0, 1.0]


def inputs(dtype: torch.dtype) -> tuple[torch.Tensor, list[torch.Tensor]]:
    rng = np.random.default_rng(20261201)
    base = torch.tensor(rng.normal(size=SHAPE))
    parents = [base + torch.tensor(0.1 * rng.normal(size=SHAPE)) for _ in WEIGHTS]
    return base.to(dtype), [parent.to(dtype) for parent in parents]


def merged(
    rule: str, weights: list[float], dtype: torch.dtype, *, with_base: bool, **settings: Any
) -> np.ndarray[Any, Any]:
    base, parents = inputs(dtype)
    found = RULES[rule].configured(settings)(
        [{"w": parent} for parent in parents[: len(weights)]], weights, {"w": base} if with_base else None
    )
    return found["w"].double().numpy().reshape(-1)


CASES: dict[str, tuple[str, list[float], bool, dict[str, Any]]] = {
    "linear": ("linear", WEIGHTS, False, {}),
    "task_arithmetic": ("task_arithmetic", WEIGHTS, True, {"scale": 0.7}),
    "ties": ("ties", WEIGHTS, True, {"density": 0.4, "scale": 0.7}),
    "breadcrumbs": ("breadcrumbs", WEIGHTS, True, {"density": 0.6, "gamma": 0.1}),
    "breadcrumbs_ties": ("breadcrumbs_ties", WEIGHTS, True, {"density": 0.6, "gamma": 0.1}),
    "breadcrumbs_crowded": ("breadcrumbs", WEIGHTS, True, {"density": 0.9, "gamma": 0.3}),
    "sce": ("sce", THIRDS, True, {}),
    "sce_select": ("sce", THIRDS, True, {"select": 0.4}),
    "ram": ("ram", THIRDS, True, {"epsilon": 0.08}),
    "ram_plus": ("ram_plus", THIRDS, True, {"epsilon": 0.08, "most_overlap": 0.9}),
    "model_stock": ("model_stock", THIRDS, True, {}),
    "karcher": ("karcher", THIRDS, False, {}),
    "multislerp": ("multislerp", WEIGHTS, False, {}),
    "multislerp_base": ("multislerp", WEIGHTS, True, {}),
    "slerp": ("slerp", WEIGHTS[:2], False, {}),
    "nuslerp_base": ("slerp", WEIGHTS[:2], True, {}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-7), (torch.float32, 2e-6)])
def test_mergekit_gives_the_same(case: str, dtype: torch.dtype, tolerance: float) -> None:
    rule, weights, with_base, settings = CASES[case]
    expected = np.array(RECORDED["mergekit"][case])
    found = merged(rule, weights, dtype, with_base=with_base, **settings)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    base, parents = inputs(torch.float64)
    # The oracle tells the rule from a plain average and from the base.
    if case != "linear":
        assert np.abs(expected - base.numpy().reshape(-1)).max() > 1e-3
        assert np.abs(expected - torch.stack(parents).mean(0).numpy().reshape(-1)).max() > 1e-4


def test_peft_gives_the_same_by_its_own_definition_of_ties() -> None:
    found = merged("ties_count", WEIGHTS, torch.float64, with_base=True, density=0.4, normalize=False)
    np.testing.assert_allclose(found, RECORDED["peft"]["ties"], rtol=0, atol=1e-12)
    other = merged("ties", WEIGHTS, torch.float64, with_base=True, density=0.4, normalize=False)
    assert np.abs(found - other).max() > 1e-2  # the two published definitions are not one


def test_both_definitions_of_ties_agree_where_all_weights_are_one() -> None:
    both = (
        merged(rule, THIRDS, torch.float64, with_base=True, density=0.4, normalize=False)
        for rule in ("ties", "ties_count")
    )
    np.testing.assert_allclose(*both, rtol=0, atol=1e-12)


def test_pefts_magnitude_pruning_is_breadcrumbs_without_outliers() -> None:
    found = merged("breadcrumbs", WEIGHTS, torch.float64, with_base=True, density=0.6, gamma=0.0, normalize=False)
    np.testing.assert_allclose(found, RECORDED["peft"]["magnitude_prune"], rtol=0, atol=1e-12)


def test_pefts_task_arithmetic_is_ours_without_normalising() -> None:
    found = merged("task_arithmetic", WEIGHTS, torch.float64, with_base=True, normalize=False)
    np.testing.assert_allclose(found, RECORDED["peft"]["task_arithmetic"], rtol=0, atol=1e-12)
