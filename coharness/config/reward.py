"""The shape of a run's `reward` section: who judges, and what that may cost. The rule itself is a harness gene."""

from pydantic import Field

from coharness.config.sandbox import SandboxSection
from coharness.config.section import Section


class JudgeSection(Section):
    """A rubric judge behind OpenAI-compatible endpoints; gives the `judge/...` parts of a rule, in training alone."""

    endpoints: tuple[str, ...]
    "Base addresses such as http://127.0.0.1:8000/v1; several are used by their health."
    model: str
    "The model's name at the endpoint."
    rubric: str
    "A rubric's YAML file; its name and content hash stand in every judgment."
    api_key_env: str | None = None
    "Environment variable that holds the key; the key itself is in no file and no log."
    timeout_s: float = Field(default=60.0, gt=0)
    attempts: int = Field(default=3, ge=1, le=10)
    "Calls for one judgment where the endpoint fails; an answer that cannot be read is asked for once more at most."
    max_output_tokens: int = Field(default=768, ge=16)
    concurrency: int = Field(default=8, ge=1, le=256)
    "Calls in flight of one worker."
    max_calls: int = Field(default=100_000, ge=0)
    "Paid calls of one worker; further judgments abstain."
    max_tokens: int = Field(default=50_000_000, ge=0)
    "Tokens of one worker, in and out; further judgments abstain."
    cache: bool = True
    "Whether judgments are kept under their content in the run's folder and never paid for twice."


class RewardSection(Section):
    """Where training signals come from besides the tasks' verifiers."""

    judge: JudgeSection | None = None
    sandbox: SandboxSection = SandboxSection()
