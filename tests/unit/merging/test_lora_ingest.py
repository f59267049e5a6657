"""Adapters as PEFT writes them: scales by module against PEFT itself, what is refused, ranks that grow, rules on adapters."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from torch import nn

from coharness.evolution.merging import RULES, LoraSpec, RankPolicy, Space, merge_lora, merge_lora_by
from coharness.evolution.merging.lora_factors import adapted_modules
from coharness.evolution.merging.lora_spec import spec_from_peft

Map = dict[str, torch.Tensor]
PLAIN: dict[str, Any] = {"r": 4, "lora_alpha": 6.0, "target_modules": ["q_proj", "v_proj"]}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.v_proj = nn.Linear(7, 6), nn.Linear(7, 5)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])


def trained(**changes: Any) -> tuple[Any, dict[str, Any], Map]:
    """(PEFT model, its config as JSON, its tensors); both factors are drawn, as if trained."""
    config = LoraConfig(**{**PLAIN, **changes})
    with torch.random.fork_rng():
        model = get_peft_model(Net(), config)
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data.normal_(generator=generator)
    return model, config.to_dict(), {n: t.detach() for n, t in get_peft_model_state_dict(model).items()}


SCALINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rslora": {"use_rslora": True},
    "alpha pattern": {"alpha_pattern": {"layers.0.q_proj": 20.0, "v_proj": 2.0}},
    "rank pattern": {"rank_pattern": {r".*\.1\.q_proj": 2, "v_proj": 6}},
    "both": {"rank_pattern": {"q_proj": 3}, "alpha_pattern": {"q_proj": 9.0, "layers.1.v_proj": 1.0}},
    "regular expression": {"target_modules": r".*\.0\.(q|v)_proj"},
}


@pytest.mark.parametrize("scaling", SCALINGS)
def test_one_adapter_merges_to_the_change_that_peft_makes_of_it(scaling: str) -> None:
    model, config, tensors = trained(**SCALINGS[scaling])
    modules = adapted_modules(tensors)
    spec = spec_from_peft(config, modules)
    merged = merge_lora([(spec, tensors)], [1.0])
    assert sorted(merged.tail_energy) == modules
    for module in modules:
        layer = model.get_submodule(module)
        expected = layer.get_delta_weight("default").detach().double().numpy()
        a, b = (merged.tensors[f"{module}.lora_{side}.weight"].double().numpy() for side in "AB")
        np.testing.assert_allclose(merged.spec.scale * b @ a, expected, atol=2e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_dora": True}, r"use_dora is True: DoRA"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"lora_bias": True}, "lora_bias is True"),
        ({"modules_to_save": ["head"]}, r"modules_to_save is \['head'\]"),
        ({"init_lora_weights": "pissa_niter_4"}, "changes the base"),
        ({"peft_type": "IA3"}, "peft_type is IA3; expected LORA"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
    ],
)
def test_what_is_no_plain_adapter_is_refused_by_its_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spec_from_peft({**PLAIN, **changes}, ["q_proj"])


def test_a_spec_refuses_ranks_and_alphas_of_patterns_too() -> None:
    with pytest.raises(ValueError, match="rank is 0"):
        LoraSpec(rank=2, alpha=1.0, target_modules=("q",), rank_pattern=(("q", 0),))
    with pytest.raises(ValueError, match=r"alpha is -1\.0"):
        LoraSpec(rank=2, alpha=1.0, target_modules=("q",), alpha_pattern=(("q", -1.0),))


def adapters(count: int, rank: int = 4, shape: tuple[int, int] = (40, 30)) -> list[tuple[LoraSpec, Map]]:
    rng = np.random.default_rng(0)
    spec = LoraSpec(rank=rank, alpha=8.0, target_modules=("q",))
    return [
        (
            spec,
            {
                "layers.0.q.lora_A.weight": torch.tensor(rng.normal(size=(rank, shape[1]))),
                "layers.0.q.lora_B.weight": torch.tensor(rng.normal(size=(shape[0], rank))),
            },
        )
        for _ in range(count)
    ]


def test_the_rank_grows_only_where_too_much_would_be_lost_and_no_further_than_allowed() -> None:
    parents = adapters(4)
    kept = merge_lora(parents, [1.0] * 4)
    assert kept.spec.rank == 4
    assert kept.tail_energy["layers.0.q"] > 0.3
    grown = merge_lora(parents, [1.0] * 4, tail_tolerance=1e-9, max_rank=64)
    assert grown.spec.rank == 16
    assert grown.tail_energy["layers.0.q"] < 1e-12
    assert grown.spec.alpha == 8.0  # the members' setting; the scale follows from it
    capped = merge_lora(parents, [1.0] * 4, tail_tolerance=1e-9)
    assert capped.spec.rank == 8
    assert 0 < capped.tail_energy["layers.0.q"] < kept.tail_energy["layers.0.q"]
    copies = merge_lora([parents[0]] * 4, [1.0] * 4, tail_tolerance=1e-9)
    assert copies.spec.rank == 4


def test_rules_of_entries_say_that_they_depend_on_the_basis_and_linear_ones_do_not() -> None:
    parents = adapters(3)
    found = {name: merge_lora_by(RULES[name], parents, [1.0, 1.0, 1.0]) for name in ("linear", "karcher", "ties")}
    assert {name: (f.space, f.depends_on_basis) for name, f in found.items()} == {
        "linear": (Space.PRODUCT, False),
        "karcher": (Space.CORE, False),
        "ties": (Space.CORE, True),
    }
    dense = merge_lora_by(RULES["ties"], parents, [1.0, 1.0, 1.0], space="dense")
    assert not dense.depends_on_basis


def test_ties_on_full_matrices_is_ties_of_the_changes_cut_to_its_rank() -> None:
    parents = adapters(3)
    changes = [{"w": spec.scale * t["layers.0.q.lora_B.weight"] @ t["layers.0.q.lora_A.weight"]} for spec, t in parents]
    whole = RULES["ties"].merge(changes, [1.0, 2.0, 3.0], {"w": torch.zeros_like(changes[0]["w"])})["w"].numpy()
    u, s, vh = np.linalg.svd(whole)
    found = merge_lora_by(RULES["ties"], parents, [1.0, 2.0, 3.0], RankPolicy(rank=6), space="dense").merge
    product = found.tensors["layers.0.q.lora_B.weight"] @ found.tensors["layers.0.q.lora_A.weight"]
    np.testing.assert_allclose(found.spec.scale * product.numpy(), (u[:, :6] * s[:6]) @ vh[:6], atol=1e-4)
    assert found.tail_energy["layers.0.q"] == pytest.approx((s[6:] ** 2).sum() / (s**2).sum(), rel=1e-3)


def test_what_cannot_be_done_with_adapters_is_refused() -> None:
    parents = adapters(2)
    with pytest.raises(ValueError, match="fisher statistics of full weights"):
        merge_lora_by(RULES["fisher"], parents, [1.0, 1.0])
    with pytest.raises(ValueError, match="not linear"):
        merge_lora_by(RULES["ties"], parents, [1.0, 1.0], space="product")
    with pytest.raises(ValueError, match=r"'layers\.0\.q' would take 48,000 bytes.*dense_bytes=1,000"):
        merge_lora_by(RULES["ties"], parents, [1.0, 1.0], space="dense", dense_bytes=1000)
    with pytest.raises(ValueError, match="has no setting 'densty'"):
        merge_lora_by(RULES["ties"], parents, [1.0, 1.0], settings={"densty": 1})


def test_a_module_that_one_parent_lacks_counts_as_unchanged_for_every_rule() -> None:
    both, alone = adapters(2)
    extra = {name.replace(".q.", ".v."): tensor for name, tensor in both[1].items()}
    wider = (LoraSpec(rank=4, alpha=8.0, target_modules=("q", "v")), {**copy.copy(both[1]), **extra})
    merged = merge_lora_by(RULES["karcher"], [wider, alone], [1.0, 1.0], RankPolicy(rank=8)).merge
    module = "layers.0.v"
    found = merged.spec.scale * merged.tensors[f"{module}.lora_B.weight"] @ merged.tensors[f"{module}.lora_A.weight"]
    full = 2.0 * extra[f"{module}.lora_B.weight"] @ extra[f"{module}.lora_A.weight"]
    # Its own direction, at the mean of its length and none.
    torch.testing.assert_close(found, 0.5 * full, rtol=1e-8, atol=1e-8)
