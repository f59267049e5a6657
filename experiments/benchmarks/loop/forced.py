"""Answers of a length that was drawn before: a generation engine around the run's own, and the rollout workers that use it.

The engine inside decodes as in any run, with a model that cannot write its end token (`forbid_end`), exactly as many tokens as
the prompt's length says; then the last one becomes the end. So both sides of a comparison draw the same number of tokens and take
the same number of decoding steps. The behaviour log-probability of a forced end is 0, since nothing was drawn.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from coharness.config.schema import RunConfig
from coharness.loop.build import run_sources
from coharness.loop.worker import EpisodeWorker
from coharness.records.episode import StopReason
from coharness.records.protocols import EngineCapabilities, Generation, GenerationRequest, Generator, TextCodec
from coharness.reward.verify import VerifierRouter
from experiments.benchmarks.loop.load import answer_length

FACTORY: Final = "experiments.benchmarks.loop.forced:"


def forbid_end(model: Any, eos_id: int) -> None:
    """Make the end token impossible wherever one next token is asked for, as decoding does.

    Passes over whole texts stay as they are, the canary's among them: weights are still compared with what was published.
    """

    def forbid(_: Any, __: Any, logits: Any) -> None:
        if logits.shape[1] == 1:
            logits[..., eos_id] = -math.inf

    model.get_output_embeddings().register_forward_hook(forbid)


class ForcedLengths:
    """A `coharness.records.protocols.Generator` whose answers are as long as `load.answer_length` says."""

    def __init__(self, inner: Generator, lengths: str) -> None:
        self._inner, self._lengths = inner, lengths

    @property
    def capabilities(self) -> EngineCapabilities:
        """Those of the engine inside."""
        return self._inner.capabilities

    @property
    def codec(self) -> TextCodec:
        """That of the engine inside."""
        return self._inner.codec

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """Write all completions, each to its length."""
        sized = [replace(r, max_new_tokens=answer_length(self._lengths, r.prompt_ids)) for r in requests]
        return [
            replace(
                written,
                output_ids=[*written.output_ids[:-1], self.codec.eos_id],
                logprobs=[*written.logprobs[:-1], 0.0],
                stop_reason=StopReason.EOS,
            )
            for written in self._inner.generate(sized)
        ]

    def abort(self) -> None:
        """As the engine inside."""
        self._inner.abort()

    def close(self) -> None:
        """As the engine inside."""
        self._inner.close()


def fixed(config: RunConfig, run_dir: Path, name: str) -> EpisodeWorker:
    """A rollout worker whose answers are all of one length."""
    return _worker(config, run_dir, name, "fixed")


def tail(config: RunConfig, run_dir: Path, name: str) -> EpisodeWorker:
    """A rollout worker whose answers' lengths have a heavy tail."""
    return _worker(config, run_dir, name, "tail")


def _worker(config: RunConfig, run_dir: Path, name: str, lengths: str) -> EpisodeWorker:
    from coharness.policy.bases import load_base, resolve_base
    from coharness.policy.generation.transformers_engine import TransformersGenerator
    from coharness.policy.threads import set_threads

    set_threads(config.fleet.threads_per_worker)
    sources = run_sources(config)
    base = load_base(resolve_base(config.policy.base), config.policy.dtype)
    # Before the engine copies its modules, hooks included, into what versions are put in.
    forbid_end(base.model, base.codec.eos_id)
    engine = TransformersGenerator(
        base,
        run_dir,
        batch_size=config.generation.batch_size,
        max_adapters=config.generation.max_adapters,
    )
    return EpisodeWorker(
        name,
        sources,
        ForcedLengths(engine, lengths),
        VerifierRouter(sources.scorers, sandbox=config.reward.sandbox),
        min(config.policy.max_context, base.spec.max_context),
        deadline_s=config.generation.deadline_s,
        concurrency=config.reward.concurrency,
    )
