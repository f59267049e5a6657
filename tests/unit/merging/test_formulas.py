"""Rules against their formulas in float64 numpy, and random rules against their distributions."""

from typing import Any

import numpy as np
import pytest
import torch

from coharness.evolution.merging import RULES, greedy_soup, linear, task_arithmetic
from coharness.evolution.merging.della import keep_probabilities
from coharness.evolution.merging.layer_swap import layer_of
from tests.unit.merging.cases import SHAPES, WEIGHTS, Map, maps, merge

Array = np.ndarray[Any, Any]


def as_float64(tensor: torch.Tensor) -> Array:
    array: Array = tensor.double().numpy()
    return array


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
@pytest.mark.parametrize("normalize", [True, False])
def test_linear_equals_the_float64_sum(dtype: torch.dtype, tolerance: float, normalize: bool) -> None:
    parents = maps(3, dtype)
    weights = [0.5, -0.3, 0.9]
    merged = linear(parents, weights, normalize=normalize)
    divisor = sum(weights) if normalize else 1.0
    for name in SHAPES:
        expected = sum(w / divisor * as_float64(p[name]) for w, p in zip(weights, parents, strict=True))
        np.testing.assert_allclose(as_float64(merged[name]), expected, rtol=0, atol=tolerance * 4)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("scale", [1.0, -2.0, 0.0])
def test_task_arithmetic_equals_the_float64_sum(
    dtype: torch.dtype, tolerance: float, normalize: bool, scale: float
) -> None:
    parents, base = maps(3, dtype), maps(1, dtype, seed=9)[0]
    weights = [0.5, -0.3, 0.9]
    merged = task_arithmetic(parents, weights, base, scale=scale, normalize=normalize)
    divisor = sum(weights) if normalize else 1.0
    for name in SHAPES:
        origin = as_float64(base[name])
        deltas = (w / divisor * (as_float64(p[name]) - origin) for w, p in zip(weights, parents, strict=True))
        np.testing.assert_allclose(as_float64(merged[name]), origin + scale * sum(deltas), rtol=0, atol=tolerance * 8)


def test_extrapolation_goes_beyond_the_mean_by_its_step() -> None:
    parents, base = maps(3, torch.float64), maps(1, torch.float64, seed=9)[0]
    mean, beyond = merge("linear", parents, WEIGHTS), merge("extrapolation", parents, WEIGHTS, base, step=0.25)
    for name in SHAPES:
        torch.testing.assert_close(beyond[name] - base[name], 1.25 * (mean[name] - base[name]))


def test_the_uniform_soup_counts_each_parent_once() -> None:
    parents = maps(3, torch.float64)
    found, expected = merge("uniform_soup", parents, WEIGHTS), merge("linear", parents, [1.0, 1.0, 1.0])
    assert all(torch.equal(found[name], expected[name]) for name in SHAPES)


# Election -----------------------------------------------------------------------------------------------------------


def test_a_draw_keeps_the_base_and_a_negative_weight_cannot_blow_the_mean_up() -> None:
    base = {"w": torch.tensor([1.0, 1.0])}
    parents = [{"w": torch.tensor([3.0, 2.0])}, {"w": torch.tensor([-1.0, 2.0])}]
    drawn = merge("ties", parents, [1.0, 1.0], base, density=1.0)
    assert drawn["w"].tolist() == [1.0, 2.0]
    # mergekit divides by the signed sum of weights, here by nothing, and gives twice the change.
    opposed = merge("ties", parents, [1.0, -1.0], base, density=1.0, normalize=False)
    assert opposed["w"][0].item() == pytest.approx(3.0)


def test_of_equal_magnitudes_those_of_lowest_index_are_kept() -> None:
    base, parent = {"w": torch.zeros(6)}, {"w": torch.tensor([1.0, -1.0, 1.0, 2.0, -1.0, 1.0])}
    kept = merge("ties", [parent], [1.0], base, density=0.5)
    assert kept["w"].tolist() == [1.0, -1.0, 0.0, 2.0, 0.0, 0.0]
    middle = merge("breadcrumbs", [parent], [1.0], base, density=0.5, gamma=0.17)
    assert middle["w"].tolist() == [1.0, -1.0, 1.0, 0.0, 0.0, 0.0]


