"""The harness genome: everything around the weights that may evolve, as one immutable, content-addressed record.

No parents inside: a genome that is found twice is the same genome and shares its evidence. Lineage lives in proposals.
Genes fall in two classes. *Serving* genes (prompt, episode) change what the policy sees when it is evaluated, so an edit
of one can be tested by the gate at pinned weights. *Training* genes (tasks, sampling, reward) change only what is
trained on; they are carried along and judged by what the weights become.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from coharness.records.ids import HarnessId, content_hash

HARNESS_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGene:
    """How much of one family is trained on, and at which levels."""

    family: str
    level_low: int
    level_high: int
    weight: float
    "Relative share of training groups, > 0."


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingGenes:
    """How training tasks are drawn inside the task genes."""

    learnability: float = 0.8
    "Share of groups drawn by the chance that the group is informative; the rest by the task weights alone."
    uniform_floor: float = 0.1
    "Share drawn uniformly over families and open levels, whatever the evidence says."
    explore_formats: float = 0.25
    "Share of groups answered in another format than the serving one, so that the evidence can name a better one."
    level_up: float = 0.6
    "A family's frontier moves one level up when its success there is surely above this."
    level_down: float = 0.2
    "... and one level down when it is surely below this."
    min_groups: int = 10
    "Least number of groups between two moves of one frontier."


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptGenes:
    """What the policy reads before it answers."""

    template: str = "bare"
    "Name of a template in `coharness.harness.templates`."
    formats: Mapping[str, str] = field(default_factory=dict)
    "Family -> serving answer format; a family that is missing uses the plain format of its source."
    num_shots: int = 0
    "Worked examples of the same family and format before the question."
    hint: str = "none"
    "Name of a hint in `coharness.harness.templates`."


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeGenes:
    """The shape of one attempt."""

    retries: int = 0
    "Further turns when no answer could be read; they see no verifier result."
    max_tokens: int = 64
    "Tokens the policy may write over all turns."
    num_distractors: int = 0
    "Irrelevant characters put before the question."


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardGenes:
    """Weights of the score's parts in the training signal; evaluation looks at correctness alone."""

    exact: float = 1.0
    partial: float = 0.0
    format: float = 0.0
    length: float = 0.0
    "Weight of the share of the token budget left unused."
    rule: Mapping[str, Any] = field(default_factory=dict)
    "A rule of the reward algebra as JSON values; where there is one it makes the training signal, and the weights are idle."


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """A harness genome."""

    tasks: tuple[TaskGene, ...]
    sampling: SamplingGenes = field(default_factory=SamplingGenes)
    prompt: PromptGenes = field(default_factory=PromptGenes)
    episode: EpisodeGenes = field(default_factory=EpisodeGenes)
    reward: RewardGenes = field(default_factory=RewardGenes)
    schema: int = HARNESS_SCHEMA

    @property
    def id(self) -> HarnessId:
        """Content hash of the genome."""
        return HarnessId("h-" + content_hash(self.to_json(), 12))

    def to_json(self) -> dict[str, Any]:
        """The genome as JSON values; task genes in family order, so that order is not a gene."""
        data = asdict(self)
        data["tasks"] = sorted(data["tasks"], key=lambda gene: gene["family"])
        data["prompt"]["formats"] = dict(sorted(self.prompt.formats.items()))
        if not self.reward.rule:
            # Genomes without a rule keep the names that they had before there were any.
            del data["reward"]["rule"]
        return data

    def task_gene(self, family: str) -> TaskGene | None:
        """The gene of one family, None where the harness does not train on it."""
        return next((gene for gene in self.tasks if gene.family == family), None)


def harness_from_json(data: Mapping[str, Any]) -> Harness:
    """Rebuild a genome from `Harness.to_json`.

    Raises:
        ValueError: the genome has a newer schema than this code knows.
    """
    if data["schema"] > HARNESS_SCHEMA:
        raise ValueError(
            f"harness schema {data['schema']} is newer than {HARNESS_SCHEMA}; read it with a newer coharness"
        )
    return Harness(
        tasks=tuple(TaskGene(**gene) for gene in data["tasks"]),
        sampling=SamplingGenes(**data["sampling"]),
        prompt=PromptGenes(**data["prompt"]),
        episode=EpisodeGenes(**data["episode"]),
        reward=RewardGenes(**data["reward"]),
        schema=data["schema"],
    )
