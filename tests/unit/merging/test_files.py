"""Merging from disk to disk: the same bits as in memory, refusals before anything is written, and bounded memory."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from coharness.evolution.merging import RULES, Statistics, load_map, map_digest
from coharness.evolution.merging.files import merge_files, read_header
from coharness.records.errors import WeightsError
from tests.unit.merging.cases import ALL, WEIGHTS, Map, base_for, count_for, maps, merge, statistics_for


def with_layers(source: Map) -> Map:
    extra = {f"layers.{i}.{n}.weight": source["matrix"] * (i + 1) for i in range(3) for n in ("q", "up")}
    return {**source, **extra, "steps": torch.tensor([3, 4]), "half": source["row"].to(torch.bfloat16)}


def saved(folder: Path, name: str, tensors: Map) -> Path:
    path = folder / f"{name}.safetensors"
    save_file(tensors, path)
    return path


@pytest.mark.parametrize("rule", ALL)
def test_files_merge_to_the_bits_of_maps(rule: str, tmp_path: Path) -> None:
    count = count_for(rule)
    parents = [with_layers(m) for m in maps(count)]
    base = base_for(rule)
    base = None if base is None else with_layers(base)
    statistics = statistics_for(rule, parents).get("statistics", [])
    paths = [saved(tmp_path, f"p{i}", m) for i, m in enumerate(parents)]
    out = tmp_path / "child.safetensors"
    merge_files(
        RULES[rule],
        paths,
        WEIGHTS[:count],
        out,
        None if base is None else saved(tmp_path, "base", base),
        statistics=[saved(tmp_path, f"s{i}", m) for i, m in enumerate(statistics)],
        metadata={"rule": rule},
    )
    expected = merge(rule, parents, WEIGHTS[:count], base)
    assert map_digest(load_map(out)) == map_digest(expected)
    assert map_digest(load_file(out)) == map_digest(expected)
    assert not list(tmp_path.glob(".*"))


def test_a_difference_is_named_before_anything_is_written(tmp_path: Path) -> None:
    one, two = maps(2)
    first = saved(tmp_path, "one", one)
    out = tmp_path / "child.safetensors"
    cases = {
        r"parent 1, .*two.safetensors lacks tensor 'row'": {n: t for n, t in two.items() if n != "row"},
        r"'matrix' of parent 1.* is F32 \[7, 9\]; expected F32 \[9, 7\]": two
        | {"matrix": two["matrix"].T.contiguous()},
        r"'one' of parent 1.* is BF16 \[1\]; expected F32": two | {"one": two["one"].bfloat16()},
    }
    for message, other in cases.items():
        with pytest.raises(ValueError, match=message):
            merge_files(RULES["linear"], [first, saved(tmp_path, "two", other)], [1.0, 1.0], out)
    with pytest.raises(ValueError, match="slerp got 1 parents"):
        merge_files(RULES["slerp"], [first], [1.0], out)
    with pytest.raises(ValueError, match="ties has no setting 'densty'"):
        merge_files(RULES["ties"], [first], [1.0], out, first, settings={"densty": 0.1})
    bad = saved(tmp_path, "bad", two | {"row": two["row"] * float("nan")})
    with pytest.raises(ValueError, match="'row' of map 1 holds nan"):
        merge_files(RULES["linear"], [first, bad], [1.0, 1.0], out)
    assert not out.exists()
    assert not list(tmp_path.glob(".*"))


def test_damaged_files_are_refused_by_name(tmp_path: Path) -> None:
    whole = saved(tmp_path, "whole", maps(1)[0])
    data = whole.read_bytes()
    for damage in (data[:-1], data[:20], b"", b"\xff" * 100, data[:8] + b"[]" + data[10:]):
        path = tmp_path / "damaged.safetensors"
        path.write_bytes(damage)
        with pytest.raises(WeightsError, match=r"damaged\.safetensors"):
            read_header(path)
    with pytest.raises(WeightsError, match="absent"):
        read_header(tmp_path / "absent.safetensors")


def test_memory_holds_one_tensor_at_a_time(tmp_path: Path) -> None:
    num, numel = 24, 2**18  # 24 tensors of 1 MiB
    for i in range(3):
        generator = torch.Generator().manual_seed(i)
        tensors = {f"t{k}": torch.randn(numel, generator=generator) for k in range(num)}
        saved(tmp_path, f"p{i}", tensors)
    script = (
        "import resource, sys, torch\n"
        "from pathlib import Path\n"
        "from coharness.evolution.merging import RULES\n"
        "from coharness.evolution.merging.files import merge_files\n"
        "torch.set_num_threads(1)\n"
        "folder = Path(sys.argv[1])\n"
        "paths = [folder / f'p{i}.safetensors' for i in range(3)]\n"
        "warm = torch.ones(2**18); warm.mul(2.0).add(warm)\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        "merge_files(RULES['linear'], paths, [1.0, 1.0, 1.0], folder / 'out.safetensors')\n"
        "print(peak() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    # The files hold 72 MiB and the result 24; a tensor of each and the buffers are under 8.
    assert int(done.stdout) < 16 * 1024


def test_statistics_kinds_are_those_the_table_names() -> None:
    assert {rule.statistics for rule in RULES.values()} == set(Statistics)
