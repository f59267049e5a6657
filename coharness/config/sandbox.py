"""The shape of the settings of code tasks and of the sandbox that runs what a policy writes for them."""

from typing import Literal, Self

from pydantic import Field, model_validator

from coharness.config.section import Section

BUILTIN_LEVELS = 4
"""Levels of the built-in functions."""


class CodeTasks(Section):
    """Functions to write, with tests: built-in easy ones, or a file's in HumanEval's shape (JSON lines, maybe gzipped)."""

    type: Literal["code"]
    path: str | None = None
    "Rows with prompt, entry_point, canonical_solution and test; the built-in functions where left out."
    family: str = "code"
    levels: int = Field(default=1, ge=1)
    "Rows are cut into this many levels by the length of their reference; of the built-in functions the easiest ones are used."

    @model_validator(mode="after")
    def _refuse_levels_that_are_not_there(self) -> Self:
        if self.path is None and self.levels > BUILTIN_LEVELS:
            raise ValueError(
                f"tasks.levels={self.levels} is more than the {BUILTIN_LEVELS} levels of the built-in functions; lower it, or "
                "give tasks.path"
            )
        return self


class SandboxSection(Section):
    """Where code that a policy wrote may run."""

    minimum: Literal["landlock", "bubblewrap", "monty"] = "landlock"
    "The weakest layer that may run it; a run with code tasks refuses to start where no layer at or above this works."
    unsafe: bool = False
    "Whether a plain child process may stand in where neither bubblewrap nor landlock works; the run's report says so."
    timeout_s: float = Field(default=5.0, gt=0)
    "Wall clock of one answer, over all calls of its test."
    memory_mb: int = Field(default=256, ge=32)
    "Address space of one answer."
    spares: int = Field(default=1, ge=0, le=16)
    "Processes that each worker keeps ready."
