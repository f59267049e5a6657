"""Folders as other tools write them, through the command line: models, shards, adapters; and what is refused, by field."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from coharness.cli import main
from coharness.evolution.merging import RULES
from coharness.evolution.merging.folders import plan_merge
from coharness.records.errors import ConfigError

CONFIG = {"model_type": "llama", "vocab_size": 11, "hidden_size": 4}


def weights(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    names = ("model.embed_tokens.weight", "model.layers.0.up.weight", "model.layers.1.up.weight")
    return {name: torch.randn(11, 4, generator=generator) for name in names}


def model(folder: Path, seed: int, *, sharded: bool = False, tokenizer: str = "{}", **config: Any) -> Path:
    folder.mkdir()
    tensors = weights(seed)
    if sharded:
        names = list(tensors)
        shards = {"model-00001-of-00002.safetensors": names[:1], "model-00002-of-00002.safetensors": names[1:]}
        for shard, held in shards.items():
            save_file({name: tensors[name] for name in held}, folder / shard)
        index = {"metadata": {}, "weight_map": {name: shard for shard, held in shards.items() for name in held}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "tokenizer.json").write_text(tokenizer)
    (folder / "pytorch_model.bin").write_text("never read")
    return folder


def run(words: list[Any], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["merge", *map(str, words)])
    out, err = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, out, err


@pytest.mark.parametrize("sharded", [False, True])
def test_model_folders_merge_into_one_that_keeps_all_but_weights(
    sharded: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parents = [model(tmp_path / f"p{i}", i, sharded=sharded) for i in range(2)]
    base, out = model(tmp_path / "base", 9, sharded=sharded), tmp_path / "child"
    options = ["--rule", "ties", "--base", base, "--weights", "0.25,0.75", "--set", "density=0.5", "--json"]
    code, text, _ = run([out, *parents, *options], capsys)
    assert code == 0
    facts = json.loads(text)
    assert (facts["kind"], facts["num_tensors"], facts["recipe"]["settings"]["density"]) == ("model", 3, 0.5)
    ties = RULES["ties"].configured({"density": 0.5})
    expected = ties([weights(0), weights(1)], [0.25, 0.75], weights(9))
    found = {name: t for path in out.glob("*.safetensors") for name, t in load_file(path).items()}
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert json.loads((out / "config.json").read_text()) == CONFIG
    assert json.loads((out / "merge.json").read_text())["digest"] == facts["digest"]
    assert (out / "model.safetensors.index.json").is_file() == sharded
    assert not (out / "pytorch_model.bin").exists()
    assert not list(tmp_path.glob(".*"))


def test_a_dry_run_writes_nothing_and_rules_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parents = [model(tmp_path / f"p{i}", i) for i in range(2)]
    code, text, _ = run([tmp_path / "child", *parents, "--rule", "linear", "--dry-run"], capsys)
    assert code == 0
    assert "would merge 2 parents (model, 3 tensors) by linear" in text
    assert not (tmp_path / "child").exists()
    code, text, _ = run(["--rules", "--json"], capsys)
    assert (code, [row["name"] for row in json.loads(text)]) == (0, list(RULES))
    code, _, _ = run([tmp_path / "child"], capsys)
    assert code == 2


def test_what_differs_is_named_by_its_field(tmp_path: Path) -> None:
    first, out = model(tmp_path / "first", 0), tmp_path / "child"
    wide = model(tmp_path / "wide", 1, vocab_size=12)
    other = model(tmp_path / "other", 1, tokenizer='{"a": 1}')
    cut = model(tmp_path / "cut", 1, sharded=True)
    file = first / "model.safetensors"
    cases: list[tuple[str, list[Path], dict[str, Any]]] = [
        (r"vocab_size is 12 in .*wide.*expected 11", [first, wide], {}),
        (r"tokenizer.json of .*other is not that of .*first", [first, other], {}),
        (r"cut is cut into 2 files", [first, cut], {}),
        (r"holds a file, .*first a model", [first, file], {}),
        (r"ties merges changes from a base and got none", [first, first], {"rule": "ties"}),
        (r"linear takes no base", [first, first], {"base": first}),
        (r"there is no merge rule 'tise'", [first, first], {"rule": "tise"}),
        (r"slerp got 3 parents; expected 2", [first] * 3, {"rule": "slerp"}),
        (r"got 1 weights for 2 parents", [first, first], {"weights": [1.0]}),
        (r"fisher needs fisher statistics, got 0 files", [first, first], {"rule": "fisher"}),
        (r"holds nothing to merge", [first, tmp_path], {}),
    ]
    for message, parents, options in cases:
        with pytest.raises(ConfigError, match=message):
            plan_merge(options.pop("rule", "linear"), parents, out, **options)
    with pytest.raises(ConfigError, match="exists already"):
        plan_merge("linear", [first, first], first)


def adapter(folder: Path, seed: int, **config: Any) -> Path:
    folder.mkdir()
    generator = torch.Generator().manual_seed(seed)
    module = "base_model.model.layers.0.q_proj"
    tensors = {
        f"{module}.lora_A.weight": torch.randn(2, 6, generator=generator),
        f"{module}.lora_B.weight": torch.randn(5, 2, generator=generator),
    }
    save_file(tensors, folder / "adapter_model.safetensors")
    full = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "bias": "none", **config}
    (folder / "adapter_config.json").write_text(json.dumps(full))
    return folder


def change(folder: Path) -> torch.Tensor:
    config = json.loads((folder / "adapter_config.json").read_text())
    scale = config["lora_alpha"] / (config["r"] ** 0.5 if config.get("use_rslora") else config["r"])
    tensors = load_file(folder / "adapter_model.safetensors")
    name = "base_model.model.layers.0.q_proj"
    return scale * tensors[f"{name}.lora_B.weight"] @ tensors[f"{name}.lora_A.weight"]


def test_adapters_of_different_scaling_merge_to_the_mean_of_their_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parents = [adapter(tmp_path / "a", 0), adapter(tmp_path / "b", 1, use_rslora=True)]
    out = tmp_path / "child"
    code, text, _ = run([out, *parents, "--rule", "linear", "--rank", "4", "--json"], capsys)
    assert code == 0
    facts = json.loads(text)
    assert (facts["space"], facts["rank"], facts["depends_on_basis"]) == ("product", 4, False)
    torch.testing.assert_close(change(out), (change(parents[0]) + change(parents[1])) / 2, rtol=1e-5, atol=1e-5)


def test_adapters_merge_by_rules_of_entries_and_a_dora_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parents = [adapter(tmp_path / "a", 0), adapter(tmp_path / "b", 1)]
    code, text, _ = run([tmp_path / "child", *parents, "--rule", "ties"], capsys)
    assert code == 0
    assert "in core space, which depends on the bases; rank 2" in text
    bad = adapter(tmp_path / "dora", 2, use_dora=True)
    code, _, err = run([tmp_path / "other", parents[0], bad, "--rule", "linear"], capsys)
    assert (code, "use_dora is True" in err) == (2, True)
    assert not (tmp_path / "other").exists()
