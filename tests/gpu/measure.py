"""What an engine does on this machine, as one JSON object: agreement with the trainer's model, latencies, throughput.

    python tests/gpu/measure.py [--base tiny|smollm2|FOLDER] [--dtype float32|bfloat16] [--members 4]

Publishes random members of a base into a temporary folder, serves them with vLLM on whatever device it finds, and compares with
transformers on the CPU, which is what trains them. Runs on CPUs too, in the environment of `make env-engines`.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import torch

from coharness.config.generation import GenerationSection, VllmSection
from coharness.config.schema import LoraSection, PolicySection
from coharness.policy.bases import LoadedBase, base_weights_ref, load_base, resolve_base
from coharness.policy.canary import canary_logprob
from coharness.policy.generation.transformers_engine import TransformersGenerator
from coharness.policy.generation.vllm_engine import VllmGenerator
from coharness.policy.training.lora import ADAPTER_CONFIG_FILE, adapter_config, lora_skeleton
from coharness.policy.training.member_state import Skeleton, full_skeleton
from coharness.policy.weights import DiskWeightStore
from coharness.records.ids import PolicyId, derive_seed
from coharness.records.policy import VersionRef, WeightsKind, WeightsRef
from coharness.records.protocols import Generation, GenerationRequest

LORA = LoraSection()
QUESTIONS = ("rev abca=", "dsum 481748=", "What is the capital of France?", "Name three colors.")


def publish(run_dir: Path, base: LoadedBase, skeleton: Skeleton, kind: WeightsKind, name: str, step: int) -> WeightsRef:
    """A member at some distance from the base."""
    generator = torch.Generator().manual_seed(derive_seed(name, step) % 2**31)
    noise = {n: torch.randn(p.shape, generator=generator).to(p.dtype) for n, p in skeleton.shapes.items()}
    if kind is WeightsKind.LORA:
        tensors = {n: 0.05 * x for n, x in noise.items()}
    else:
        tensors = {n: p + 0.1 * p.float().abs().mean().to(p.dtype) * noise[n] for n, p in skeleton.shapes.items()}
    skeleton.install({n: torch.nn.Parameter(t, requires_grad=False) for n, t in tensors.items()})
    texts = {ADAPTER_CONFIG_FILE: adapter_config(LORA, str(base.spec.path))} if kind is WeightsKind.LORA else {}
    canary = canary_logprob(skeleton.model, base.codec)
    version = VersionRef(PolicyId(name), step)
    return DiskWeightStore(run_dir).publish(version, tensors, kind, None, canary, {}, texts)


def requests_of(base: LoadedBase, refs: list[WeightsRef], temperature: float, tokens: int) -> list[GenerationRequest]:
    """Each question to each member."""
    pairs = [(question, ref) for question in QUESTIONS for ref in refs]
    return [
        GenerationRequest(
            prompt_ids=tuple(base.codec.encode_prompt(question)), weights=ref, seed=i, position=0,
            temperature=temperature, max_new_tokens=tokens,
        )
        for i, (question, ref) in enumerate(pairs)
    ]  # fmt: skip


def agreement(ours: list[Generation], theirs: list[Generation]) -> dict[str, float]:
    """Share of equal answers, and the largest difference of log-probabilities where tokens are equal."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        for i, (x, y) in enumerate(zip(a.logprobs, b.logprobs, strict=False)):
            if a.output_ids[: i + 1] != b.output_ids[: i + 1]:
                break
            worst = max(worst, abs(x - y))
    same = sum(a.output_ids == b.output_ids for a, b in zip(ours, theirs, strict=True))
    return {"same_answers": same / len(ours), "largest_logprob_difference": worst}


def cpu_seconds(engine: VllmGenerator) -> float:
    """What the engine's process has computed so far; on a busy machine the figure that means something."""
    times = psutil.Process(engine.pid).cpu_times()
    return float(times.user + times.system)


def timed(engine: VllmGenerator, requests: list[GenerationRequest]) -> tuple[float, float, list[Generation]]:
    """Wall seconds of a call, CPU seconds of the engine in it, and its answers."""
    start, before = time.perf_counter(), cpu_seconds(engine)
    answers = engine.generate(requests)
    return time.perf_counter() - start, cpu_seconds(engine) - before, answers


def median(calls: list[tuple[float, float, list[Generation]]]) -> dict[str, float]:
    """The median call's wall and CPU seconds."""
    return {"wall_s": statistics.median(c[0] for c in calls), "cpu_s": statistics.median(c[1] for c in calls)}


def measure(base: LoadedBase, run_dir: Path, kind: WeightsKind, dtype: str, members: int) -> dict[str, Any]:
    """All figures of one kind of members."""
    lora = kind is WeightsKind.LORA
    skeleton = lora_skeleton(base.model, LORA) if lora else full_skeleton(base.model)
    refs = [base_weights_ref(base), *(publish(run_dir, base, skeleton, kind, f"p{i}", 0) for i in range(members))]
    policy = PolicySection(weights="lora" if lora else "full", lora=LORA, dtype=dtype)  # type: ignore[arg-type]
    section = GenerationSection(
        engine="vllm", batch_size=64, vllm=VllmSection(adapters_per_batch=members, start_s=1500, stall_s=600)
    )
    start = time.perf_counter()
    engine = VllmGenerator(base.spec, run_dir, policy, section, num_threads=1)
    found: dict[str, Any] = {
        "kind": kind.value,
        "start": {"wall_s": time.perf_counter() - start, "cpu_s": cpu_seconds(engine)},
    }
    try:
        other = TransformersGenerator(base, run_dir, batch_size=64, max_adapters=members, lora=LORA if lora else None)
        for temperature in (0.0, 1.0):
            requests = requests_of(base, refs, temperature, 16)
            found[f"temperature_{temperature:g}"] = agreement(engine.generate(requests), other.generate(requests))
        fresh, held = [], []
        for step in range(1, 6):
            ref = publish(run_dir, base, skeleton, kind, "p0", step)
            one = requests_of(base, [ref], 0.0, 1)[0]
            fresh.append(timed(engine, [one]))
            held.append(timed(engine, [one]))
        found["new_version_to_first_token"] = median(fresh)
        found["held_version_to_first_token"] = median(held)
        wall_s, cpu_s, answers = timed(engine, requests_of(base, refs[1:], 1.0, 64))
        tokens = sum(len(a.output_ids) for a in answers)
        found["members_mixed"] = {"tokens": tokens, "tokens_per_s": tokens / wall_s, "tokens_per_cpu_s": tokens / cpu_s}
    finally:
        start = time.perf_counter()
        engine.close()
        found["close_s"] = time.perf_counter() - start
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="tiny")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--kinds", nargs="+", default=["lora", "full"], choices=("lora", "full"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    base = load_base(resolve_base(given.base), given.dtype)
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu"
    found = {"base": given.base, "dtype": given.dtype, "members": given.members, "device": device, "engines": []}
    for kind in given.kinds:
        with tempfile.TemporaryDirectory() as folder:
            found["engines"].append(measure(base, Path(folder), WeightsKind(kind), given.dtype, given.members))
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
