"""The base of all parts of a configuration."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of all sections: frozen, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    one_word: ClassVar[str | None] = None
    "Field whose value alone may stand for the section, as in `generation: vllm`; see `coharness.config.sections`."
