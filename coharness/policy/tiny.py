"""The tiny base: a character tokenizer, a Llama of 0.86 M parameters, and how it is trained from text alone.

Owns the shape and the recipe; rows of (prompt, completion) come from the caller, since this layer knows no tasks. Invariant: the
result is a function of the rows and the seed (on one machine and thread), and no global random state is touched. Driven by
`coharness base build tiny`.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PAD: Final = "<pad>"
EOS: Final = "<eos>"
UNK: Final = "<unk>"
CHARACTERS: Final = "\n 0123456789abcdefghijklmnopqrstuvwxyz=:,.><~_^!?;|#+-*()"
MAX_CONTEXT: Final = 256
_IGNORE: Final = -100
_MARK: Final = "base.json"

Rows = list[tuple[str, str]]
"""One batch of (prompt, completion) pairs."""


def build_tokenizer() -> Any:
    """A `tokenizers.Tokenizer` with one token a character; what it does not know becomes `<unk>`."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    vocabulary = {token: i for i, token in enumerate([PAD, EOS, UNK, *CHARACTERS])}
    # A BPE without merges cuts text into characters in one pass; a word-level model would need a pre-tokenizer for that.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=UNK, fuse_unk=False))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in (PAD, EOS, UNK)])
    return tokenizer


def tiny_config() -> LlamaConfig:
    """The shape of the tiny base: 4 layers of width 128, tied embeddings, about 0.86 M parameters."""
    return LlamaConfig(
        vocab_size=3 + len(CHARACTERS),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=MAX_CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )


def new_model(config: LlamaConfig, seed: int) -> Any:
    """A freshly initialised float32 model; a pure function of (config, seed)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def train_tiny(
    rows: Iterator[Rows],
    *,
    num_steps: int,
    seed: int,
    learning_rate: float = 2e-3,
    weight_decay: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.95),
    warmup_share: float = 0.1,
    max_grad_norm: float = 1.0,
    progress: Callable[[int, float], None] | None = None,
) -> Any:
    """Train the tiny base by supervision on completions alone, one batch of rows a step.

    AdamW (Loshchilov & Hutter, 2019) under one cosine cycle with a warm-up (Smith & Topin, 2018).

    Args:
        rows: At least `num_steps` batches.
        num_steps: Optimizer steps.
        seed: Of the initial weights; the rows carry their own randomness.
        learning_rate: Peak of the cycle.
        weight_decay: Decoupled decay of all weights.
        betas: Of AdamW.
        warmup_share: Share of the steps in which the rate rises.
        max_grad_norm: Gradients are scaled down to this global norm.
        progress: Called after each step with its number, from 1, and its loss in nats a token.

    Returns:
        The trained `LlamaForCausalLM` in eval mode.

    Raises:
        ValueError: the rows end early, a row is empty or longer than the context, or the loss is not finite.
    """
    tokenizer = build_tokenizer()
    model = new_model(tiny_config(), seed)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=betas, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, learning_rate, total_steps=num_steps, pct_start=warmup_share, cycle_momentum=False
    )
    for step in range(1, num_steps + 1):
        batch = next(rows, None)
        if batch is None:
            raise ValueError(
                f"the rows ended after {step - 1} batches, expected {num_steps}; make the iterator endless"
            )
        optimizer.zero_grad(set_to_none=True)
        value = _backward(model, _encode(tokenizer, batch), pad_id=tokenizer.token_to_id(PAD))
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        optimizer.step()
        schedule.step()
        if not math.isfinite(value):
            raise ValueError(
                f"the loss is {value} at step {step}, expected a finite number; lower learning_rate={learning_rate}"
            )
        if progress is not None:
            progress(step, value)
    model.eval()
    return model


def save_base(model: Any, tokenizer: Any, path: Path, metadata: Mapping[str, Any]) -> None:
    """Write a base that transformers loads as it is, with `metadata` in base.json; replaces the folder's earlier base.

    `tokenizer` is what `build_tokenizer` gives. All files are written beside the folder first, so a reader never sees half a
    base under its name.

    Raises:
        ValueError: the folder holds something that is not a base.
    """
    if path.exists() and not (path / _MARK).is_file():
        raise ValueError(f"{path} is there and holds no {_MARK}; name a new folder, or one that holds a base")
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, unk_token=UNK, model_max_length=MAX_CONTEXT
    )
    building = path.with_name(f".{path.name}.building")
    if building.exists():
        shutil.rmtree(building)
    building.mkdir(parents=True)
    model.save_pretrained(building)
    wrapped.save_pretrained(building)
    (building / "model.safetensors").chmod(0o644)
    (building / _MARK).write_text(json.dumps(dict(metadata), indent=2, sort_keys=True) + "\n", encoding="utf-8")
    if path.exists():
        shutil.rmtree(path)
    building.rename(path)


def _encode(tokenizer: Any, batch: Rows) -> list[tuple[list[int], list[int]]]:
    """Prompt ids and completion ids with the end token, shortest row first."""
    eos = tokenizer.token_to_id(EOS)
    encoded = [(tokenizer.encode(p).ids, [*tokenizer.encode(c).ids, eos]) for p, c in batch]
    encoded.sort(key=lambda row: len(row[0]) + len(row[1]))
    width = sum(map(len, encoded[-1])) if encoded else 0
    if not 0 < width <= MAX_CONTEXT or not all(p for p, _ in encoded):
        raise ValueError(
            f"a batch holds an empty prompt, no row or a row of {width} tokens, expected 2..{MAX_CONTEXT} tokens a row; "
            "check the rows"
        )
    return encoded


def _backward(model: Any, rows: list[tuple[list[int], list[int]]], pad_id: int) -> float:
    """Add the gradient of the mean completion loss of `rows`; returns that loss in nats a token.

    Short and long rows go through the model apart: most rows are half as long as the longest, and padding costs as much as text.
    """
    num_tokens = sum(len(c) for _, c in rows)
    half = (len(rows) + 1) // 2
    total = 0.0
    for part in (rows[:half], rows[half:]):
        if not part:
            continue
        width = max(len(p) + len(c) for p, c in part)
        ids = torch.tensor([p + c + [pad_id] * (width - len(p) - len(c)) for p, c in part])  # [B, T]
        labels = torch.tensor(
            [[_IGNORE] * len(p) + c + [_IGNORE] * (width - len(p) - len(c)) for p, c in part]
        )  # [B, T]
        # Padding stands on the right, behind everything that is trained on, so the causal mask alone keeps it out.
        logits = model(input_ids=ids, use_cache=False).logits  # [B, T, V]
        summed = F.cross_entropy(
            logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=_IGNORE, reduction="sum"
        )
        loss = summed / num_tokens
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    return total
