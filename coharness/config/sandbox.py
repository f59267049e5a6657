"""The shape of the settings of code tasks and of the sandbox that runs what a policy writes for them."""

from typing import Literal

from pydantic import Field

from coharness.config.section import Section


class CodeTasks(Section):
    """Functions to write, with tests, from a file in the shape of HumanEval (JSON lines, gzipped or not)."""

    type: Literal["code"]
    path: str
    "Rows with prompt, entry_point, canonical_solution and test."
    family: str = "code"
    levels: int = Field(default=1, ge=1)
    "Rows are cut into this many levels by the length of their reference."


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