# Random rules -------------------------------------------------------------------------------------------------------


def test_dare_keeps_its_share_and_its_mean_over_seeds() -> None:
    delta = torch.randn(400, generator=torch.Generator().manual_seed(0)).double()
    base, draws = {"w": torch.zeros(400, dtype=torch.float64)}, []
    for seed in range(200):
        draws.append(merge("dare", [{"w": delta}], [1.0], base, density=0.3, seed=seed)["w"].numpy())
    thinned = np.stack(draws)  # [200, 400]
    kept = thinned != 0
    np.testing.assert_allclose(thinned[kept], np.broadcast_to(delta.numpy() / 0.3, kept.shape)[kept])
    # Five standard deviations: of a share over 80,000 draws, and of an entry's mean over 200.
    assert abs(kept.mean() - 0.3) < 5 * np.sqrt(0.3 * 0.7 / kept.size)
    deviation = np.abs(thinned.mean(0) - delta.numpy()) / (np.abs(delta.numpy()) * np.sqrt(0.7 / 0.3 / 200))
    assert deviation.max() < 5
    # Neighbouring entries and neighbouring seeds are independent.
    assert abs(np.corrcoef(kept[:, :-1].ravel(), kept[:, 1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(kept[:-1].ravel(), kept[1:].ravel())[0, 1]) < 0.02


def test_parents_are_thinned_independently() -> None:
    base = {"w": torch.zeros(4000)}
    parents = [{"w": torch.full((4000,), 1.0)}, {"w": torch.full((4000,), 10.0)}]
    merged = merge("dare", parents, [1.0, 1.0], base, density=0.5, rescale="none", normalize=False)["w"]
    shares = [float((merged == value).float().mean()) for value in (0.0, 1.0, 10.0, 11.0)]
    np.testing.assert_allclose(shares, 0.25, atol=0.035)


@pytest.mark.parametrize("rule", ["dare_l1", "della_linear"])
def test_the_l1_rescaling_restores_the_sum_of_magnitudes(rule: str) -> None:
    delta = torch.randn(30, 40, generator=torch.Generator().manual_seed(1))
    merged = merge(rule, [{"w": delta}], [1.0], {"w": torch.zeros(30, 40)}, density=0.4, rescale="l1")["w"]
    assert 0 < int((merged != 0).sum()) < delta.numel()
    torch.testing.assert_close(merged.abs().sum(), delta.abs().sum(), rtol=1e-5, atol=0)


def test_della_keeps_large_entries_more_often_by_rank() -> None:
    width = 8
    delta = torch.tensor([[3.0, -1.0, 7.0, 0.5, -9.0, 2.0, 4.0, -6.0]]).repeat(4000, 1)
    merged = merge("della_linear", [{"w": delta}], [1.0], {"w": torch.zeros(4000, width)}, density=0.6, epsilon=0.3)[
        "w"
    ]
    order = delta[0].abs().argsort()
    rates = (merged != 0).float().mean(0)[order].numpy()
    expected = np.linspace(0.3, 0.9, width)
    np.testing.assert_allclose(rates, expected, atol=5 * np.sqrt(0.25 / 4000))
    # Each kept entry is divided by its own probability, so that the mean is the change.
    np.testing.assert_allclose(merged[:, order[0]].unique().numpy(), np.sort([0.0, 0.5 / 0.3]), rtol=1e-6)
    np.testing.assert_allclose(merged.mean(0).numpy(), delta[0].numpy(), rtol=0.15)


@pytest.mark.parametrize("shape", [(3, 1), (1,), (1, 1), ()])
def test_della_merges_rows_of_one_entry(shape: tuple[int, ...]) -> None:
    assert keep_probabilities(0.5, 0.15, 1).tolist() == [0.5]
    merged = merge("della", [{"w": torch.ones(shape)}], [1.0], {"w": torch.zeros(shape)}, seed=3)["w"]
    assert set(merged.reshape(-1).tolist()) <= {0.0, 2.0}


# Angles and statistics ----------------------------------------------------------------------------------------------


def test_the_karcher_mean_is_where_the_tangents_cancel() -> None:
    rng = np.random.default_rng(0)
    vectors = [rng.normal(size=12) for _ in range(4)]
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    merged = as_float64(merge("karcher", [{"w": torch.tensor(v)} for v in vectors], list(weights))["w"])
    lengths = np.array([np.linalg.norm(v) for v in vectors])
    assert np.linalg.norm(merged) == pytest.approx(weights @ lengths, rel=1e-10)
    mean, tangent = merged / np.linalg.norm(merged), np.zeros(12)
    for weight, v, length in zip(weights, vectors, lengths, strict=True):
        along = float(mean @ v / length)
        tangent += weight * np.arccos(along) / np.sqrt(1 - along**2) * (v / length - along * mean)
    assert np.linalg.norm(tangent) < 1e-9


def test_slerp_keeps_to_the_arc_and_turns_straight_where_there_is_none() -> None:
    one, two = torch.tensor([1.0, 0.0, 0.0]).double(), torch.tensor([0.0, 1.0, 0.0]).double()
    third = merge("slerp", [{"w": one}, {"w": two}], [2.0, 1.0])["w"].numpy()
    np.testing.assert_allclose(third, [np.cos(np.pi / 6), np.sin(np.pi / 6), 0], atol=1e-12)
    opposite = merge("slerp", [{"w": one}, {"w": -one}], [3.0, 1.0])["w"].tolist()
    assert opposite == [0.5, 0.0, 0.0]


def test_warp_interpolates_changes_and_goes_part_of_the_way() -> None:
    rng = np.random.default_rng(0)
    base, one, two = rng.normal(size=9), rng.normal(size=9), rng.normal(size=9)
    angle = np.arccos(one @ two / np.linalg.norm(one) / np.linalg.norm(two))
    expected = base + 0.3 * (np.sin(angle / 2) / np.sin(angle)) * (one + two)
    parents = [{"w": torch.tensor(base + one)}, {"w": torch.tensor(base + two)}]
    found = merge("warp", parents, [1.0, 1.0], {"w": torch.tensor(base)}, towards=0.3)["w"]
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-10)


def test_model_stock_keeps_the_base_where_changes_cancel() -> None:
    base = {"w": torch.tensor([5.0, 5.0]).double()}
    parents = [{"w": base["w"] + d} for d in (torch.tensor([1.0, 0.0]), torch.tensor([-1.0, 0.0]))]
    assert merge("model_stock", parents, [1.0, 1.0], base)["w"].tolist() == [5.0, 5.0]


def test_fisher_is_the_information_weighted_mean() -> None:
    rng = np.random.default_rng(0)
    thetas = [rng.normal(size=(4, 5)) for _ in WEIGHTS]
    information = [rng.exponential(size=(4, 5)) ** 4 * 1e-9 for _ in WEIGHTS]
    for own in information:
        own[0, 0] = 0.0
    top = sum(w * f * t for w, f, t in zip(WEIGHTS, information, thetas, strict=True))
    bottom = np.asarray(sum(w * f for w, f in zip(WEIGHTS, information, strict=True)))
    plain = sum(w * t for w, t in zip(WEIGHTS, thetas, strict=True)) / sum(WEIGHTS)
    expected = np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1.0), plain)
    statistics = [{"w": torch.tensor(own)} for own in information]
    merged = RULES["fisher"].configured({"statistics": statistics})([{"w": torch.tensor(t)} for t in thetas], WEIGHTS)
    np.testing.assert_allclose(as_float64(merged["w"]), expected, rtol=1e-12)
    statistics[1]["w"][2, 2] = -1e-9
    with pytest.raises(ValueError, match="never negative"):
        RULES["fisher"].configured({"statistics": statistics})([{"w": torch.tensor(t)} for t in thetas], WEIGHTS)


