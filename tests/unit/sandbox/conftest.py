"""What works here: one sandbox for all tests of a module, and layers by name, each skipped where it is absent."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coharness.records.errors import PreflightError
from coharness.reward.sandbox import Layer, Sandbox
from coharness.reward.sandbox.ladder import LayerRunner, make_runner, why_unusable

HUMANEVAL = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "humaneval" / "HumanEval.jsonl.gz"
PROCESS_LAYERS = (Layer.BUBBLEWRAP, Layer.LANDLOCK)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox()
    try:
        layers = made.layers
    except PreflightError as error:
        pytest.skip(str(error))
    assert layers[0] is Layer.LITERAL
    yield made
    made.close()


@pytest.fixture(scope="module", params=PROCESS_LAYERS)
def guests(request: pytest.FixtureRequest) -> Iterator[LayerRunner]:
    yield from usable(request.param)


@pytest.fixture(scope="module")
def monty() -> Iterator[LayerRunner]:
    yield from usable(Layer.MONTY)


def usable(layer: Layer) -> Iterator[LayerRunner]:
    runner = make_runner(layer)
    reason = why_unusable(runner)
    if reason is not None:
        runner.close()
        pytest.skip(f"{layer}: {reason}")
    yield runner
    runner.close()


@pytest.fixture(scope="session")
def humaneval() -> list[dict[str, Any]]:
    if not HUMANEVAL.is_file():
        pytest.skip("the shared data lie beside the checkout on development machines alone")
    with gzip.open(HUMANEVAL, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]
