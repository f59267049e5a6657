"""The base of all parts of a configuration."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of all sections: frozen, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