def test_regmean_is_least_squares_on_all_parents_inputs() -> None:
    rng = np.random.default_rng(0)
    layers, data = [rng.normal(size=(4, 6)) for _ in range(3)], [rng.normal(size=(20, 6)) for _ in range(3)]
    inputs, outputs = np.concatenate(data), np.concatenate([x @ w.T for x, w in zip(data, layers, strict=True)])
    expected = np.linalg.lstsq(inputs, outputs, rcond=None)[0].T
    parents = [{"w": torch.tensor(w), "bias": torch.tensor(w[:, 0])} for w in layers]
    statistics = [{"w": torch.tensor(x.T @ x)} for x in data]
    merged = RULES["regmean"].configured({"statistics": statistics, "shrink": 1.0})(parents, [1.0, 1.0, 1.0])
    np.testing.assert_allclose(as_float64(merged["w"]), expected, atol=1e-10)
    np.testing.assert_allclose(as_float64(merged["bias"]), np.mean([w[:, 0] for w in layers], axis=0), atol=1e-12)


def test_regmean_averages_in_directions_that_no_input_has() -> None:
    layers = [torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 6.0]])]
    seen = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    configured = RULES["regmean"].configured({"statistics": [{"w": seen}, {"w": 3 * seen}]})
    merged = configured([{"w": layer} for layer in layers], [1.0, 1.0])["w"]
    torch.testing.assert_close(merged, torch.tensor([[2.5, 4.0]]))
    with pytest.raises(ValueError, match=r"'w' have shape \[1\]; expected \[2, 2\]"):
        RULES["regmean"].configured({"statistics": [{"w": torch.ones(1)}] * 2})([{"w": w} for w in layers], [1.0, 1.0])


