"""Rules of LoRA members: adapters alone are published, PEFT loads them, fresh ones change nothing."""

import json
import warnings
from pathlib import Path

import peft
import pytest
import torch

from coharness.config.schema import LoraSection, PolicySection, TrainingSection
from coharness.policy.bases import base_weights_ref
from coharness.policy.canary import canary_logprob
from coharness.policy.training.lora import adapter_config, fresh_adapter, lora_skeleton
from coharness.policy.training.torch_trainer import TorchTrainer
from coharness.policy.weights import DiskWeightStore, read_weights
from coharness.records.errors import PreflightError
from coharness.records.policy import PolicyVersion, WeightsKind
from coharness.testing.toy_training import base_version, random_base, toy_episodes, toy_job

SECTION = LoraSection(rank=3, alpha=6.0, use_rslora=True, target_modules=("q_proj", "down_proj"))


def trained(run_dir: Path) -> PolicyVersion:
    base = random_base()
    policy = PolicySection(weights="lora", lora=SECTION)
    made = TorchTrainer(base, DiskWeightStore(run_dir), run_dir, TrainingSection(), policy)
    own = toy_episodes(base.codec, range(8))
    job = toy_job(base_version(base_weights_ref(base)), range(8), step=1, learning_rate=5e-2)
    version = made.train(job, own, own.slice(0, 0)).version
    assert version is not None
    return version


def test_peft_loads_a_version_as_it_is_and_computes_the_same(tmp_path: Path) -> None:
    version = trained(tmp_path)
    assert version.weights.kind is WeightsKind.LORA
    base = random_base()
    before = canary_logprob(base.model, base.codec)
    with warnings.catch_warnings(action="ignore"):
        loaded = peft.PeftModel.from_pretrained(base.model, tmp_path / version.weights.uri)
    after = canary_logprob(loaded, base.codec)
    assert after == pytest.approx(version.weights.canary, abs=1e-4)
    assert abs(after - before) > 1e-2


def test_adapter_tensors_alone_are_published_under_pefts_names(tmp_path: Path) -> None:
    tensors = read_weights(tmp_path, trained(tmp_path).weights)
    layer = "base_model.model.model.layers.1"
    expected = {
        f"{layer}.{module}.lora_{side}.weight" for module in ("self_attn.q_proj", "mlp.down_proj") for side in "AB"
    }
    assert expected <= set(tensors)
    assert len(tensors) == 2 * len(expected)
    assert tensors[f"{layer}.mlp.down_proj.lora_A.weight"].shape == (3, 32)
    assert tensors[f"{layer}.mlp.down_proj.lora_B.weight"].shape == (16, 3)


def test_a_fresh_adapter_changes_nothing_and_is_a_function_of_its_seed() -> None:
    base = random_base()
    skeleton = lora_skeleton(base.model, SECTION)
    first, again, other = (fresh_adapter(skeleton.shapes, seed) for seed in (1, 1, 2))
    skeleton.install({name: torch.nn.Parameter(tensor) for name, tensor in first.items()})
    assert canary_logprob(skeleton.model, base.codec) == canary_logprob(base.model, base.codec)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    for name, tensor in first.items():
        bound = tensor.shape[1] ** -0.5 if ".lora_A." in name else 0.0
        assert tensor.abs().max() <= bound


def test_making_adapters_touches_no_global_randomness() -> None:
    base = random_base()
    state = torch.random.get_rng_state()
    fresh_adapter(lora_skeleton(base.model, SECTION).shapes, 0)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_adapters_share_the_bases_memory() -> None:
    base = random_base()
    held = {p.data_ptr() for p in base.model.parameters()}
    frozen = [p for p in lora_skeleton(base.model, SECTION).model.parameters() if not p.requires_grad]
    assert frozen
    assert all(p.data_ptr() in held for p in frozen)


def test_the_config_says_what_the_adapter_is() -> None:
    text = adapter_config(SECTION, "some/base")
    config = json.loads(text)
    assert text == adapter_config(SECTION, "some/base")
    assert (config["r"], config["lora_alpha"], config["use_rslora"]) == (3, 6.0, True)
    assert config["target_modules"] == ["down_proj", "q_proj"]
    assert (config["base_model_name_or_path"], config["peft_type"], config["task_type"]) == (
        "some/base",
        "LORA",
        "CAUSAL_LM",
    )


def test_target_modules_that_the_base_lacks_are_refused_with_those_it_has() -> None:
    with pytest.raises(PreflightError, match=r"names query, .*expected some of .*q_proj"):
        lora_skeleton(random_base().model, LoraSection(target_modules=("query", "v_proj")))
