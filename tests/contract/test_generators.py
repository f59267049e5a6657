"""The conformance suite of generators, on every engine."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from coharness.config.schema import LoraSection
from coharness.policy.bases import LoadedBase, base_weights_ref, load_base, resolve_base, tiny_path
from coharness.policy.canary import canary_logprob
from coharness.policy.generation.scripted import ScriptedGenerator
from coharness.policy.generation.transformers_engine import TransformersGenerator
from coharness.policy.tiny import build_tokenizer, new_model, save_base, tiny_config
from coharness.policy.weights import DiskWeightStore
from coharness.records.ids import PolicyId
from coharness.records.policy import VersionRef, WeightsKind, WeightsRef
from coharness.testing.generators import GENERATOR_CHECKS, GeneratorCase

PROMPTS = ("rev abca=", "cnt a abcdefa>", "dsum 481748=", "~")
LORA = LoraSection(rank=4, alpha=8.0, target_modules=("q_proj", "v_proj"))


def published_full(run_dir: Path, base: LoadedBase, name: str, seed: int) -> tuple[WeightsRef, Any]:
    """Weights at some distance from the base, and the model that holds them."""
    model = new_model(base.model.config, 0)
    model.load_state_dict(base.model.state_dict())
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data += 0.02 * torch.randn(parameter.shape, generator=generator)
    tensors = {n: p.detach() for n, p in model.named_parameters()}
    canary = canary_logprob(model, base.codec)
    ref = DiskWeightStore(run_dir).publish(VersionRef(PolicyId(name), 0), tensors, WeightsKind.FULL, None, canary, {})
    return ref, model.eval()


def published_lora(run_dir: Path, base: LoadedBase, name: str, seed: int) -> tuple[WeightsRef, Any]:
    """An adapter made and run by PEFT itself, on a model of its own."""
    import peft

    model = new_model(base.model.config, 0)
    model.load_state_dict(base.model.state_dict())
    config = peft.LoraConfig(
        r=LORA.rank, lora_alpha=LORA.alpha, target_modules=list(LORA.target_modules), task_type="CAUSAL_LM"
    )
    adapted = peft.get_peft_model(model, config).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter_name, parameter in adapted.named_parameters():
        if ".lora_" in parameter_name:
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=generator)
    tensors = {n: t.detach() for n, t in peft.get_peft_model_state_dict(adapted).items()}
    canary = canary_logprob(adapted, base.codec)
    ref = DiskWeightStore(run_dir).publish(VersionRef(PolicyId(name), 0), tensors, WeightsKind.LORA, None, canary, {})
    return ref, adapted


def transformers_case(base: LoadedBase, run_dir: Path, versions: int) -> GeneratorCase:
    models: dict[WeightsRef, Any] = {base_weights_ref(base): base.model}
    models |= [published_full(run_dir, base, f"f{i}", i) for i in range(versions)]
    models |= [published_lora(run_dir, base, f"l{i}", i) for i in range(versions)]
    refs = tuple(models)

    def logprobs(ref: WeightsRef, prompt: Sequence[int], output: Sequence[int], temperature: float) -> list[float]:
        with torch.inference_mode():
            logits = models[ref](input_ids=torch.tensor([[*prompt, *output]])).logits[0].double() / temperature
        steps = logits.log_softmax(-1)[len(prompt) - 1 : -1]
        chosen: list[float] = steps.gather(1, torch.tensor(list(output), dtype=torch.long)[:, None]).flatten().tolist()
        return chosen

    def greedy(ref: WeightsRef, prompt: Sequence[int], budget: int) -> list[int]:
        ids = torch.tensor([list(prompt)])
        with torch.inference_mode():
            out = models[ref].generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=budget, do_sample=False
            )
        written: list[int] = out[0, len(prompt) :].tolist()
        return written

    return GeneratorCase(
        generator=TransformersGenerator(base, run_dir, batch_size=4, max_adapters=2, lora=LORA),
        weights=refs,
        unknown=replace(refs[1], digest="0" * 64),
        prompts=PROMPTS,
        logprobs=logprobs,
        greedy=greedy,
    )


@pytest.fixture(scope="module")
def tiny_case(tmp_path_factory: pytest.TempPathFactory) -> GeneratorCase:
    assert tiny_path().is_dir(), "the tiny base is part of the repository: coharness base build tiny"
    return transformers_case(load_base(resolve_base("tiny")), tmp_path_factory.mktemp("run"), 1)


@pytest.fixture(scope="module")
def random_case(tmp_path_factory: pytest.TempPathFactory) -> GeneratorCase:
    config = tiny_config()
    config.num_hidden_layers, config.num_key_value_heads = 2, 2
    model = new_model(config, 0)
    for parameter in model.parameters():
        parameter.data.mul_(4)
    path = tmp_path_factory.mktemp("base") / "random"
    save_base(model, build_tokenizer(), path, {})
    return transformers_case(load_base(resolve_base(str(path))), tmp_path_factory.mktemp("run"), 2)


@pytest.fixture(scope="module")
def scripted_case() -> GeneratorCase:
    refs = tuple(
        WeightsRef(uri=f"weights/p{i}/v0", digest=str(i), kind=kind, num_bytes=0, has_optimizer=False, canary=0.0)
        for i, kind in enumerate(WeightsKind)
    )
    return GeneratorCase(
        generator=ScriptedGenerator(lambda prompt, seed: f"{seed % 7}{prompt[:3]}", known_digests={"0", "1", "2"}),
        weights=refs,
        unknown=replace(refs[0], digest="elsewhere"),
        prompts=PROMPTS,
    )


@pytest.mark.parametrize("check", GENERATOR_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("engine", ["tiny", "random", "scripted"])
def test_an_engine_keeps_the_contract(
    engine: str, check: Callable[[GeneratorCase], None], request: pytest.FixtureRequest
) -> None:
    check(request.getfixturevalue(f"{engine}_case"))
