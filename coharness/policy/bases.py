"""Bases: the model every member of a population starts from, found by name and checked before anything is loaded.

Owns the meaning of `policy.base`. `resolve_base` reads only JSON and file headers, so a preflight can call it without torch;
`load_base` loads the model. Invariants: a base is named by a digest over the bytes of its weights, configuration and tokenizer,
so two machines agree on whether they hold the same one; its vocabulary is its tokenizer's.
"""

import functools
import hashlib
import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import coharness
from coharness.policy.codec import BaseCodec, open_codec
from coharness.records.errors import PreflightError
from coharness.records.policy import WeightsKind, WeightsRef

if TYPE_CHECKING:
    from torch import nn

TINY: Final = "tiny"
SMOLLM2: Final = "smollm2"
_TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_PADDING_ROWS: Final = 64
_PADDING_SHARE: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseSpec:
    """A base on disk, checked."""

    name: str
    "As the configuration names it."
    path: Path
    digest: str
    "SHA-256 over the bytes of weights, configuration and tokenizer."
    is_chat: bool
    "Whether its tokenizer carries a chat template."
    num_parameters: int
    max_context: int
    "Tokens of prompt and answer together."
    num_bytes: int
    "Size of its weights on disk."


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedBase:
    """A base in memory. Its model is in eval mode and belongs to the loader; engines copy what they change."""

    spec: BaseSpec
    model: "nn.Module"
    codec: BaseCodec


def tiny_path() -> Path:
    """Where the tiny base lies: beside the quickstart, in a checkout as in an installed package."""
    return Path(coharness.__file__).resolve().parent.parent / "experiments" / "quickstart" / "base"


def resolve_base(name_or_path: str) -> BaseSpec:
    """Find a base and check that its parts are there and fit together; loads neither torch nor transformers.

    Args:
        name_or_path: `tiny`, `smollm2`, or a folder in transformers' format (config.json, safetensors, tokenizer.json).

    Raises:
        PreflightError: the base or one of its files is missing, unreadable, or its vocabulary is not its tokenizer's; the
            message says how to mend it.
    """
    path, fix = _locate(name_or_path)
    if not path.is_dir():
        raise PreflightError(f"base {name_or_path!r} is not at {path}; {fix}")
    config = _read_json(path / "config.json", name_or_path, fix)
    weights = sorted(path.glob("*.safetensors"))
    if not weights:
        raise PreflightError(f"base {name_or_path!r} has no *.safetensors in {path}; {fix}")
    tokenizer = _read_json(
        path / "tokenizer.json", name_or_path, "save it with tokenizer.save_pretrained, fast tokenizers only"
    )
    _check_vocabulary(name_or_path, config, tokenizer)
    files = [path / "config.json", *(path / name for name in _TOKENIZER_FILES if (path / name).is_file()), *weights]
    return BaseSpec(
        name=name_or_path,
        path=path,
        digest=_digest_files(tuple((file, file.stat().st_mtime_ns, file.stat().st_size) for file in files)),
        is_chat=_has_chat_template(path),
        num_parameters=sum(_count_parameters(file, name_or_path, fix) for file in weights),
        max_context=_max_context(name_or_path, config),
        num_bytes=sum(file.stat().st_size for file in weights),
    )


