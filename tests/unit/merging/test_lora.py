"""Merging adapters in product space: against dense float64 sums and PEFT, at edge shapes, and what is refused."""

from typing import Any

import numpy as np
import pytest
import torch

from coharness.evolution.merging import LoraMerge, LoraSpec, map_digest, merge_lora

Map = dict[str, torch.Tensor]
Adapter = tuple[LoraSpec, Map]
Q, V = "base_model.model.layers.0.q_proj", "base_model.model.layers.0.v_proj"
WEIGHTS = [0.5, -0.3, 0.9]


def adapter(
    seed: int = 0,
    *,
    rank: int = 4,
    alpha: float = 8.0,
    use_rslora: bool = False,
    shapes: dict[str, tuple[int, int]] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Adapter:
    """A random adapter; `shapes` maps a module path to (out, in)."""
    rng = np.random.default_rng(seed)
    shapes = shapes or {Q: (12, 10), V: (9, 10)}
    tensors: Map = {}
    for module, (num_out, num_in) in shapes.items():
        tensors[f"{module}.lora_A.weight"] = torch.tensor(rng.normal(size=(rank, num_in))).to(dtype)
        tensors[f"{module}.lora_B.weight"] = torch.tensor(rng.normal(size=(num_out, rank))).to(dtype)
    targets = tuple(sorted({module.rsplit(".", 1)[-1] for module in shapes}))
    return LoraSpec(rank=rank, alpha=alpha, use_rslora=use_rslora, target_modules=targets), tensors


def delta(adapted: Adapter | LoraMerge, module: str = Q) -> np.ndarray[Any, Any]:
    """The dense float64 change of a module's weight; the scale is written out here, not taken from the spec."""
    spec, tensors = (adapted.spec, adapted.tensors) if isinstance(adapted, LoraMerge) else adapted
    scale = spec.alpha / (spec.rank**0.5 if spec.use_rslora else spec.rank)
    a, b = (tensors[f"{module}.lora_{side}.weight"].double().numpy() for side in "AB")
    dense: np.ndarray[Any, Any] = scale * b @ a
    return dense


def weighted_sum(parents: list[Adapter], weights: list[float], module: str = Q) -> np.ndarray[Any, Any]:
    return np.asarray(sum(w * delta(p, module) for w, p in zip(weights, parents, strict=True)))


def relative_error(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


def mixed_parents(dtype: torch.dtype = torch.float32) -> list[Adapter]:
    return [
        adapter(0, rank=2, alpha=4.0, dtype=dtype),
        adapter(1, rank=3, alpha=1.5, use_rslora=True, dtype=dtype),
        adapter(2, rank=1, alpha=7.0, dtype=dtype),
    ]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("module", [Q, V])
def test_at_the_sum_of_ranks_the_merge_is_the_sum_of_deltas(normalize: bool, module: str) -> None:
    parents = mixed_parents()
    merged = merge_lora(parents, WEIGHTS, out_rank=6, normalize=normalize)
    divisor = sum(WEIGHTS) if normalize else 1.0
    expected = weighted_sum(parents, [w / divisor for w in WEIGHTS], module)
    assert relative_error(delta(merged, module), expected) < 1e-6
    assert merged.tail_energy[module] < 1e-12
    assert merged.spec.rank == 6


@pytest.mark.parametrize("rank", [1, 2, 3, 5])
def test_a_cut_merge_is_the_best_of_its_rank_and_reports_what_it_lost(rank: int) -> None:
    parents = mixed_parents()
    merged = merge_lora(parents, WEIGHTS, out_rank=rank, normalize=False)
    u, s, vh = np.linalg.svd(weighted_sum(parents, WEIGHTS))
    best = (u[:, :rank] * s[:rank]) @ vh[:rank]
    assert relative_error(delta(merged), best) < 1e-5
    assert merged.tail_energy[Q] == pytest.approx((s[rank:] ** 2).sum() / (s**2).sum(), rel=1e-5)
    assert merged.tensors[f"{Q}.lora_A.weight"].shape == (rank, 10)
    assert merged.tensors[f"{Q}.lora_B.weight"].shape == (12, rank)


def test_the_default_rank_is_the_largest_of_the_parents() -> None:
    assert merge_lora(mixed_parents(), WEIGHTS).spec.rank == 3


@pytest.mark.parametrize("use_rslora", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_copies_of_one_adapter_merge_to_its_delta(use_rslora: bool, count: int) -> None:
    one = adapter(rank=4, alpha=8.0, use_rslora=use_rslora)
    merged = merge_lora([one] * count, [0.2, 0.3, 0.9][:count])
    assert relative_error(delta(merged), delta(one)) < 1e-6
    assert merged.spec == one[0]
    assert merged.tail_energy[Q] < 1e-12


def test_alpha_and_rslora_are_kept_only_where_parents_share_them() -> None:
    shared = merge_lora([adapter(0, use_rslora=True), adapter(1, rank=2, use_rslora=True)], [1, 1], out_rank=6)
    assert (shared.spec.alpha, shared.spec.use_rslora) == (8.0, True)
    mixed = merge_lora([adapter(0, use_rslora=True), adapter(1)], [1, 1], out_rank=6)
    assert (mixed.spec.alpha, mixed.spec.use_rslora, mixed.spec.scale) == (6.0, False, 1.0)


@pytest.mark.parametrize(
    ("shape", "rank"),
    [((1, 7), 1), ((7, 1), 1), ((1, 1), 2), ((2, 9), 4), ((5, 5), 1), ((0, 4), 2), ((4, 0), 2)],
    ids=str,
)
def test_edge_shapes(shape: tuple[int, int], rank: int) -> None:
    parents = [adapter(seed, rank=rank, shapes={Q: shape}) for seed in (0, 1)]
    merged = merge_lora(parents, [0.25, 0.75], out_rank=2 * rank)
    expected = 0.25 * delta(parents[0]) + 0.75 * delta(parents[1])
    np.testing.assert_allclose(delta(merged), expected, rtol=0, atol=1e-5)
    assert merged.tensors[f"{Q}.lora_A.weight"].shape == (2 * rank, shape[1])
    assert merged.tensors[f"{Q}.lora_B.weight"].shape == (shape[0], 2 * rank)
    assert merged.tail_energy[Q] < 1e-12


def test_a_merge_of_untrained_adapters_can_still_be_trained() -> None:
    parents = [adapter(0), adapter(1)]
    for _, tensors in parents:
        for name in tensors:
            if "lora_B" in name:
                tensors[name].zero_()
    merged = merge_lora(parents, [1.0, 1.0])
    assert np.abs(delta(merged)).max() == 0.0
    assert merged.tail_energy == {Q: 0.0, V: 0.0}
    # B's gradient is proportional to A: every row of A must be alive, and no two the same.
    assert np.linalg.matrix_rank(merged.tensors[f"{Q}.lora_A.weight"].numpy()) == 4


def test_bf16_in_bf16_out_within_its_rounding() -> None:
    parents = mixed_parents(torch.bfloat16)
    merged = merge_lora(parents, WEIGHTS, out_rank=6, normalize=False)
    assert {t.dtype for t in merged.tensors.values()} == {torch.bfloat16}
    expected = weighted_sum(parents, WEIGHTS)
    assert relative_error(delta(merged), expected) < 2.0**-7


def test_a_module_that_a_parent_does_not_target_counts_as_unchanged() -> None:
    both, only_q = adapter(0), adapter(1, shapes={Q: (12, 10)})
    merged = merge_lora([both, only_q], [1.0, 1.0], out_rank=8)
    assert merged.spec.target_modules == ("q_proj", "v_proj")
    assert relative_error(delta(merged, V), 0.5 * delta(both, V)) < 1e-6
    assert relative_error(delta(merged, Q), 0.5 * delta(both, Q) + 0.5 * delta(only_q, Q)) < 1e-6


def test_inputs_are_not_changed() -> None:
    parents = mixed_parents()
    before = [map_digest(tensors) for _, tensors in parents]
    merge_lora(parents, WEIGHTS)
    assert [map_digest(tensors) for _, tensors in parents] == before


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (f"{Q}.lora_magnitude_vector.weight", "DoRA"),
        (f"{Q}.lora_magnitude_vector", "DoRA"),
        (f"{Q}.lora_B.bias", "bias"),
        (f"{Q}.bias", "bias"),
        ("base_model.model.lm_head.weight", "modules_to_save"),
        ("base_model.model.embed.lora_embedding_A", "embeddings"),
        (f"{Q}.lora_A.default.weight", "without an adapter name"),
    ],
)
def test_keys_that_are_not_plain_factors_are_refused_by_name(key: str, reason: str) -> None:
    spec, tensors = adapter(1)
    with pytest.raises(ValueError, match=rf"adapter 1 has key '{key}': .*{reason}"):
        merge_lora([adapter(0), (spec, tensors | {key: torch.ones(4)})], [1.0, 1.0])


def without(adapted: Adapter, *names: str) -> Adapter:
    return adapted[0], {name: tensor for name, tensor in adapted[1].items() if name not in names}


def changed(adapted: Adapter, name: str, tensor: torch.Tensor) -> Adapter:
    return adapted[0], adapted[1] | {name: tensor}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (without(adapter(1), f"{V}.lora_B.weight"), rf"adapter 1 lacks key '{V}.lora_B.weight'"),
        (without(adapter(1), f"{V}.lora_A.weight", f"{V}.lora_B.weight"), rf"adapter 1 lacks key '{V}.lora_A.weight'"),
        (adapter(1, shapes={Q: (12, 11), V: (9, 10)}), rf"'{Q}.lora_A.weight' of adapter 1 has shape \[4, 11\]"),
        (adapter(1, shapes={Q: (13, 10), V: (9, 10)}), rf"'{Q}.lora_B.weight' of adapter 1 has shape \[13, 4\]"),
        ((adapter(1)[0], adapter(1, rank=3)[1]), r"has shape \[3, 10\]; expected \[4, 10\] from its rank 4"),
        (adapter(1, dtype=torch.bfloat16), rf"'{Q}.lora_A.weight' of adapter 1 has dtype torch.bfloat16"),
        (
            changed(adapter(1), f"{V}.lora_B.weight", torch.full((9, 4), float("inf"))),
            rf"'{V}.lora_B.weight' of adapter 1 holds inf at index \(0, 0\)",
        ),
        ((adapter(1, shapes={Q: (1, 1)})[0], adapter(1)[1]), r"its spec targets \('q_proj',\)"),
        (
            (LoraSpec(rank=4, alpha=8, target_modules=("q_proj", "v_proj"), fan_in_fan_out=True), adapter(1)[1]),
            "adapter 1 has fan_in_fan_out=True",
        ),
    ],
    ids=[
        "one factor",
        "module",
        "in width",
        "out width",
        "rank",
        "dtype",
        "non-finite",
        "untargeted",
        "fan_in_fan_out",
    ],
)
def test_adapters_that_do_not_fit_are_refused_by_name(other: Adapter, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        merge_lora([adapter(0), other], [1.0, 1.0])


def test_meaningless_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="got 0 adapters"):
        merge_lora([], [])
    with pytest.raises(ValueError, match="got 1 weights for 2 maps"):
        merge_lora([adapter(0), adapter(1)], [1.0])
    with pytest.raises(ValueError, match="rank is 0"):
        merge_lora([adapter(0)], [1.0], out_rank=0)
    with pytest.raises(ValueError, match="alpha is nan"):
        LoraSpec(rank=1, alpha=float("nan"), target_modules=("q",))
    with pytest.raises(ValueError, match="target_modules"):
        LoraSpec(rank=1, alpha=1.0, target_modules=())


