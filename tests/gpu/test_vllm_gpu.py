"""vLLM on one GPU: the conformance suite with adapters and with full weights, against transformers on the CPU.

Not collected by `make test`: `python -m pytest tests/gpu` in the environment of clusters/environments/gpu.txt. Skipped, with the
reason, where there is no GPU; `tests/gpu/check.sh` refuses to call that a success.
"""

from collections.abc import Callable, Iterator

import pytest
import torch

from coharness.config.generation import GenerationSection, VllmSection
from coharness.config.schema import PolicySection
from coharness.policy.bases import load_base, resolve_base
from coharness.policy.generation.vllm_engine import VllmGenerator
from coharness.records.policy import WeightsKind
from coharness.testing.generators import GENERATOR_CHECKS, GeneratorCase
from tests.contract.generator_cases import LORA, case_of, models_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
]
SECTION = GenerationSection(
    engine="vllm", batch_size=32, max_adapters=3, vllm=VllmSection(adapters_per_batch=2, kv_cache_mib=512)
)


@pytest.fixture(scope="module", params=["lora", "full"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeneratorCase]:
    run_dir, base = tmp_path_factory.mktemp("run"), load_base(resolve_base("tiny"))
    models = models_of(base, run_dir, (WeightsKind(request.param),), 3)
    policy = PolicySection(base="tiny", weights=request.param, lora=LORA)
    generator = VllmGenerator(base.spec, run_dir, policy, SECTION, num_threads=4)
    # Another device adds up in another order; TensorFloat-32 is off in vLLM unless it is asked for.
    yield case_of(generator, models, logprob_bound=5e-3)
    generator.close()


@pytest.mark.parametrize("check", GENERATOR_CHECKS, ids=lambda check: check.__name__)
def test_vllm_keeps_the_contract(case: GeneratorCase, check: Callable[[GeneratorCase], None]) -> None:
    check(case)
