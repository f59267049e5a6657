"""What an engine checks before a version writes: that it can hold it, that it is the run's, that it computes as published.

Pure functions over a reference, shared by all engines, so that a mismatch reads the same whichever engine found it.
"""

from collections.abc import Collection, Sequence
from typing import Final

from coharness.policy.bases import BaseSpec
from coharness.policy.canary import CANARY_TOLERANCE
from coharness.records.errors import WeightsError
from coharness.records.policy import WeightsRef
from coharness.records.protocols import GenerationRequest

BFLOAT16_TOLERANCE: Final = 1.5
"""In nats over the canary text: two bfloat16 implementations of one model differ by .04 a token on average, .5 at worst."""


def check_kind(ref: WeightsRef, kinds: Collection[str]) -> None:
    """Refuse weights of a kind that the engine does not hold.

    Raises:
        WeightsError: names the kinds that it does.
    """
    if ref.kind.value not in kinds:
        raise WeightsError(
            f"{ref.uri} holds weights of kind {ref.kind}, this engine loads {', '.join(sorted(kinds))}; "
            "set policy.weights to what the run's members are"
        )


def check_base(ref: WeightsRef, base: BaseSpec) -> None:
    """Refuse a reference to another base than the engine's.

    Raises:
        WeightsError: names both digests.
    """
    if ref.digest != base.digest:
        raise WeightsError(
            f"the run's base has digest {ref.digest}, base {base.name!r} at {base.path} has "
            f"{base.digest}; use the base that the run began with"
        )


def check_canary(ref: WeightsRef, got: float, tolerance: float = CANARY_TOLERANCE) -> None:
    """Refuse weights under which the engine's canary is not the publisher's.

    Args:
        ref: The version, with its publisher's canary.
        got: The engine's own, in nats over the whole text.
        tolerance: Largest difference that rounding may explain.

    Raises:
        WeightsError: the two differ by more, or one is not a number.
    """
    if not abs(got - ref.canary) <= tolerance:
        raise WeightsError(
            f"{ref.uri or 'the base'} gives the canary text a log-probability of {got:.6f}, its publisher got {ref.canary:.6f}; "
            f"expected agreement within {tolerance} (another dtype, LoRA scale or library version?)"
        )


def tolerance_of(dtype: str) -> float:
    """Largest difference of canaries that rounding may explain between two engines in this dtype."""
    return CANARY_TOLERANCE if dtype == "float32" else BFLOAT16_TOLERANCE


def check_requests(requests: Sequence[GenerationRequest]) -> None:
    """Refuse what no engine can write.

    Raises:
        ValueError: a prompt is empty or a temperature is negative.
    """
    for request in requests:
        if not request.prompt_ids or request.temperature < 0:
            raise ValueError(
                f"a request has {len(request.prompt_ids)} prompt tokens at temperature {request.temperature}, expected at least "
                "one token and a temperature of 0 (greedy) or more"
            )
