"""Conformance suite of generation engines: what every `Generator` owes the loop, whatever it computes with.

An engine's test builds a `GeneratorCase` and runs each check of `GENERATOR_CHECKS` on it. The checks go by requests and answers
alone; an independent computation of log-probabilities and of greedy answers may be handed in as an oracle. Each broken promise
raises AssertionError naming the rule.
"""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from coharness.records.episode import StopReason
from coharness.records.errors import WeightsError
from coharness.records.policy import WeightsRef
from coharness.records.protocols import Generation, GenerationRequest, Generator

_BUDGETS: Final = (1, 2, 3, 5, 8)
_NUM_SEEDS: Final = 24

LogprobOracle = Callable[[WeightsRef, Sequence[int], Sequence[int], float], list[float]]
"""(weights, prompt ids, output ids, temperature) -> log-probability of each output token; the temperature is over 0."""
GreedyOracle = Callable[[WeightsRef, Sequence[int], int], list[int]]
"""(weights, prompt ids, budget) -> greedy output ids, end token included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorCase:
    """One engine under test."""

    generator: Generator
    weights: tuple[WeightsRef, ...]
    "References it can load, at least one; several, of different weights, where it has versions at all."
    unknown: WeightsRef
    "A reference it must refuse with WeightsError: a digest that is nowhere."
    prompts: tuple[str, ...]
    "At least three texts of different lengths; at temperature 1 their answers should vary with the seed."
    logprobs: LogprobOracle | None = None
    greedy: GreedyOracle | None = None
    logprob_bound: float = 1e-4
    "Largest difference from the oracle, and between one request's answers in two batches, in nats a token."
    long_budget: int = 128
    "Tokens that take the engine longer to write than a thread takes to say stop; 0 where answers are there at once."

    def requests(self, *, temperature: float, max_new_tokens: int = 8) -> list[GenerationRequest]:
        """Each prompt under each of the weights, with a seed of its own."""
        pairs = [(ref, text) for text in self.prompts for ref in self.weights]
        return [
            GenerationRequest(
                prompt_ids=tuple(self.generator.codec.encode_prompt(text)),
                weights=ref,
                seed=1_000 + i,
                position=0,
                temperature=temperature,
                max_new_tokens=max_new_tokens,
            )
            for i, (ref, text) in enumerate(pairs)
        ]


def check_capabilities(case: GeneratorCase) -> None:
    """An engine has a name, claims the kinds of weights it loads, and bounds what it holds."""
    capabilities = case.generator.capabilities
    assert capabilities.name, "an engine has a name"
    for ref in case.weights:
        assert ref.kind.value in capabilities.kinds, f"{ref.kind} is loaded but not among {sorted(capabilities.kinds)}"
    assert capabilities.max_adapters >= 0, f"max_adapters is {capabilities.max_adapters}, expected 0 (no bound) or more"


def check_no_requests(case: GeneratorCase) -> None:
    """No requests give no answers."""
    assert case.generator.generate([]) == []


def check_shape(case: GeneratorCase) -> None:
    """Ids and log-probabilities are aligned, finite and in the range of probabilities; stop reason and stamp say what is so."""
    eos = case.generator.codec.eos_id
    for temperature in (0.0, 0.7, 1.0):
        requests = case.requests(temperature=temperature)
        answers = case.generator.generate(requests)
        assert len(answers) == len(requests), f"{len(requests)} requests got {len(answers)} answers"
        for request, answer in zip(requests, answers, strict=True):
            _check_one(request, answer, eos)


def _check_one(request: GenerationRequest, answer: Generation, eos: int) -> None:
    ids, logprobs = answer.output_ids, answer.logprobs
    assert answer.written_by == request.weights.digest, (
        f"asked of weights {request.weights.digest}, written by {answer.written_by!r}"
    )
    assert len(ids) == len(logprobs), f"{len(ids)} ids but {len(logprobs)} log-probabilities"
    assert all(math.isfinite(x) and x <= 1e-6 for x in logprobs), (
        f"log-probabilities {logprobs} are not finite and <= 0"
    )
    assert len(ids) <= request.max_new_tokens, f"{len(ids)} tokens are over the budget of {request.max_new_tokens}"
    assert eos not in ids[:-1], f"tokens after the end token: {ids}"
    if ids and ids[-1] == eos:
        assert answer.stop_reason is StopReason.EOS, f"stopped by {answer.stop_reason} after its end token"
    else:
        assert answer.stop_reason is StopReason.LENGTH, f"stopped by {answer.stop_reason} without an end token"
        assert len(ids) == request.max_new_tokens, (
            f"stopped by length after {len(ids)} of {request.max_new_tokens} tokens"
        )


def check_repeatable(case: GeneratorCase) -> None:
    """The same requests get the same tokens, whatever was generated in between; sampled ones where noise is counter-based."""
    for temperature in _repeatable_temperatures(case):
        requests = case.requests(temperature=temperature)
        first = case.generator.generate(requests)
        case.generator.generate([replace(request, seed=request.seed + 77) for request in requests])
        for i, (one, other) in enumerate(zip(first, case.generator.generate(requests), strict=True)):
            _check_same(case, one, other, f"request {i} at temperature {temperature}, asked twice")


def check_batch_independence(case: GeneratorCase) -> None:
    """A request gets the same tokens alone, among all others, and among all others in another order."""
    for temperature in _repeatable_temperatures(case):
        requests = case.requests(temperature=temperature)
        together = case.generator.generate(requests)
        backwards = case.generator.generate(requests[::-1])[::-1]
        for i, request in enumerate(requests):
            alone = case.generator.generate([request])[0]
            for other in (together[i], backwards[i]):
                _check_same(case, alone, other, f"request {i} at temperature {temperature}, alone and in a batch")


def check_versions_mixed(case: GeneratorCase) -> None:
    """Versions may be mixed in one call; each writes as it does by itself."""
    requests = case.requests(temperature=_repeatable_temperatures(case)[-1])
    mixed = case.generator.generate(requests)
    for ref in case.weights:
        rows = [i for i, request in enumerate(requests) if request.weights == ref]
        separate = case.generator.generate([requests[i] for i in rows])
        for i, answer in zip(rows, separate, strict=True):
            _check_same(
                case, mixed[i], answer, f"request {i} with versions mixed and {ref.uri or 'the base'} by itself"
            )


def check_greedy_ignores_noise(case: GeneratorCase) -> None:
    """A greedy answer depends neither on the seed nor on the position."""
    requests = case.requests(temperature=0.0)
    first = case.generator.generate(requests)
    again = case.generator.generate([replace(r, seed=r.seed * 31 + 5, position=9) for r in requests])
    assert [a.output_ids for a in first] == [a.output_ids for a in again], "a greedy answer changed with the seed"


def check_noise_depends_on_seed_and_position(case: GeneratorCase) -> None:
    """At temperature 1, answers vary with the seed, and with the position in the episode's stream."""
    requests = [r for r in case.requests(temperature=1.0) if r.weights == case.weights[0]]
    seeds = [[replace(r, seed=i) for i in range(_NUM_SEEDS)] for r in requests]
    positions = [[replace(r, position=17 * i) for i in range(_NUM_SEEDS)] for r in requests]
    for what, varied in (("seeds", seeds), ("positions", positions)):
        # A policy that is sure of one prompt says the same under any noise; not of all.
        distinct = [len({tuple(a.output_ids) for a in case.generator.generate(rows)}) for rows in varied]
        assert max(distinct) > 1, f"{_NUM_SEEDS} {what} gave one and the same answer to each of {len(distinct)} prompts"


