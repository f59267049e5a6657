"""Published versions at some distance from a base, with models that hold them as oracles."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from coharness.config.schema import LoraSection
from coharness.policy.bases import LoadedBase, base_weights_ref
from coharness.policy.canary import canary_logprob
from coharness.policy.tiny import new_model
from coharness.policy.training.lora import ADAPTER_CONFIG_FILE, adapter_config
from coharness.policy.weights import DiskWeightStore
from coharness.records.ids import PolicyId
from coharness.records.policy import VersionRef, WeightsKind, WeightsRef
from coharness.records.protocols import Generator
from coharness.testing.generators import GeneratorCase

PROMPTS = ("rev abca=", "cnt a abcdefa>", "dsum 481748=", "~")
LORA = LoraSection(rank=4, alpha=8.0, target_modules=("q_proj", "v_proj"))


def copy_of(base: LoadedBase) -> Any:
    model = new_model(base.model.config, 0)
    model.load_state_dict(base.model.state_dict())
    return model.eval()


def published_full(run_dir: Path, base: LoadedBase, name: str, seed: int) -> tuple[WeightsRef, Any]:
    """Weights at some distance from the base, and the model that holds them."""
    model = copy_of(base)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data += 0.02 * torch.randn(parameter.shape, generator=generator)
    tensors = {n: p.detach() for n, p in model.named_parameters()}
    canary = canary_logprob(model, base.codec)
    ref = DiskWeightStore(run_dir).publish(VersionRef(PolicyId(name), 0), tensors, WeightsKind.FULL, None, canary, {})
    return ref, model


def published_lora(run_dir: Path, base: LoadedBase, name: str, seed: int) -> tuple[WeightsRef, Any]:
    """An adapter made and run by PEFT itself, on a model of its own."""
    import peft

    config = peft.LoraConfig(
        r=LORA.rank, lora_alpha=LORA.alpha, target_modules=list(LORA.target_modules), task_type="CAUSAL_LM"
    )
    adapted = peft.get_peft_model(copy_of(base), config).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter_name, parameter in adapted.named_parameters():
        if ".lora_" in parameter_name:
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=generator)
    tensors = {n: t.detach() for n, t in peft.get_peft_model_state_dict(adapted).items()}
    canary = canary_logprob(adapted, base.codec)
    texts = {ADAPTER_CONFIG_FILE: adapter_config(LORA, str(base.spec.path))}
    store, version = DiskWeightStore(run_dir), VersionRef(PolicyId(name), 0)
    return store.publish(version, tensors, WeightsKind.LORA, None, canary, {}, texts), adapted


def models_of(base: LoadedBase, run_dir: Path, kinds: Sequence[WeightsKind], versions: int) -> dict[WeightsRef, Any]:
    """The base and `versions` versions of each kind, with their models."""
    models: dict[WeightsRef, Any] = {base_weights_ref(base): base.model}
    if WeightsKind.FULL in kinds:
        models |= [published_full(run_dir, base, f"f{i}", i) for i in range(versions)]
    if WeightsKind.LORA in kinds:
        models |= [published_lora(run_dir, base, f"l{i}", i) for i in range(versions)]
    return models


def case_of(generator: Generator, models: dict[WeightsRef, Any], **more: Any) -> GeneratorCase:
    """The case of an engine that holds these versions; transformers alone is the oracle."""
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
        generator=generator,
        weights=refs,
        unknown=replace(refs[-1], digest="0" * 64),
        prompts=PROMPTS,
        logprobs=logprobs,
        greedy=greedy,
        **more,
    )
