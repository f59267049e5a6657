"""Preflight: an engine that is not here, or cannot do what the run asks of it, is refused before anything starts."""

from pathlib import Path
from typing import Any

import pytest

from coharness.config.schema import GenerationSection, PolicySection
from coharness.loop.preflight import Finding, Level, preflight
from coharness.policy.generation import vllm_extra
from coharness.policy.generation.declared import declared_capabilities
from coharness.testing.runs import simulated_config

ENDPOINT = {"engine": "openai", "endpoint": {"url": "http://127.0.0.1:1/v1", "model": "m"}}


def about_the_engine(run_dir: Path, **sections: Any) -> list[Finding]:
    found = preflight(simulated_config(run_dir / "run", **sections)).findings
    return [finding for finding in found if finding.what == "generation.engine"]


def has_vllm(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    monkeypatch.setattr(vllm_extra, "vllm_version", lambda: version)


def test_the_default_engine_has_nothing_to_say(tmp_path: Path) -> None:
    assert about_the_engine(tmp_path) == []


def test_an_absent_vllm_is_an_error_with_the_install_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_vllm(monkeypatch, None)
    (finding,) = about_the_engine(tmp_path, generation={"engine": "vllm"})
    assert finding.level is Level.ERROR
    assert "pip install 'coharness-evolution[vllm]'" in finding.message
    assert "make env-engines" in finding.message


def test_vllm_serves_adapters_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_vllm(monkeypatch, "0.32.0")
    (finding,) = about_the_engine(tmp_path, generation={"engine": "vllm"}, policy={"weights": "lora"})
    assert (finding.level, finding.message) == (Level.INFO, "vLLM 0.32.0, one process for each rollout worker")


def test_full_weights_on_vllm_take_turns_and_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_vllm(monkeypatch, "0.32.0")
    found = about_the_engine(tmp_path, generation={"engine": "vllm"}, population={"num_policies": 3})
    assert [finding.level for finding in found] == [Level.INFO, Level.WARNING]
    assert "1 set of full weights at a time" in found[1].message


@pytest.mark.parametrize("schedule", ["async", "weights_only", "stagewise", "randomized"])
def test_an_endpoint_cannot_be_trained_from(tmp_path: Path, schedule: str) -> None:
    errors = [f for f in about_the_engine(tmp_path, generation=ENDPOINT, schedule=schedule) if f.level is Level.ERROR]
    assert len(errors) == 1
    assert "schedule=harness_only" in errors[0].message


@pytest.mark.parametrize("schedule", ["harness_only", "frozen"])
def test_an_endpoint_may_serve_a_run_that_trains_nothing(tmp_path: Path, schedule: str) -> None:
    found = about_the_engine(tmp_path, generation=ENDPOINT, schedule=schedule)
    assert [finding.level for finding in found] == [Level.INFO, Level.WARNING]
    assert "noise of its own" in found[1].message


def test_an_endpoint_s_missing_key_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    endpoint = {**ENDPOINT["endpoint"], "api_key_env": "NO_SUCH_KEY"}  # type: ignore[dict-item]
    (finding,) = about_the_engine(
        tmp_path, generation={"engine": "openai", "endpoint": endpoint}, schedule="harness_only"
    )
    assert finding.level is Level.ERROR
    assert "NO_SUCH_KEY" in finding.message


@pytest.mark.parametrize("weights", ["full", "lora"])
def test_every_engine_serves_the_base_and_only_exact_ones_serve_members(weights: str) -> None:
    policy = PolicySection(weights=weights)  # type: ignore[arg-type]
    for section in ({"engine": "transformers"}, {"engine": "vllm"}, ENDPOINT):
        able = declared_capabilities(policy, GenerationSection(**section))  # type: ignore[arg-type]
        assert "base" in able.kinds
        assert (weights in able.kinds) == able.exact_tokens == able.counter_noise
