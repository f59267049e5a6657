"""The shape of a run's `reward` section: who judges, at what cost, and who watches the judge. The rule is a harness gene."""

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from coharness.config.sandbox import SandboxSection
from coharness.config.section import Section


class JudgeSection(Section):
    """A rubric judge behind OpenAI-compatible endpoints; gives the `judge/...` parts of a rule, in training alone."""

    type: Literal["endpoint"] = "endpoint"
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


class LinearJudgeSection(Section):
    """A light judge in the worker's own process, which a run can mend; gives the part `judge/score`, in training alone."""

    type: Literal["linear"]
    file: str
    "Its first version, as `coharness judge fit` writes it."
    anchors: str | None = None
    "JSON lines {question, better, worse} that are never trained on: no repair may surely lose 5 % of them. Repairs need them."
    pairs: str | None = None
    "JSON lines of the same kind that repairs mix in, so that what the judge knew is not forgotten."


class TrainedJudgeSection(Section):
    """A judge that `coharness judge train` made, read in each worker's own process; gives `judge/score`, in training alone."""

    type: Literal["trained"]
    folder: str
    "Where it lies; its base is loaded beside the policy's, once a worker."
    max_calls: int = Field(default=10_000_000, ge=0)
    "Answers that one worker reads at most; further judgments abstain."
    cache: bool = True
    "Whether readings are kept under their content in the run's folder."


def _kind_of(data: Any) -> str:
    """Which judge is meant: `type`, an endpoint where it is left out."""
    return str(data.get("type", "endpoint") if isinstance(data, dict) else data.type)


JudgeChoice = Annotated[
    Annotated[JudgeSection, Tag("endpoint")]
    | Annotated[LinearJudgeSection, Tag("linear")]
    | Annotated[TrainedJudgeSection, Tag("trained")],
    Discriminator(_kind_of),
]
RungName = Literal["audit", "repair", "freeze", "roll_back", "stop"]


class MonitorSection(Section):
    """How judge and verifier are held against each other while a run trains, and what follows an alarm."""

    audit_share: float = Field(default=0.25, gt=0, le=1)
    "Share of judged groups whose attempts are audited; four times as many once the ladder stands at `audit` or above."
    step_audits: int = Field(default=64, ge=8)
    "Audited attempts that make one step of the monitors."
    warmup_steps: int = Field(default=8, ge=1)
    "Steps that say what is healthy; no alarm before."
    healthy_conflict_rate: float | None = Field(default=None, gt=0, lt=1)
    "Share of audited attempts that a healthy judge rates high and the verifier fails; from the warm-up where left out."
    alpha: float = Field(default=0.05, gt=0, lt=1)
    "Chance of a false alarm in a healthy run, of each detector."
    high: float = Field(default=0.7, gt=0, le=1)
    "Score from which an attempt is rated high."
    low: float = Field(default=0.3, ge=0, lt=1)
    "Score up to which it is rated low."
    shortcut_bound: float = Field(default=0.1, ge=0, lt=1)
    "Partial correlation with a surface feature above which the judge is said to follow it."
    window: int = Field(default=1024, ge=64)
    "Latest audited attempts that explain an alarm and that a repair learns from."
    ladder: tuple[RungName, ...] | None = None
    "What follows alarms, rung by rung; all but `stop` where left out, `repair` only with anchors. Empty: alarms alone."
    patience: int = Field(default=4, ge=1)
    "Steps that a rung gets to work before the next one."
    calm: int = Field(default=30, ge=1)
    "Steps without an alarm after which the ladder is climbed down by one rung."
    repair_level: float = Field(default=0.05, gt=0, lt=1)
    "Level of the test that a mended judge must pass, shared by all candidates for one place, and of the veto of its anchors."

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"reward.monitor.low={self.low} is not below reward.monitor.high={self.high}")
        if self.ladder is not None and len(set(self.ladder)) < len(self.ladder):
            raise ValueError(f"reward.monitor.ladder is {list(self.ladder)}; name no rung twice")
        return self


class RewardSection(Section):
    """Where training signals come from besides the tasks' verifiers."""

    judge: JudgeChoice | None = None
    monitor: MonitorSection = MonitorSection()
    sandbox: SandboxSection = SandboxSection()
    concurrency: int = Field(default=1, ge=1, le=256)
    "Answers that a worker has checked at once; above 1 for score functions that wait for a service. Several threads call them."

    @model_validator(mode="after")
    def _refuse_repairs_without_anchors(self) -> Self:
        if "repair" in (self.monitor.ladder or ()) and not self.can_repair:
            raise ValueError(
                "reward.monitor.ladder names repair, which needs reward.judge of type linear with anchors that gate it; give "
                "reward.judge.anchors, or take repair out"
            )
        return self

    @property
    def can_repair(self) -> bool:
        """Whether a run can mend its judge: a linear one with anchors."""
        return isinstance(self.judge, LinearJudgeSection) and self.judge.anchors is not None

    @property
    def ladder(self) -> tuple[RungName, ...]:
        """What follows alarms, with what was left out filled in."""
        if self.monitor.ladder is not None:
            return self.monitor.ladder
        return ("audit", "repair", "freeze", "roll_back") if self.can_repair else ("audit", "freeze", "roll_back")
