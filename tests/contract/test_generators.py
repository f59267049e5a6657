"""The conformance suite of generators, on every engine that needs no environment of its own."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from coharness.config.generation import EndpointSection, GenerationSection
from coharness.config.schema import PolicySection
from coharness.policy.bases import LoadedBase, base_weights_ref, load_base, resolve_base, tiny_path
from coharness.policy.generation.endpoint import EndpointGenerator
from coharness.policy.generation.scripted import ScriptedGenerator
from coharness.policy.generation.transformers_engine import TransformersGenerator
from coharness.policy.tiny import build_tokenizer, new_model, save_base, tiny_config
from coharness.records.policy import WeightsKind, WeightsRef
from coharness.testing.endpoint_server import EndpointServer
from coharness.testing.generators import GENERATOR_CHECKS, GeneratorCase
from tests.contract.generator_cases import LORA, PROMPTS, case_of, models_of


def transformers_case(base: LoadedBase, run_dir: Path, versions: int, logprob_bound: float) -> GeneratorCase:
    models = models_of(base, run_dir, (WeightsKind.FULL, WeightsKind.LORA), versions)
    generator = TransformersGenerator(base, run_dir, batch_size=4, max_adapters=2, lora=LORA)
    return case_of(generator, models, logprob_bound=logprob_bound)


@pytest.fixture(scope="module")
def tiny_case(tmp_path_factory: pytest.TempPathFactory) -> GeneratorCase:
    assert tiny_path().is_dir(), "the tiny base is part of the repository: coharness base build tiny"
    return transformers_case(load_base(resolve_base("tiny")), tmp_path_factory.mktemp("run"), 1, 1e-4)


@pytest.fixture(scope="module")
def random_case(tmp_path_factory: pytest.TempPathFactory) -> GeneratorCase:
    config = tiny_config()
    config.num_hidden_layers, config.num_key_value_heads = 2, 2
    model = new_model(config, 0)
    for parameter in model.parameters():
        parameter.data.mul_(4)
    path = tmp_path_factory.mktemp("base") / "random"
    save_base(model, build_tokenizer(), path, {})
    # Its logits are large, so float32 rounds them coarsely, and a temperature below 1 makes that larger still.
    return transformers_case(load_base(resolve_base(str(path))), tmp_path_factory.mktemp("run"), 2, 3e-4)


@pytest.fixture(scope="module")
def endpoint_case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeneratorCase]:
    """An endpoint on the loopback that serves the tiny base with another engine."""
    base, run_dir = load_base(resolve_base("tiny")), tmp_path_factory.mktemp("run")

    def score(ids: Sequence[int]) -> list[float]:
        with torch.inference_mode():
            steps = base.model(input_ids=torch.tensor([list(ids)])).logits[0, :-1].log_softmax(-1)
        found: list[float] = steps.gather(-1, torch.tensor(list(ids[1:]))[:, None]).flatten().tolist()
        return found

    behind = TransformersGenerator(base, run_dir, batch_size=4, max_adapters=1)
    with EndpointServer(behind, base_weights_ref(base), score=score) as server:
        section = GenerationSection(engine="openai", endpoint=EndpointSection(url=server.url, model="base"))
        generator = EndpointGenerator(base.spec, PolicySection(), section)
        yield case_of(generator, {base_weights_ref(base): base.model})
        generator.close()


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
        long_budget=0,
    )


@pytest.mark.parametrize("check", GENERATOR_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("engine", ["tiny", "random", "endpoint", "scripted"])
def test_an_engine_keeps_the_contract(
    engine: str, check: Callable[[GeneratorCase], None], request: pytest.FixtureRequest
) -> None:
    check(request.getfixturevalue(f"{engine}_case"))