def test_overflow_of_the_result_dtype_is_refused() -> None:
    parents = [adapter(seed, dtype=torch.float16) for seed in (0, 1)]
    with pytest.raises(ValueError, match=r"of the merged adapter \(cast to torch.float16\) holds -?inf"):
        merge_lora(parents, [1e12, 1e12], normalize=False)


@pytest.mark.parametrize("fan_in_fan_out", [False, True])
@pytest.mark.parametrize(("weights", "rank"), [([0.4, 0.6], 4), ([0.7, -0.5], 3), ([1.0, 1.0], 8)])
def test_peft_svd_merge_agrees(weights: list[float], rank: int, fan_in_fan_out: bool) -> None:
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
    from transformers.pytorch_utils import Conv1D

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q_proj = Conv1D(12, 10) if fan_in_fan_out else torch.nn.Linear(10, 12, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.q_proj(x)
            return out

    path = "base_model.model.q_proj"
    spec = LoraSpec(rank=4, alpha=8.0, target_modules=("q_proj",), fan_in_fan_out=fan_in_fan_out)
    parents = [(spec, adapter(seed, shapes={path: (12, 10)})[1]) for seed in (0, 1)]
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj"], fan_in_fan_out=fan_in_fan_out)
    model = get_peft_model(Net(), config, adapter_name="one")
    model.add_adapter("two", config)
    for name, (_, tensors) in zip(("one", "two"), parents, strict=True):
        assert not set_peft_model_state_dict(model, tensors, adapter_name=name).unexpected_keys
        assert set(get_peft_model_state_dict(model, adapter_name=name)) == set(tensors)
    model.base_model.add_weighted_adapter(["one", "two"], weights, "merged", combination_type="svd", svd_rank=rank)

    merged = merge_lora(parents, weights, out_rank=rank, normalize=False)
    layer = model.base_model.model.q_proj
    oracle = layer.get_delta_weight("merged").detach().double().numpy()
    assert relative_error(delta(merged, path).T if fan_in_fan_out else delta(merged, path), oracle) < 1e-5

    # And PEFT reads our result as what we say it is.
    back = LoraConfig(
        r=merged.spec.rank,
        lora_alpha=merged.spec.alpha,
        use_rslora=merged.spec.use_rslora,
        target_modules=list(merged.spec.target_modules),
        fan_in_fan_out=merged.spec.fan_in_fan_out,
    )
    model.add_adapter("ours", back)
    assert not set_peft_model_state_dict(model, merged.tensors, adapter_name="ours").unexpected_keys
    assert relative_error(layer.get_delta_weight("ours").detach().double().numpy(), oracle) < 1e-5
