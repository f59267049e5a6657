"""vLLM on this machine's CPU: the conformance suite, and what only an engine in another process can get wrong."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coharness.config.generation import GenerationSection, VllmSection
from coharness.config.schema import PolicySection
from coharness.policy.bases import load_base, resolve_base
from coharness.policy.generation.transformers_engine import TransformersGenerator
from coharness.policy.generation.vllm_engine import VllmGenerator
from coharness.policy.weights import WEIGHTS_FILE
from coharness.records.errors import BoundaryError, WeightsError
from coharness.records.policy import WeightsKind
from coharness.testing.generators import GENERATOR_CHECKS, GeneratorCase
from tests.contract.generator_cases import LORA, case_of, models_of, published_lora

pytestmark = [pytest.mark.engines, pytest.mark.slow, pytest.mark.timeout(1800)]

SECTION = GenerationSection(
    engine="vllm",
    batch_size=16,
    max_adapters=3,
    vllm=VllmSection(adapters_per_batch=2, kv_cache_mib=128, start_s=1500, stall_s=300),
)


@pytest.fixture(scope="module", params=["lora", "full"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeneratorCase]:
    """Three versions and the base; with adapters, more versions than one step may mix."""
    kind, run_dir = request.param, tmp_path_factory.mktemp("run")
    base = load_base(resolve_base("tiny"))
    models = models_of(base, run_dir, (WeightsKind(kind),), 3)
    policy = PolicySection(base="tiny", weights=kind, lora=LORA)
    generator = VllmGenerator(base.spec, run_dir, policy, SECTION, num_threads=1)
    yield case_of(generator, models, logprob_bound=5e-4)
    generator.close()


@pytest.mark.parametrize("check", GENERATOR_CHECKS, ids=lambda check: check.__name__)
def test_vllm_keeps_the_contract(case: GeneratorCase, check: Callable[[GeneratorCase], None]) -> None:
    check(case)


def test_sampled_tokens_are_those_of_the_transformers_engine(case: GeneratorCase) -> None:
    base = load_base(resolve_base("tiny"))
    run_dir = Path(case.generator._order.run_dir)  # type: ignore[attr-defined]
    other = TransformersGenerator(base, run_dir, batch_size=16, max_adapters=4, lora=LORA)
    for temperature in (0.0, 0.7, 1.0):
        requests = case.requests(temperature=temperature, max_new_tokens=16)
        ours, theirs = case.generator.generate(requests), other.generate(requests)
        assert [a.output_ids for a in ours] == [a.output_ids for a in theirs]
        worst = max(
            abs(x - y) for a, b in zip(ours, theirs, strict=True) for x, y in zip(a.logprobs, b.logprobs, strict=True)
        )
        assert worst <= case.logprob_bound


def test_what_computes_otherwise_than_its_publisher_is_refused_and_the_engine_goes_on(case: GeneratorCase) -> None:
    version = next(ref for ref in case.weights if ref.kind is not WeightsKind.BASE)
    requests = case.requests(temperature=0.0)
    before = case.generator.generate(requests)
    wrong = replace(version, canary=version.canary + 1)
    with pytest.raises(WeightsError, match="canary"):
        case.generator.generate([replace(requests[0], weights=wrong)])
    assert [a.output_ids for a in case.generator.generate(requests)] == [a.output_ids for a in before]


def test_damaged_bytes_are_refused(case: GeneratorCase) -> None:
    run_dir = Path(case.generator._order.run_dir)  # type: ignore[attr-defined]
    ref, _ = published_lora(run_dir, load_base(resolve_base("tiny")), "damaged", 9)
    file = run_dir / ref.uri / WEIGHTS_FILE[WeightsKind.LORA]
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(WeightsError):
        case.generator.generate([replace(case.requests(temperature=0.0)[0], weights=ref)])


def test_a_killed_engine_fails_its_call_and_is_replaced_at_the_next(case: GeneratorCase) -> None:
    generator = case.generator
    assert isinstance(generator, VllmGenerator)
    requests = case.requests(temperature=1.0)
    before, first = generator.generate(requests), generator.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    # Whether this call still meets the dying process or already a new one is a race.
    with contextlib.suppress(BoundaryError):
        generator.generate(requests)
    again = generator.generate(requests)
    assert generator.pid != first
    assert [a.output_ids for a in again] == [a.output_ids for a in before]
    second = generator.pid
    generator.close()
    assert second is not None
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)
