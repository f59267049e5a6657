"""Multipliers of rules in use: each penalty with gains has one, moved by the costs of every group that was scored.

Whoever scores keeps one book. Its state is not shared and not kept over a restart: two workers move theirs by what each of them
sees, and a new worker begins at the rule's weights. Scores are recorded as they were given, so that nothing decided from them
depends on a book being there.
"""

from collections.abc import Mapping, Sequence

from coharness.reward.algebra.lagrangian import Multiplier
from coharness.reward.algebra.reward import Reward
from coharness.reward.algebra.rule import Penalty, Rule

_Key = tuple[str, float, object]


class MultiplierBook:
    """Multipliers by penalty; rules that hold the same penalty share it. One thread at a time."""

    def __init__(self) -> None:
        self._multipliers: dict[_Key, Multiplier] = {}

    def of(self, rule: Rule) -> Mapping[str, float]:
        """Part -> λ of the rule's moving penalties."""
        return {p.part: self._of(p).value for p in rule.penalties if p.gains is not None}

    def observe(self, rule: Rule, rewards: Sequence[Reward]) -> None:
        """Move the rule's multipliers by the costs of a group; parts that were not measured are no observation."""
        for penalty in rule.penalties:
            if penalty.gains is None:
                continue
            parts = [reward.parts.get(penalty.part) for reward in rewards]
            costs = [part.value for part in parts if part is not None and part.value is not None]
            self._multipliers[_key(penalty)] = self._of(penalty).observed(costs)

    def _of(self, penalty: Penalty) -> Multiplier:
        if penalty.gains is None:
            raise ValueError(f"the penalty on {penalty.part!r} has no gains, so its weight does not move")
        return self._multipliers.get(_key(penalty)) or Multiplier.start(penalty.gains, penalty.weight)


def _key(penalty: Penalty) -> _Key:
    return penalty.part, penalty.weight, penalty.gains
