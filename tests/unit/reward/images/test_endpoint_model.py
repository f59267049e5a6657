"""A model behind endpoints, as it travels to the workers of a society."""

import json
from pathlib import Path

import pytest
import typer.testing

from coharness.reward.images.extra import INSTALL

pytest.importorskip("cv2", reason=f"needs the extra: {INSTALL}")
pytest.importorskip("skimage", reason=f"needs the extra: {INSTALL}")

from coharness.cli.judge import app
from coharness.records.errors import ConfigError
from coharness.reward.images.endpoint_model import EndpointModel

MODEL = EndpointModel(endpoints=("http://127.0.0.1:9/v1",), name="m", key_env="SOME_KEY", max_calls=100)


def test_a_model_travels_as_plain_values_without_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "secret-zq7")
    text = json.dumps(MODEL.to_json())
    assert "secret-zq7" not in text
    assert EndpointModel.from_json(json.loads(text)) == MODEL


def test_processes_share_what_may_be_spent_and_one_file_of_judgments(tmp_path: Path) -> None:
    shared = MODEL.shared_by(3, tmp_path / "judgments.sqlite")
    assert shared.max_calls * 3 <= MODEL.max_calls < (shared.max_calls + 1) * 3
    assert shared.cache == str(tmp_path / "judgments.sqlite")
    assert EndpointModel(endpoints=("x",), name="m", cache="own").shared_by(2, tmp_path / "other").cache == "own"


def test_a_model_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="--endpoint needs --model"):
        EndpointModel(endpoints=("x",), name="")


@pytest.mark.parametrize(("option", "known"), [("--fleet", "local, ray"), ("--telling", "arrival, asked")])
def test_a_word_that_does_not_exist_is_refused_before_anything_is_read(option: str, known: str) -> None:
    words = ["evolve-model", "nowhere.jsonl", "store", "--endpoint", "http://127.0.0.1:9/v1", "--model", "m"]
    done = typer.testing.CliRunner().invoke(app, [*words, option, "other"])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == f"{option}: got 'other', expected one of {known}"
