"""Bases: what is found is whole and fits together; what is not says how to mend it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coharness.policy.bases import BaseSpec, base_weights_ref, load_base, resolve_base, tiny_path
from coharness.policy.canary import canary_logprob
from coharness.policy.tiny import MAX_CONTEXT, build_tokenizer, new_model, save_base, tiny_config
from coharness.records.errors import PreflightError
from coharness.records.policy import WeightsKind


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bases") / "whole"
    config = tiny_config()
    config.num_hidden_layers = 1
    save_base(new_model(config, 0), build_tokenizer(), path, {"seed": 0})
    return path


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "base"))


def edit(file: Path, **changes: Any) -> None:
    data = json.loads(file.read_text())
    file.write_text(json.dumps({k: v for k, v in (data | changes).items() if v is not None}))


def test_a_whole_base_is_described_without_loading_it(whole: Path) -> None:
    spec = resolve_base(str(whole))
    model = new_model(tiny_config(), 0)
    one_layer = sum(p.numel() for n, p in model.named_parameters() if ".layers." not in n or ".layers.0." in n)
    assert spec == BaseSpec(
        name=str(whole),
        path=whole,
        digest=spec.digest,
        is_chat=False,
        num_parameters=one_layer,
        max_context=MAX_CONTEXT,
        num_bytes=(whole / "model.safetensors").stat().st_size,
    )


def test_resolving_loads_neither_torch_nor_transformers(whole: Path) -> None:
    program = (
        "import sys; from coharness.policy.bases import resolve_base; resolve_base(sys.argv[1]);"
        "print([m for m in ('torch', 'transformers', 'tokenizers') if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(whole)], capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout.strip() == "[]"


def test_a_loaded_base_is_in_eval_mode_takes_no_gradient_and_has_its_codec(whole: Path) -> None:
    base = load_base(resolve_base(str(whole)))
    assert not base.model.training
    assert not any(p.requires_grad for p in base.model.parameters())
    assert base.codec.decode(base.codec.encode_prompt("rev abc=")) == "rev abc="
    assert str(load_base(base.spec, dtype="bfloat16").model.dtype) == "torch.bfloat16"
    with pytest.raises(ValueError, match="float16"):
        load_base(base.spec, dtype="float16")


def test_the_reference_of_the_untouched_base_carries_its_digest_and_canary(whole: Path) -> None:
    base = load_base(resolve_base(str(whole)))
    ref = base_weights_ref(base)
    assert (ref.kind, ref.uri, ref.digest) == (WeightsKind.BASE, "", base.spec.digest)
    assert ref.canary == canary_logprob(base.model, base.codec)


def test_the_digest_follows_weights_configuration_and_tokenizer_and_nothing_else(folder: Path, whole: Path) -> None:
    digest = resolve_base(str(whole)).digest
    (folder / "base.json").write_text("{}")
    (folder / "BASE.md").write_text("notes")
    assert resolve_base(str(folder)).digest == digest
    seen = {digest}
    for name in ("config.json", "tokenizer_config.json"):
        edit(folder / name, note="changed")
        seen.add(resolve_base(str(folder)).digest)
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    seen.add(resolve_base(str(folder)).digest)
    assert len(seen) == 4


def test_a_base_that_is_nowhere_says_what_may_stand_there(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="`tiny`, `smollm2` or a folder"):
        resolve_base(str(tmp_path / "absent"))


def test_an_absent_smollm2_says_how_to_fetch_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(PreflightError, match="coharness base fetch smollm2"):
        resolve_base("smollm2")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(PreflightError, match=name.replace("model", r"\*")):
        resolve_base(str(folder))


def test_a_truncated_weights_file_is_refused(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(PreflightError, match="not a whole safetensors file"):
        resolve_base(str(folder))


@pytest.mark.parametrize("size", [59, 61, 64])
def test_a_vocabulary_other_than_the_models_is_refused_with_both_sizes(folder: Path, size: int) -> None:
    edit(folder / "config.json", vocab_size=size)
    with pytest.raises(PreflightError, match=rf"60 tokens and a model of {size}"):
        resolve_base(str(folder))


def test_an_embedding_rounded_up_a_little_is_no_mismatch(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] |= {f"word{i}": i for i in range(60, 6_390)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    edit(folder / "config.json", vocab_size=6_400)
    assert resolve_base(str(folder)).max_context == MAX_CONTEXT


def test_a_base_without_an_end_token_is_refused(folder: Path) -> None:
    edit(folder / "tokenizer_config.json", eos_token=None)
    with pytest.raises(PreflightError, match="names no end token"):
        load_base(resolve_base(str(folder)))


def test_a_base_without_a_context_length_is_refused(folder: Path) -> None:
    edit(folder / "config.json", max_position_embeddings=None)
    with pytest.raises(PreflightError, match="longest context"):
        resolve_base(str(folder))


@pytest.mark.parametrize("place", ["file", "config"])
def test_a_chat_template_makes_a_chat_base(folder: Path, place: str) -> None:
    template = "{% for m in messages %}{{ m['content'] }}<eos>{% endfor %}"
    if place == "file":
        (folder / "chat_template.jinja").write_text(template)
    else:
        edit(folder / "tokenizer_config.json", chat_template=template)
    spec = resolve_base(str(folder))
    assert spec.is_chat
    codec = load_base(spec).codec
    assert codec.encode_prompt("ab") + codec.encode_completion("c") == [*build_tokenizer().encode("ab<eos>c<eos>").ids]


def test_a_model_that_transformers_cannot_load_is_refused(folder: Path) -> None:
    edit(folder / "config.json", model_type="unheard_of", architectures=["Unheard"])
    with pytest.raises(PreflightError, match="cannot load base"):
        load_base(resolve_base(str(folder)))


def test_saving_over_something_that_is_no_base_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"base\.json"):
        save_base(new_model(tiny_config(), 0), build_tokenizer(), tmp_path, {})
    assert (tmp_path / "precious.txt").is_file()


def test_the_tiny_base_of_the_repository_is_what_its_record_says() -> None:
    spec = resolve_base("tiny")
    record = json.loads((tiny_path() / "base.json").read_text())
    assert record["digest"] == spec.digest, "rebuild it: coharness base build tiny"
    assert record["num_parameters"] == spec.num_parameters
    assert 0.8e6 <= spec.num_parameters <= 1.0e6
    assert spec.num_bytes <= 4_000_000
    assert spec.digest in (tiny_path() / "BASE.md").read_text()