def check_budgets(case: GeneratorCase) -> None:
    """Each row keeps its own budget, and a smaller budget gives the beginning of what a larger one gives."""
    for temperature in _repeatable_temperatures(case):
        base = case.requests(temperature=temperature, max_new_tokens=_BUDGETS[-1])
        full = case.generator.generate(base)
        cut = [replace(r, max_new_tokens=_BUDGETS[i % len(_BUDGETS)]) for i, r in enumerate(base)]
        for request, whole, answer in zip(cut, full, case.generator.generate(cut), strict=True):
            expected = whole.output_ids[: request.max_new_tokens]
            assert answer.output_ids == expected, (
                f"a budget of {request.max_new_tokens} gave {answer.output_ids}, not {expected}"
            )
    none = case.generator.generate([replace(case.requests(temperature=1.0)[0], max_new_tokens=0)])[0]
    assert (none.output_ids, none.stop_reason) == ([], StopReason.LENGTH), f"a budget of 0 gave {none}"


def check_refusals(case: GeneratorCase) -> None:
    """Unknown weights are a WeightsError, an empty prompt and a negative temperature a ValueError; none breaks the engine."""
    requests = case.requests(temperature=0.0)
    before = [answer.output_ids for answer in case.generator.generate(requests)]
    _check_raises(WeightsError, case, [*requests, replace(requests[0], weights=case.unknown)])
    _check_raises(ValueError, case, [replace(requests[0], prompt_ids=())])
    _check_raises(ValueError, case, [replace(requests[0], temperature=-1.0)])
    after = [answer.output_ids for answer in case.generator.generate(requests)]
    assert after == before, "an engine goes on as before after it refused a request"


