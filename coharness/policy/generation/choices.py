"""How likely given tokens are to come next: one pass over left-padded prompts, nothing is written.

Invariant: what is said of one prompt does not depend on its batch mates but by rounding, since padding is masked out. Driven by
`transformers_engine` with a model that is ready.
"""

from collections.abc import Sequence
from typing import Any

import torch

from coharness.records.errors import WeightsError


@torch.inference_mode()
def read_choices(
    model: Any, prompts: Sequence[Sequence[int]], choices: Sequence[Sequence[int]]
) -> list[tuple[float, ...]]:
    """Log-probabilities of each prompt's choices at temperature 1.

    Args:
        model: A causal language model of transformers, in eval mode, with the wanted weights active.
        prompts: Token ids, at least one each.
        choices: Token ids that may come next, of each prompt.

    Raises:
        WeightsError: the model's logits are not finite.
    """
    width = max(map(len, prompts))
    lengths = torch.tensor([len(p) for p in prompts])  # [B]
    columns = torch.arange(width)
    ids = torch.tensor([[p[0]] * (width - len(p)) + list(p) for p in prompts])  # [B, W]
    padding = width - lengths[:, None]
    output = model(
        input_ids=ids,
        attention_mask=(columns >= padding).long() if int(lengths.min()) < width else None,
        position_ids=(columns - padding).clamp_(min=0),
        use_cache=False,
        logits_to_keep=1,
    )
    logprobs = output.logits[:, -1].float().log_softmax(-1)  # [B, V]
    found = [tuple(logprobs[row, list(asked)].tolist()) for row, asked in enumerate(choices)]
    if not bool(torch.isfinite(logprobs).all()):
        raise WeightsError(
            "the model's logits after a prompt are not finite; expected numbers (its weights are damaged, or its update diverged)"
        )
    return found
