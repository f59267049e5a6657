"""Building work items inside one `ask`: names are handed out from the state's counter, which only the fold moves."""

from coharness.config.schema import RunConfig
from coharness.records.harness import Harness
from coharness.records.ids import HarnessId, ItemId, ProposalId, derive_seed
from coharness.records.policy import VersionRef
from coharness.records.task import Task
from coharness.records.work import Judging, Purpose, WorkItem


class ItemMaker:
    """Hands out consecutive item ids, starting at the state's next one."""

    def __init__(self, config: RunConfig, next_item: int) -> None:
        self._config = config
        self._next = next_item

    @property
    def next_id(self) -> int:
        """Number of the item that is made next."""
        return self._next

    def make(
        self,
        *,
        version: VersionRef,
        harness: Harness,
        harness_id: HarnessId,
        task: Task,
        answer_format: str,
        purpose: Purpose,
        seed: int | None = None,
        group_size: int = 1,
        temperature: float = 0.0,
        proposal: ProposalId | None = None,
        arm: str = "",
        pair: int = 0,
        judging: Judging | None = None,
    ) -> WorkItem:
        """The next item; its seed is derived from its id where none is given (paired arms share one)."""
        item_id = self._next
        self._next += 1
        limit = self._config.evaluation.tokens_per_task
        return WorkItem(
            id=ItemId(item_id),
            version=version,
            harness=harness_id,
            task=task.ref,
            format=answer_format,
            purpose=purpose,
            seed=derive_seed("item", self._config.seed, item_id) if seed is None else seed,
            group_size=group_size,
            temperature=temperature,
            max_tokens=min(harness.episode.max_tokens, limit),
            proposal=proposal,
            arm=arm,
            pair=pair,
            judging=judging,
        )
