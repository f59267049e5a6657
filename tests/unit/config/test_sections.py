"""Sections that are given as one word, in a file and on a command line."""

from pathlib import Path

import pytest

from coharness.config.load import config_from, dump_config, load_config
from coharness.config.schema import RunConfig
from coharness.config.section import Section
from coharness.config.sections import overridden, validated
from coharness.records.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]


def with_words(data: dict[str, object], *overrides: str) -> RunConfig:
    return config_from({"run_dir": "runs/x", **data}, overrides)


def test_a_word_changes_its_field_and_leaves_what_the_file_says_beside_it() -> None:
    data = {
        "generation": {"batch_size": 16, "vllm": {"kv_cache_mib": 128}},
        "training": {"objective": "grpo", "group_size": 4, "deepspeed": {"stage": 2}},
    }
    config = with_words(data, "generation=vllm", "training=deepspeed", "fleet=local")
    spelled = with_words(data, "generation.engine=vllm", "training.backend=deepspeed", "fleet.type=local")
    assert config == spelled
    assert (config.generation.engine, config.training.backend, config.fleet.type) == ("vllm", "deepspeed", "local")
    assert (config.generation.batch_size, config.generation.vllm.kv_cache_mib) == (16, 128)
    assert (config.training.group_size, config.training.deepspeed.stage) == (4, 2)


def test_a_word_in_a_file_says_the_same_and_overrides_go_into_its_section(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("run_dir: x\ngeneration: vllm\ntraining: deepspeed\n", encoding="utf-8")
    config = load_config(path, ["generation.batch_size=8", "--training", "torch", "training={group_size: 4}"])
    assert (config.generation.engine, config.generation.batch_size) == ("vllm", 8)
    assert (config.training.backend, config.training.group_size) == ("torch", 4)
    assert load_config(path).training == config_from({"run_dir": "x", "training": {"backend": "deepspeed"}}).training


def test_defaults_that_follow_the_backend_follow_a_word_as_well() -> None:
    assert with_words({}).training.ema_decay == 0.98
    assert with_words({}, "training=deepspeed").training.ema_decay == 0.0


@pytest.mark.parametrize("words", [["generation=vllm", "training=deepspeed"], ["fleet=local"]])
def test_the_checked_in_run_of_real_weights_takes_the_words(words: list[str]) -> None:
    path = ROOT / "experiments" / "smollm2" / "config.yaml"
    plain, changed = load_config(path), load_config(path, words)
    given = {word.partition("=")[0] for word in words}
    kept = [name for name in RunConfig.model_fields if name not in given]
    assert [getattr(changed, name) for name in kept] == [getattr(plain, name) for name in kept]
    assert changed.generation.batch_size == plain.generation.batch_size
    assert changed.training.groups_per_update == plain.training.groups_per_update
    assert changed != plain


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (
            "generation=vlm",
            'generation.engine: got "vlm" (text), expected one of transformers, vllm, openai; did you mean vllm?',
        ),
        (
            "training=DeepSped",
            'training.backend: got "DeepSped" (text), expected one of torch, deepspeed; did you mean deepspeed?',
        ),
        ("generation=sglang", 'generation.engine: got "sglang" (text), expected one of transformers, vllm, openai'),
        ("generation=openai", "generation.engine=openai needs generation.endpoint.url"),
        ("generation=5", "generation: got 5, expected a mapping of keys to values"),
        ("gate=strict", 'gate: got "strict" (text), expected a mapping of keys to values'),
    ],
)
def test_a_word_that_nothing_is_known_by_is_named_with_those_that_are(word: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_words({}, word)
    assert expected in str(caught.value)
    assert str(caught.value).startswith(f"the config with {word}: ")


def test_the_resolved_config_is_dumped_in_full() -> None:
    config = with_words({"generation": "vllm"})
    text = dump_config(config)
    assert "engine: vllm" in text
    assert "generation: vllm" not in text


class Inner(Section):
    one_word = "kind"
    kind: str = "a"
    size: int = 1


class Outer(Section):
    inner: Inner = Inner()
    text: str = ""
    many: tuple[str, ...] = ()


class Outermost(Section):
    outer: Outer = Outer()


def test_words_stand_for_sections_at_any_depth_and_nowhere_else() -> None:
    data = {"outer": {"inner": "b", "text": "kind", "many": ["inner"]}}
    values = overridden(data, ["outer={inner: c}", "outer.inner.size=3"], Outermost)
    assert values == {"outer": {"inner": {"kind": "c", "size": 3}, "text": "kind", "many": ["inner"]}}
    assert data == {"outer": {"inner": "b", "text": "kind", "many": ["inner"]}}
    assert validated(values, Outermost, "it").outer.inner == Inner(kind="c", size=3)
