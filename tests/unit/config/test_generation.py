"""The generation section: what is refused while it is read."""

import pytest
from pydantic import ValidationError

from coharness.config.generation import GenerationSection


def test_the_default_engine_needs_nothing() -> None:
    section = GenerationSection()
    assert (section.engine, section.deadline_s) == ("transformers", None)


@pytest.mark.parametrize("endpoint", [{}, {"url": "http://127.0.0.1:1/v1"}, {"model": "m"}])
def test_an_endpoint_needs_an_address_and_a_model(endpoint: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match=r"needs generation\.endpoint\.url and generation\.endpoint\.model"):
        GenerationSection(engine="openai", endpoint=endpoint)  # type: ignore[arg-type]


def test_an_engine_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValidationError, match="transformers"):
        GenerationSection(engine="sglang")  # type: ignore[arg-type]