def check_deadlines(case: GeneratorCase) -> None:
    """A request past its deadline comes back ABORTED with what it has, stamped; its batch mates are written in full."""
    requests = case.requests(temperature=0.0)
    whole = case.generator.generate(requests)
    late = [replace(r, deadline_s=0.0) if i % 2 == 0 else replace(r, deadline_s=600.0) for i, r in enumerate(requests)]
    for i, (request, full, answer) in enumerate(zip(late, whole, case.generator.generate(late), strict=True)):
        assert answer.written_by == request.weights.digest, f"request {i} is stamped {answer.written_by!r}"
        if i % 2:
            _check_same(case, full, answer, f"request {i}, beside requests that were late")
            continue
        assert answer.stop_reason is StopReason.ABORTED, f"request {i} was late and stopped by {answer.stop_reason}"
        assert len(answer.output_ids) == len(answer.logprobs), f"request {i} has ids without log-probabilities"
        so_far = full.output_ids[: len(answer.output_ids)]
        assert answer.output_ids == so_far, f"request {i} came back with {answer.output_ids}, not the start of {full}"
    again = case.generator.generate(requests)
    assert [a.output_ids for a in again] == [a.output_ids for a in whole], (
        "an engine goes on as before after a deadline"
    )


def check_abort(case: GeneratorCase) -> None:
    """An abort from another thread ends the call in progress; what is written then is ABORTED, and the next call is whole.

    Where no answer is long enough for a thread to come between (`long_budget`), only that an abort does no harm.
    """
    requests = case.requests(temperature=0.0)
    whole = case.generator.generate(requests)
    if case.long_budget:
        endless = [
            replace(r, seed=i, temperature=50.0, max_new_tokens=case.long_budget) for i, r in enumerate(requests * 8)
        ]
        stop = threading.Timer(0.05, case.generator.abort)
        stop.start()
        answers = case.generator.generate(endless)
        stop.join()
        aborted = [a for a in answers if a.stop_reason is StopReason.ABORTED]
        assert aborted, f"none of {len(answers)} answers of {case.long_budget} tokens was withdrawn by an abort"
    case.generator.abort()
    after = case.generator.generate(requests)
    assert [a.output_ids for a in after] == [a.output_ids for a in whole], "a call after an abort is written in full"


def check_logprobs(case: GeneratorCase) -> None:
    """Log-probabilities are those of an independent computation: under the temperature drawn at, under 1 where greedy."""
    if case.logprobs is None:
        return
    for temperature in (0.0, 0.6, 1.0):
        requests = case.requests(temperature=temperature)
        for request, answer in zip(requests, case.generator.generate(requests), strict=True):
            expected = case.logprobs(request.weights, request.prompt_ids, answer.output_ids, temperature or 1.0)
            worst = max((abs(a - b) for a, b in zip(answer.logprobs, expected, strict=True)), default=0.0)
            assert worst <= case.logprob_bound, f"log-probabilities are off by {worst} at temperature {temperature}"


def check_greedy(case: GeneratorCase) -> None:
    """Greedy answers are those of an independent computation."""
    if case.greedy is None:
        return
    requests = case.requests(temperature=0.0)
    for request, answer in zip(requests, case.generator.generate(requests), strict=True):
        expected = case.greedy(request.weights, request.prompt_ids, request.max_new_tokens)
        assert answer.output_ids == expected, f"greedy gave {answer.output_ids}, expected {expected}"


def _repeatable_temperatures(case: GeneratorCase) -> tuple[float, ...]:
    """At which the engine's answers are a function of the request."""
    return (0.0, 1.0) if case.generator.capabilities.counter_noise else (0.0,)


def _check_same(case: GeneratorCase, a: Generation, b: Generation, what: str) -> None:
    assert a.output_ids == b.output_ids, f"{what}: {a.output_ids} and {b.output_ids}"
    assert a.stop_reason is b.stop_reason, f"{what}: stopped by {a.stop_reason} and {b.stop_reason}"
    worst = max((abs(x - y) for x, y in zip(a.logprobs, b.logprobs, strict=True)), default=0.0)
    assert worst <= case.logprob_bound, f"{what}: log-probabilities differ by {worst}"


def _check_raises(error: type[Exception], case: GeneratorCase, requests: Sequence[GenerationRequest]) -> None:
    try:
        case.generator.generate(requests)
    except error:
        return
    raise AssertionError(f"expected {error.__name__} for {requests[-1]}")


GENERATOR_CHECKS: Final[tuple[Callable[[GeneratorCase], None], ...]] = (
    check_capabilities,
    check_no_requests,
    check_shape,
    check_repeatable,
    check_batch_independence,
    check_versions_mixed,
    check_greedy_ignores_noise,
    check_noise_depends_on_seed_and_position,
    check_budgets,
    check_refusals,
    check_deadlines,
    check_abort,
    check_logprobs,
    check_greedy,
)
"""Every check, in the order a new engine is best brought up by."""