# Layers and soups ---------------------------------------------------------------------------------------------------


def test_layer_swap_copies_whole_layers_in_proportion_to_the_weights() -> None:
    names = [f"model.layers.{i}.{part}.weight" for i in range(400) for part in ("q", "up")]
    parents = [{name: torch.tensor([float(i)]) for name in names} for i in range(2)]
    merged = merge("layer_swap", parents, [3.0, 1.0])
    chosen = [merged[f"model.layers.{i}.q.weight"].item() for i in range(400)]
    assert chosen == [merged[f"model.layers.{i}.up.weight"].item() for i in range(400)]
    assert abs(np.mean(chosen) - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 400)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("model.layers.3.mlp.up_proj.weight", "model.layers.3"),
        ("transformer.h.11.attn.c_attn.bias", "transformer.h.11"),
        ("model.embed_tokens.weight", "model.embed_tokens"),
        ("lm_head.weight", "lm_head"),
        ("plain", "plain"),
    ],
)
def test_a_tensors_layer_is_read_off_its_name(name: str, layer: str) -> None:
    assert layer_of(name) == layer


def test_a_greedy_soup_takes_in_what_does_not_harm() -> None:
    points = [1.0, 0.8, -0.9, 5.0]

    def score(soup: Map) -> float:
        return -abs(float(soup["w"]) - 0.2)

    parents = [{"w": torch.tensor(p).double()} for p in points]
    soup = greedy_soup(parents, score)
    # Best first: .8, then 1 (mean .9, worse), then -.9 (mean -.05, better), then 5 (worse).
    assert soup.chosen == (1, 2)
    assert float(soup.tensors["w"]) == pytest.approx(-0.05)
    assert soup.score == pytest.approx(-0.25)
    backwards = greedy_soup(parents[::-1], score)
    assert torch.equal(backwards.tensors["w"], soup.tensors["w"])
    with pytest.raises(ValueError, match="NaN"):
        greedy_soup(parents, lambda soup: float("nan"))
