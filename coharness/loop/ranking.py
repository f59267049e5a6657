"""Who leads: fitness of all pairings of members and harness slots, read from the state at one moment."""

from coharness.evolution.fitness import Fitness, fitness
from coharness.loop.context import Context
from coharness.loop.state import CHAMPION, Member, State
from coharness.records.ids import HarnessId, PolicyId
from coharness.records.work import Serving


class Ranking:
    """A lazy, read-only view; pairings that were never assessed have no rank."""

    def __init__(self, state: State, ctx: Context) -> None:
        self._state = state
        self._ctx = ctx
        self._fitness: dict[tuple[PolicyId, HarnessId], Fitness] = {}

    def fitness(self, member: Member, harness_id: HarnessId) -> Fitness:
        """Fitness of a member in a harness as of the member's head."""
        key = (member.policy, harness_id)
        if key not in self._fitness:
            cells = self._ctx.cells(self._state.harnesses[harness_id])
            self._fitness[key] = fitness(self._state.fitness, member.policy, member.head.ref.step, cells)
        return self._fitness[key]

    @property
    def lead(self) -> Serving | None:
        """The best pairing of a member's head and a slot's harness among those assessed whole; None before the first."""
        best: tuple[float, Serving] | None = None
        for member in self._state.members:
            for slot in self._state.slots:
                fit = self.fitness(member, slot.harness)
                if fit.num_empty == 0 and (best is None or fit.mean > best[0]):
                    best = (fit.mean, Serving(member.head.ref, slot.harness))
        return best[1] if best else None

    def of_serving(self, serving: Serving) -> Fitness | None:
        """Fitness of a serving, None where its member is gone."""
        member = self._state.member(serving.version.policy)
        return None if member is None else self.fitness(member, serving.harness)

    @property
    def of_champion(self) -> Fitness | None:
        """Fitness of the champion's frozen version in its harness, None before it was assessed whole."""
        champion = self._state.champion
        if champion is None:
            return None
        cells = self._ctx.cells(self._state.harnesses[champion.harness])
        known = fitness(self._state.standing, CHAMPION, 0, cells)
        return None if known.num_empty else known

    def of_policy(self, policy: PolicyId) -> float:
        """Best assessed mean of a policy over the slots, -1 where it has none."""
        member = self._state.member(policy)
        if member is None:
            return -1.0
        fits = [self.fitness(member, slot.harness) for slot in self._state.slots]
        return max((f.mean for f in fits if f.num_empty == 0), default=-1.0)

    def of_slot(self, index: int) -> float:
        """Best assessed mean in a slot over the members, -1 where it has none."""
        harness_id = self._state.slots[index].harness
        fits = [self.fitness(m, harness_id) for m in self._state.members]
        return max((f.mean for f in fits if f.num_empty == 0), default=-1.0)

    def best_member(self, harness_id: HarnessId) -> Member:
        """The member that does best in a harness; before any assessment the one that learned most."""
        return max(
            self._state.members,
            key=lambda m: (
                self.fitness(m, harness_id).mean if self.fitness(m, harness_id).num_empty == 0 else -1.0,
                m.head.ref.step,
                -self._state.members.index(m),
            ),
        )

    def same_computation(self, a: Serving, b: Serving) -> bool:
        """Whether two servings have the same weights and give them the same prompts."""
        state, ctx = self._state, self._ctx
        if state.versions[a.version].weights.digest != state.versions[b.version].weights.digest:
            return False
        return ctx.cells(state.harnesses[a.harness]) == ctx.cells(state.harnesses[b.harness])