def load_base(spec: BaseSpec, dtype: str = "float32") -> LoadedBase:
    """Load a resolved base on the CPU, in eval mode and without gradients.

    Args:
        spec: From `resolve_base`.
        dtype: `float32` or `bfloat16`.

    Raises:
        PreflightError: transformers cannot load it, or its chat template cannot be used.
        ValueError: another dtype.
    """
    if dtype not in ("float32", "bfloat16"):
        raise ValueError(f"policy.dtype is {dtype!r}, expected float32 or bfloat16")
    import torch
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM.from_pretrained(
            spec.path, dtype=getattr(torch, dtype), local_files_only=True, attn_implementation="sdpa"
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise PreflightError(
            f"transformers cannot load base {spec.name!r} from {spec.path}: {error}; expected a causal language model"
        ) from error
    model.requires_grad_(False)
    model.eval()
    return LoadedBase(spec=spec, model=model, codec=open_codec(spec.path, is_chat=spec.is_chat))


def base_weights_ref(base: LoadedBase) -> WeightsRef:
    """The reference that names the untouched base, as every member's version 0 carries it."""
    from coharness.policy.canary import canary_logprob

    return WeightsRef(
        uri="",
        digest=base.spec.digest,
        kind=WeightsKind.BASE,
        num_bytes=base.spec.num_bytes,
        has_optimizer=False,
        canary=canary_logprob(base.model, base.codec),
    )


def _locate(name_or_path: str) -> tuple[Path, str]:
    if name_or_path == TINY:
        return tiny_path(), "build it with `coharness base build tiny` (about six minutes on one core)"
    if name_or_path == SMOLLM2:
        from coharness.policy.smollm2 import cached_path

        return cached_path(), "fetch it with `coharness base fetch smollm2`"
    return (
        Path(name_or_path).expanduser(),
        "policy.base is `tiny`, `smollm2` or a folder written by save_pretrained of a model and its tokenizer",
    )


def _read_json(file: Path, name: str, fix: str) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PreflightError(f"base {name!r} has no readable {file.name} in {file.parent}: {error}; {fix}") from error
    if not isinstance(data, dict):
        raise PreflightError(f"base {name!r}: {file} holds a {type(data).__name__}, expected an object; {fix}")
    return data


def _check_vocabulary(name: str, config: dict[str, Any], tokenizer: dict[str, Any]) -> None:
    vocab = tokenizer.get("model", {}).get("vocab", {})
    added = [int(token["id"]) for token in tokenizer.get("added_tokens", ())]
    known = vocab.values() if isinstance(vocab, dict) else range(len(vocab))  # a unigram vocabulary is a list
    num_tokens = max([*known, *added], default=-1) + 1
    expected = config.get("vocab_size")
    if not isinstance(expected, int):
        raise PreflightError(
            f"base {name!r} has no vocab_size in its config.json; expected a text-only causal language model"
        )
    # Some models round their embedding up for the hardware's sake; those rows are never trained and never written.
    padding = expected - num_tokens
    is_padded = expected % _PADDING_ROWS == 0 and 0 < padding <= expected * _PADDING_SHARE
    if padding != 0 and not is_padded:
        raise PreflightError(
            f"base {name!r} has a tokenizer of {num_tokens} tokens and a model of {expected}; expected equal sizes: put the "
            "tokenizer that the model was trained with beside it, or resize the model's embedding"
        )


def _has_chat_template(path: Path) -> bool:
    if (path / "chat_template.jinja").is_file():
        return True
    config = path / "tokenizer_config.json"
    return config.is_file() and bool(json.loads(config.read_text(encoding="utf-8")).get("chat_template"))


def _max_context(name: str, config: dict[str, Any]) -> int:
    length = config.get("max_position_embeddings", config.get("n_positions"))
    if not isinstance(length, int) or length < 1:
        raise PreflightError(
            f"base {name!r} does not say its longest context (max_position_embeddings is {length!r} in config.json); add it"
        )
    return length


def _count_parameters(file: Path, name: str, fix: str) -> int:
    with file.open("rb") as opened:
        prefix = opened.read(8)
        size = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        try:
            header = json.loads(opened.read(size)) if 0 < size <= file.stat().st_size else None
        except ValueError:
            header = None
    if not isinstance(header, dict):
        raise PreflightError(
            f"base {name!r}: {file} is not a whole safetensors file (was its download interrupted?); {fix}"
        )
    return sum(math.prod(tensor["shape"]) for key, tensor in header.items() if key != "__metadata__")


@functools.lru_cache(maxsize=32)
def _digest_files(stamped: tuple[tuple[Path, int, int], ...]) -> str:
    """Digest over names and contents; times and sizes are in the key only so that a changed file is read anew."""
    digest = hashlib.sha256()
    for file, _, size in stamped:
        digest.update(f"{len(file.name)}:{file.name}|{size}|".encode())
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()
