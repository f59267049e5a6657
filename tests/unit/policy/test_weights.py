"""Rules of the weight store: all or nothing, verified, never overwritten, never non-finite."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from coharness.evolution.merging.maps import map_digest
from coharness.policy.weight_folders import WeightFolders
from coharness.policy.weights import (
    DiskWeightStore,
    first_non_finite,
    read_optimizer,
    read_weights,
    tensor_digest,
)
from coharness.records.errors import WeightsError
from coharness.records.ids import PolicyId
from coharness.records.policy import VersionRef, WeightsKind, WeightsRef

REF = VersionRef(PolicyId("p0"), 3)


def tensors(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {"b.weight": torch.randn(3, 4, generator=generator), "a.weight": torch.randn(5, generator=generator)}


def publish(run_dir: Path, seed: int = 0, ref: VersionRef = REF, kind: WeightsKind = WeightsKind.FULL) -> WeightsRef:
    optimizer = {f"exp_avg.{name}": tensor for name, tensor in tensors(seed + 100).items()}
    return DiskWeightStore(run_dir).publish(ref, tensors(seed), kind, optimizer, -12.5, {"operator": "train"})


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@st.composite
def tensor_maps(draw: st.DrawFn) -> dict[str, Tensor]:
    names = draw(st.lists(st.text(min_size=1, max_size=6), max_size=4, unique=True))
    dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool])
    made = {}
    for name in names:
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
        made[name] = (torch.randn(shape, generator=generator) * 3).to(draw(dtypes))
    return made


@given(tensor_maps())
def test_the_digest_is_the_one_of_merging(made: dict[str, Tensor]) -> None:
    assert tensor_digest(made) == map_digest(made)


def test_the_digest_sees_names_types_shapes_and_bytes_but_not_order_or_strides() -> None:
    made = tensors()
    transposed = made["b.weight"].t().contiguous().t()
    assert tensor_digest({**dict(reversed(made.items())), "b.weight": transposed}) == tensor_digest(made)
    others = [
        {"b.weight2": made["b.weight"], "a.weight": made["a.weight"]},
        {**made, "a.weight": made["a.weight"].double()},
        {**made, "b.weight": made["b.weight"].reshape(4, 3)},
        {**made, "a.weight": made["a.weight"] + 1e-7},
    ]
    assert len({tensor_digest(m) for m in [made, *others]}) == 5


@pytest.mark.parametrize(("kind", "file"), [(WeightsKind.FULL, "model"), (WeightsKind.LORA, "adapter_model")])
def test_what_is_read_is_what_was_published(tmp_path: Path, kind: WeightsKind, file: str) -> None:
    ref = publish(tmp_path, kind=kind)
    assert ref == WeightsRef(
        uri="weights/p0/v3",
        digest=tensor_digest(tensors()),
        kind=kind,
        num_bytes=4 * 17,
        has_optimizer=True,
        canary=-12.5,
    )
    assert same(read_weights(tmp_path, ref), tensors())
    assert same(read_optimizer(tmp_path, ref), {f"exp_avg.{n}": t for n, t in tensors(100).items()})
    folder = tmp_path / ref.uri
    names = {f"{file}.safetensors", "manifest.json", "optimizer.safetensors"}
    assert {p.name for p in folder.iterdir()} == names
    assert json.loads((folder / "manifest.json").read_text())["details"] == {"operator": "train"}


def test_views_and_gradients_are_published_by_value(tmp_path: Path) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    made = {"row": whole[1], "column": whole[:, 2], "leaf": torch.nn.Parameter(torch.ones(2))}
    ref = DiskWeightStore(tmp_path).publish(REF, made, WeightsKind.FULL, None, 0.0, {})
    assert same(read_weights(tmp_path, ref), {name: tensor.detach() for name, tensor in made.items()})


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors"])
@pytest.mark.parametrize("damage", ["truncated", "one bit", "gone"])
def test_damage_is_noticed_and_named(tmp_path: Path, file: str, damage: str) -> None:
    ref = publish(tmp_path)
    path = tmp_path / ref.uri / file
    body = bytearray(path.read_bytes())
    if damage == "truncated":
        path.write_bytes(body[:-7])
    elif damage == "one bit":
        body[-5] ^= 1
        path.write_bytes(body)
    else:
        path.unlink()
    read = read_weights if file.startswith("model") else read_optimizer
    with pytest.raises(WeightsError, match=rf"{file} is missing or damaged: got .*; expected"):
        read(tmp_path, ref)


def test_weights_of_another_version_do_not_pass_for_this_one(tmp_path: Path) -> None:
    ref = publish(tmp_path)
    other = publish(tmp_path, seed=1, ref=VersionRef(PolicyId("p0"), 4))
    with pytest.raises(WeightsError, match=f"got digest {other.digest}; expected digest {ref.digest}"):
        read_weights(tmp_path, replace(ref, uri=other.uri))


def test_the_base_has_no_file(tmp_path: Path) -> None:
    ref = replace(publish(tmp_path), kind=WeightsKind.BASE, uri="")
    with pytest.raises(WeightsError, match="base"):
        read_weights(tmp_path, ref)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_non_finite_tensor_is_refused_by_name(tmp_path: Path, value: float) -> None:
    bad = tensors()
    bad["b.weight"][1, 2] = value
    assert first_non_finite(bad) == "b.weight"
    for weights, optimizer in ((bad, None), (tensors(), bad)):
        with pytest.raises(WeightsError, match=r"'b\.weight'"):
            DiskWeightStore(tmp_path).publish(REF, weights, WeightsKind.FULL, optimizer, 0.0, {})
    with pytest.raises(WeightsError, match="canary"):
        DiskWeightStore(tmp_path).publish(REF, tensors(), WeightsKind.FULL, None, value, {})
    assert not list(tmp_path.glob("weights/*/*"))


def test_a_version_is_never_overwritten_but_repeating_it_is_harmless(tmp_path: Path) -> None:
    ref = publish(tmp_path)
    assert publish(tmp_path) == ref
    with pytest.raises(WeightsError, match="never overwritten"):
        publish(tmp_path, seed=1)
    assert same(read_weights(tmp_path, ref), tensors())


@pytest.mark.parametrize("failing_call", [1, 2, 3, 4])
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_call: int) -> None:
    fsync, calls = os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == failing_call:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WeightsError, match="No space left on device; free space"):
        publish(tmp_path)
    assert not list(tmp_path.glob("weights/*/*"))
    monkeypatch.setattr(os, "fsync", fsync)
    assert same(read_weights(tmp_path, publish(tmp_path)), tensors())


def test_a_folder_that_cannot_be_made_is_a_weights_error(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("in the way")
    with pytest.raises(WeightsError, match="cannot publish p0@3"):
        publish(tmp_path)


def test_retired_folders_are_gone_and_retiring_twice_is_harmless(tmp_path: Path) -> None:
    ref, kept = publish(tmp_path), publish(tmp_path, ref=VersionRef(PolicyId("p0"), 4))
    store = WeightFolders(tmp_path)
    store.retire([ref.uri])
    store.retire([ref.uri, "weights/p7/v1"])
    assert [p.name for p in (tmp_path / "weights" / "p0").iterdir()] == ["v4"]
    with pytest.raises(WeightsError, match="missing"):
        read_weights(tmp_path, ref)
    assert same(read_weights(tmp_path, kept), tensors())


@pytest.mark.parametrize(
    "uri", ["", "weights", "weights/p0", "weights/p0/..", "weights/../p0", "/tmp/x/y", "journal/p0/v1"]
)
def test_only_folders_of_the_store_are_retired(tmp_path: Path, uri: str) -> None:
    ref = publish(tmp_path)
    with pytest.raises(WeightsError, match="cannot retire"):
        WeightFolders(tmp_path).retire([ref.uri, uri])
    assert same(read_weights(tmp_path, ref), tensors())


@pytest.mark.parametrize("policy", ["", "..", "a/b", ".hidden"])
def test_a_policy_name_cannot_leave_the_store(tmp_path: Path, policy: str) -> None:
    with pytest.raises(WeightsError, match="expected a policy named like"):
        publish(tmp_path, ref=VersionRef(PolicyId(policy), 1))


def test_what_a_crash_leaves_is_listed_and_can_be_retired(tmp_path: Path) -> None:
    known, orphan = publish(tmp_path), publish(tmp_path, ref=VersionRef(PolicyId("p1"), 1))
    half = tmp_path / "weights" / "p0" / ".tmp-v9-0123"
    half.mkdir()
    store = WeightFolders(tmp_path)
    left = store.unlisted([known.uri])
    assert left == ["weights/p0/.tmp-v9-0123", orphan.uri]
    store.retire(left)
    assert store.unlisted([known.uri]) == []


@settings(max_examples=20)
@given(tensor_maps())
def test_any_finite_map_survives_the_disk(tmp_path_factory: pytest.TempPathFactory, made: dict[str, Tensor]) -> None:
    run_dir = tmp_path_factory.mktemp("run")
    names = {f"t{i}": tensor for i, tensor in enumerate(made.values())}
    ref = DiskWeightStore(run_dir).publish(REF, names, WeightsKind.FULL, None, 0.0, {})
    assert same(read_weights(run_dir, ref), names)
