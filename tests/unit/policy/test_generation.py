"""The decoding loop against transformers' own generation, and what the engine does with versions."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from coharness.config.schema import LoraSection
from coharness.policy.bases import LoadedBase, base_weights_ref, load_base, resolve_base
from coharness.policy.canary import CANARY_TOKENS, canary_ids, canary_logprob
from coharness.policy.generation.decode import decode
from coharness.policy.generation.scripted import CharacterCodec, ScriptedGenerator
from coharness.policy.generation.transformers_engine import TransformersGenerator
from coharness.policy.tiny import build_tokenizer, new_model, save_base, tiny_config, train_tiny
from coharness.policy.weight_folders import WeightFolders
from coharness.policy.weights import DiskWeightStore
from coharness.records.episode import StopReason
from coharness.records.errors import WeightsError
from coharness.records.ids import PolicyId
from coharness.records.policy import VersionRef, WeightsKind, WeightsRef
from coharness.records.protocols import Generation, GenerationRequest

EOS = 1
NOWHERE = WeightsRef(uri="", digest="", kind=WeightsKind.BASE, num_bytes=0, has_optimizer=False, canary=0.0)
SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "eos_token_id": EOS,
    "bos_token_id": None,
}


def seeded(make: Any, seed: int = 0) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make()
        for parameter in model.parameters():
            parameter.data.mul_(6)  # a model at its initial scale is nearly uniform, and greedy would hang on rounding
    return model.eval()


def llama() -> Any:
    return seeded(lambda: LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=4)))


def grouped_llama() -> Any:
    return seeded(lambda: LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2)))


def sliding_mistral() -> Any:
    return seeded(lambda: MistralForCausalLM(MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=8)))


def request(prompt: Sequence[int], **changes: Any) -> GenerationRequest:
    given: dict[str, Any] = {
        "weights": NOWHERE,
        "seed": 0,
        "position": 0,
        "temperature": 0.0,
        "max_new_tokens": 40,
    } | changes
    return GenerationRequest(prompt_ids=tuple(prompt), **given)


def prompts(num: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(2, 40, rng.integers(1, 14)).tolist() for _ in range(num)]


def write(model: Any, requests: list[GenerationRequest]) -> list[Generation]:
    return decode(model, requests, eos_id=EOS, max_context=256)


def transformers_greedy(model: Any, prompt: Sequence[int], budget: int) -> list[int]:
    with torch.inference_mode():
        out = model.generate(
            input_ids=torch.tensor([list(prompt)]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=budget,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=EOS,
        )
    written: list[int] = out[0, len(prompt) :].tolist()
    return written


def teacher_forced(model: Any, prompt: Sequence[int], output: Sequence[int], temperature: float) -> list[float]:
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([[*prompt, *output]])).logits[0].double() / temperature
    steps = logits.log_softmax(-1)[len(prompt) - 1 : -1]
    chosen: list[float] = steps.gather(1, torch.tensor(output)[:, None]).flatten().tolist()
    return chosen


@pytest.mark.parametrize("make", [llama, grouped_llama, sliding_mistral])
def test_greedy_is_that_of_transformers(make: Any) -> None:
    model = make()
    requests = [request(p, max_new_tokens=3 * i + 1) for i, p in enumerate(prompts(12))]
    answers = write(model, requests)
    for r, answer in zip(requests, answers, strict=True):
        assert answer.output_ids == transformers_greedy(model, r.prompt_ids, r.max_new_tokens)
    assert {a.stop_reason for a in answers} == {StopReason.EOS, StopReason.LENGTH}, "the case must exercise both ends"


@pytest.mark.parametrize("make", [llama, grouped_llama, sliding_mistral])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.3])
def test_logprobs_are_those_of_a_teacher_forced_forward(make: Any, temperature: float) -> None:
    model = make()
    requests = [request(p, seed=i, temperature=temperature, max_new_tokens=20) for i, p in enumerate(prompts(10))]
    for r, answer in zip(requests, write(model, requests), strict=True):
        expected = teacher_forced(model, r.prompt_ids, answer.output_ids, temperature or 1.0)
        assert answer.logprobs == pytest.approx(expected, abs=1e-4)


def test_sampled_first_tokens_follow_the_tempered_softmax() -> None:
    model, prompt, n = llama(), [5, 9, 17], 6_000
    logits = model(input_ids=torch.tensor([prompt])).logits[0, -1].double() / 2.0
    expected = logits.softmax(-1).detach().numpy() * n
    answers = write(model, [request(prompt, seed=i, temperature=2.0, max_new_tokens=1) for i in range(n)])
    observed = np.bincount([a.output_ids[0] for a in answers], minlength=40)
    common = expected >= 5
    pooled = np.append(observed[common], observed[~common].sum()), np.append(expected[common], expected[~common].sum())
    keep = pooled[1] > 0
    assert stats.chisquare(pooled[0][keep], pooled[1][keep]).pvalue > 1e-3


def test_a_later_turn_goes_on_in_the_stream_of_noise() -> None:
    model, prompt = llama(), [4, 8, 15]
    whole = write(model, [request(prompt, seed=3, temperature=1.0, max_new_tokens=12)])[0]
    assert len(whole.output_ids) > 4, "choose a seed whose answer does not end at once"
    rest = write(
        model, [request([*prompt, *whole.output_ids[:4]], seed=3, position=4, temperature=1.0, max_new_tokens=8)]
    )[0]
    assert rest.output_ids == whole.output_ids[4:]


def test_greedy_and_sampled_rows_share_a_batch() -> None:
    model = llama()
    mixed = [request(p, seed=i, temperature=(0.0, 1.0, 0.3)[i % 3], max_new_tokens=9) for i, p in enumerate(prompts(9))]
    assert [a.output_ids for a in write(model, mixed)] == [write(model, [r])[0].output_ids for r in mixed]


def test_a_prompt_that_fills_the_context_leaves_an_empty_answer() -> None:
    model = llama()
    answers = decode(model, [request([5] * 20), request([5] * 17), request([5] * 30)], eos_id=EOS, max_context=20)
    assert answers[0] == answers[2] == Generation(output_ids=[], logprobs=[], stop_reason=StopReason.LENGTH)
    assert 1 <= len(answers[1].output_ids) <= 3


def test_non_finite_logits_are_an_error_and_never_a_token() -> None:
    model = llama()
    model.lm_head.weight.data[7] = float("nan")
    with pytest.raises(WeightsError, match="not finite"):
        write(model, [request([5, 6])])


def test_decoding_leaves_no_trace_in_global_state_or_model() -> None:
    model = llama()
    before, state = {n: p.clone() for n, p in model.named_parameters()}, torch.get_rng_state()
    write(model, [request(p, temperature=1.0) for p in prompts(5)])
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())


def test_requests_that_share_a_prompt_write_as_they_do_alone() -> None:
    model, (a, b, c) = llama(), prompts(3, seed=4)
    requests = [request(p, seed=i, temperature=1.0, max_new_tokens=10) for i, p in enumerate([a, b, a, c, b, a, a])]
    together = write(model, requests)
    assert [t.output_ids for t in together] == [write(model, [r])[0].output_ids for r in requests]
    assert len({tuple(together[i].output_ids) for i in (0, 2, 5, 6)}) > 1, "samples of one prompt must differ"


# The engine's versions ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> LoadedBase:
    path = tmp_path_factory.mktemp("base") / "small"
    config = tiny_config()
    config.num_hidden_layers = 1
    save_base(new_model(config, 0), build_tokenizer(), path, {})
    return load_base(resolve_base(str(path)))


def publish(run_dir: Path, base: LoadedBase, name: str, seed: int) -> WeightsRef:
    model = new_model(base.model.config, seed).eval()
    tensors = {n: p.detach() for n, p in model.named_parameters()}
    ref = VersionRef(PolicyId(name), 0)
    return DiskWeightStore(run_dir).publish(ref, tensors, WeightsKind.FULL, None, canary_logprob(model, base.codec), {})


def engine(base: LoadedBase, run_dir: Path, **changes: Any) -> TransformersGenerator:
    return TransformersGenerator(base, run_dir, **({"batch_size": 8, "max_adapters": 2} | changes))


def ask(base: LoadedBase, ref: WeightsRef, seed: int = 0) -> GenerationRequest:
    return request(base.codec.encode_prompt("rev abc="), weights=ref, seed=seed, temperature=1.0, max_new_tokens=8)


def test_versions_beyond_the_bound_are_loaded_again_and_write_the_same(base: LoadedBase, tmp_path: Path) -> None:
    refs = [publish(tmp_path, base, f"p{i}", i + 1) for i in range(4)]
    small, large = engine(base, tmp_path, max_adapters=1), engine(base, tmp_path, max_adapters=8)
    for _ in range(2):
        requests = [ask(base, ref, seed) for seed in range(3) for ref in refs]
        assert small.generate(requests) == large.generate(requests)


def test_a_version_in_memory_outlives_its_folder_and_one_that_left_is_refused(base: LoadedBase, tmp_path: Path) -> None:
    first, second = publish(tmp_path, base, "p0", 1), publish(tmp_path, base, "p1", 2)
    generator = engine(base, tmp_path, max_adapters=1)
    before = generator.generate([ask(base, first)])
    WeightFolders(tmp_path).retire([first.uri])
    assert generator.generate([ask(base, first)]) == before
    generator.generate([ask(base, second)])
    with pytest.raises(WeightsError, match=r"weights/p0/v0"):
        generator.generate([ask(base, first)])


def test_a_clone_shares_its_donors_version(base: LoadedBase, tmp_path: Path) -> None:
    donor, clone = publish(tmp_path, base, "p0", 1), publish(tmp_path, base, "p1", 1)
    assert donor.digest == clone.digest
    a, b = engine(base, tmp_path).generate([ask(base, donor), ask(base, clone)])
    assert a == b


@pytest.mark.parametrize("kind", ["full", "base"])
def test_a_canary_that_disagrees_is_refused_with_both_numbers(base: LoadedBase, tmp_path: Path, kind: str) -> None:
    good = publish(tmp_path, base, "p0", 1) if kind == "full" else base_weights_ref(base)
    bad = dataclasses.replace(good, canary=good.canary + 0.5)
    generator = engine(base, tmp_path)
    for _ in range(2):  # a version that was refused must not be held
        with pytest.raises(WeightsError, match=rf"{good.canary:.6f}.*{bad.canary:.6f}"):
            generator.generate([ask(base, bad)])
    assert generator.generate([ask(base, good)])
    with pytest.raises(WeightsError, match="canary"):
        generator.generate([ask(base, dataclasses.replace(good, canary=float("nan")))])


def test_weights_of_another_shape_are_refused(base: LoadedBase, tmp_path: Path) -> None:
    model = llama()
    tensors = {n: p.detach() for n, p in model.named_parameters()}
    other = DiskWeightStore(tmp_path).publish(VersionRef(PolicyId("p0"), 0), tensors, WeightsKind.FULL, None, 0.0, {})
    with pytest.raises(WeightsError, match="another base"):
        engine(base, tmp_path).generate([ask(base, other)])


def test_an_engine_without_lora_names_what_it_loads(base: LoadedBase, tmp_path: Path) -> None:
    adapter = dataclasses.replace(publish(tmp_path, base, "p0", 1), kind=WeightsKind.LORA)
    assert engine(base, tmp_path).capabilities.kinds == {"base", "full"}
    assert engine(base, tmp_path, lora=LoraSection()).capabilities.kinds == {"base", "full", "lora"}
    with pytest.raises(WeightsError, match="base, full"):
        engine(base, tmp_path).generate([ask(base, adapter)])


def test_versions_leave_the_base_untouched(base: LoadedBase, tmp_path: Path) -> None:
    before = canary_logprob(base.model, base.codec)
    generator = engine(base, tmp_path)
    generator.generate([ask(base, publish(tmp_path, base, "p0", 1)), ask(base, base_weights_ref(base))])
    assert canary_logprob(base.model, base.codec) == before


# Canary, recipe, script ---------------------------------------------------------------------------------------------


def test_the_canary_text_is_fixed_by_the_vocabulary_and_holds_no_special_token(base: LoadedBase) -> None:
    ids = canary_ids(base.codec)
    assert ids == canary_ids(base.codec)
    assert len(ids) == CANARY_TOKENS
    assert len(set(ids)) > CANARY_TOKENS // 3
    assert not base.codec.special_ids & set(ids)


def test_the_canary_is_the_teacher_forced_logprob_and_keeps_the_mode(base: LoadedBase) -> None:
    first, *rest = canary_ids(base.codec)
    base.model.train()
    try:
        assert canary_logprob(base.model, base.codec) == pytest.approx(
            sum(teacher_forced(base.model, [first], rest, 1.0))
        )
        assert base.model.training
    finally:
        base.model.eval()


def test_the_recipe_is_a_function_of_rows_and_seed_and_learns() -> None:
    rows = [[(f"rev {w}=", w[::-1]) for w in ("ab", "ba", "aa", "bb")]] * 14
    losses: list[float] = []
    a = train_tiny(iter(rows), num_steps=14, seed=3, progress=lambda _, loss: losses.append(loss))
    b = train_tiny(iter(rows[:2]), num_steps=2, seed=3)
    c = train_tiny(iter(rows[:2]), num_steps=2, seed=3)
    assert losses[-1] < losses[0] / 2
    assert all(torch.equal(p, q) for p, q in zip(b.parameters(), c.parameters(), strict=True))
    assert not any(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True) if p.dim() > 1)


def test_the_recipe_says_when_its_rows_end_or_are_empty() -> None:
    with pytest.raises(ValueError, match="ended after 1 batches"):
        train_tiny(iter([[("a=", "a")]]), num_steps=2, seed=0)
    with pytest.raises(ValueError, match="empty prompt"):
        train_tiny(iter([[("", "a")]]), num_steps=1, seed=0)


def test_the_scripted_engine_answers_by_its_script() -> None:
    generator = ScriptedGenerator(lambda prompt, seed: f"{prompt}!{seed}")
    codec = CharacterCodec()
    greedy = generator.generate([request(codec.encode_prompt("hé"), seed=9)])[0]
    assert codec.decode(greedy.output_ids) == "hé!0"
    sampled = generator.generate([request(codec.encode_prompt("hé"), seed=s, temperature=1.0) for s in (9, 10)])
    assert sampled[0].output_ids != sampled[1].output_ids
