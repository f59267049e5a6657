"""Owns the fold of births, replacements, proposals and verdicts into who lived when and who served.

`coharness.report.history` drives it in journal order. The rules of what a verdict does are those of the records: an
accepted PAIR makes its challenger champion, an accepted ROLLBACK restores its challenger, an accepted HARNESS gives the
slot that it was proposed for its challenger's serving genes (training genes may have moved on since), an accepted MERGE
takes the place of the member it was raced for, where that one still lives. The champion starts as the first policy with
the first genome that takes a slot.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from coharness.records.events import Clone, Open, Spawn
from coharness.records.harness import Harness
from coharness.records.harness_diff import harness_diff
from coharness.records.ids import HarnessId, PolicyId, ProposalId
from coharness.records.policy import PolicyVersion, VersionRef
from coharness.records.proposals import Proposal, ProposalKind, Verdict, VerdictKind
from coharness.records.training import MergeJob, TrainJob
from coharness.records.work import Serving
from coharness.report.timeline import ChampionSpan, HarnessSpan, Moment, PolicyLife, ProposalLife, VersionPoint

FIRST_POLICY = PolicyId("p0")


class Population:
    """Folds lives; one instance a journal."""

    def __init__(self) -> None:
        self.genomes: dict[HarnessId, Harness] = {}
        self.champions: list[ChampionSpan] = []
        self.strays: list[str] = []
        self._policies: dict[PolicyId, PolicyLife] = {}
        self._versions: dict[PolicyId, list[VersionPoint]] = {}
        self._spans: list[HarnessSpan] = []
        self._live_spans: dict[int, int] = {}
        self._proposals: dict[ProposalId, ProposalLife] = {}

    def founded(self, num_policies: int, base_digest: str, at: Moment) -> None:
        """Fold the start: every member is the untouched base."""
        for slot in range(num_policies):
            ref = VersionRef(PolicyId(f"p{slot}"), 0)
            self._born(ref, "base", (), at, slot)
            self._publish(ref, at, base_digest, "base", {}, {})

    def cloned(self, clone: Clone, at: Moment) -> None:
        """Fold an exploit: the child takes the place of the member that gives way."""
        ref = VersionRef(clone.child, 0)
        slot = self._leave(clone.replaced, f"replaced by {clone.child}, a clone of {clone.donor}", at)
        self._born(ref, "clone", (clone.donor,), at, slot)
        donor = next((v for v in self._versions.get(clone.donor.policy, []) if v.ref == clone.donor), None)
        self._publish(ref, at, donor.digest if donor else "", "clone", {}, clone.hyperparameters)

    def trained(self, job: TrainJob, version: PolicyVersion, metrics: Mapping[str, float], at: Moment) -> None:
        """Fold a published update."""
        self._publish(version.ref, at, version.weights.digest, version.operator, metrics, job.hyperparameters)

    def merged(self, job: MergeJob, version: PolicyVersion, metrics: Mapping[str, float], at: Moment) -> None:
        """Fold a merge's child; it is a candidate until its race is won."""
        self._born(version.ref, "merge", tuple(parent.ref for parent in job.parents), at, None)
        self._publish(version.ref, at, version.weights.digest, f"merge ({job.rule})", metrics, {})

    def registered(self, harnesses: Iterable[Harness]) -> None:
        """Fold genomes that items use without having a slot."""
        self.genomes |= {harness.id: harness for harness in harnesses}

    def spawned(self, spawn: Spawn, at: Moment) -> None:
        """Fold a genome that takes a slot."""
        self.genomes[spawn.harness.id] = spawn.harness
        if spawn.slot < 0:
            return  # The randomized control's pool: genomes that are drawn from, without a place of their own.
        self._settle(spawn.slot, spawn.harness.id, at, spawn.operator, spawn.parents, None)
        if not self.champions:
            serving = Serving(VersionRef(FIRST_POLICY, 0), spawn.harness.id)
            self.champions.append(ChampionSpan(serving=serving, start=at, end=None, cause="start"))

    def opened(self, opening: Open, at: Moment) -> None:
        """Fold the start of a test."""
        if opening.harness is not None:
            self.genomes[opening.harness.id] = opening.harness
        proposal = opening.proposal
        self._proposals[proposal.id] = ProposalLife(proposal=proposal, opened=at, edits=self._edits(proposal))

    def decided(self, verdict: Verdict, at: Moment) -> None:
        """Fold the end of a test, with what an acceptance does."""
        life = self._proposals.get(verdict.proposal)
        if life is None:
            self.strays.append(f"a verdict on proposal {verdict.proposal}, whose opening is not in the journal")
            return
        self._proposals[verdict.proposal] = replace(life, verdict=verdict, decided=at)
        proposal, accepted = life.proposal, verdict.kind is VerdictKind.ACCEPTED
        match proposal.kind:
            case ProposalKind.PAIR if accepted:
                self._serve(proposal, "promotion", at)
            case ProposalKind.ROLLBACK if accepted:
                self._serve(proposal, "rollback", at)
            case ProposalKind.HARNESS if accepted:
                self._succeed(proposal, at)
            case ProposalKind.MERGE:
                self._race_ended(proposal, accepted, at)

    def policies(self) -> dict[PolicyId, PolicyLife]:
        """All lineages, in the order of their birth."""
        return {name: replace(life, versions=tuple(self._versions[name])) for name, life in self._policies.items()}

    def harness_spans(self) -> tuple[HarnessSpan, ...]:
        """All genomes in their slots, in the order in which they came."""
        return tuple(self._spans)

    def proposals(self) -> tuple[ProposalLife, ...]:
        """All proposals, in the order of their opening."""
        return tuple(self._proposals.values())

    def _born(
        self, ref: VersionRef, origin: str, parents: tuple[VersionRef, ...], at: Moment, slot: int | None
    ) -> None:
        self._versions[ref.policy] = []
        self._policies[ref.policy] = PolicyLife(
            id=ref.policy, origin=origin, parents=parents, born=at, slot=slot,
            joined=None if slot is None else at, ended=None, ending="", versions=(),
        )  # fmt: skip

    def _publish(
        self, ref: VersionRef, at: Moment, digest: str, operator: str, metrics: Mapping[str, float],
        hyperparameters: Mapping[str, float],
    ) -> None:  # fmt: skip
        if ref.policy not in self._policies:
            self.strays.append(f"version {ref} of a policy whose birth is not in the journal")
            return
        self._versions[ref.policy].append(
            VersionPoint(
                ref=ref, at=at, digest=digest, operator=operator, metrics=metrics, hyperparameters=hyperparameters
            )
        )

    def _leave(self, policy: PolicyId, ending: str, at: Moment) -> int | None:
        life = self._policies.get(policy)
        if life is None:
            self.strays.append(f"the end of policy {policy}, whose birth is not in the journal")
            return None
        self._policies[policy] = replace(life, ended=at, ending=ending)
        return life.slot

    def _settle(
        self, slot: int, harness: HarnessId, at: Moment, operator: str, parents: tuple[HarnessId, ...],
        proposal: ProposalId | None,
    ) -> None:  # fmt: skip
        if slot in self._live_spans:
            last = self._live_spans[slot]
            self._spans[last] = replace(self._spans[last], end=at)
        self._live_spans[slot] = len(self._spans)
        edits = self._diff(parents[0], harness) if parents else ()
        self._spans.append(
            HarnessSpan(
                slot=slot,
                harness=harness,
                start=at,
                end=None,
                operator=operator,
                parents=parents,
                edits=edits,
                proposal=proposal,
            )
        )

    def _serve(self, proposal: Proposal, cause: str, at: Moment) -> None:
        if self.champions:
            self.champions[-1] = replace(self.champions[-1], end=at)
        self.champions.append(
            ChampionSpan(serving=proposal.challenger, start=at, end=None, cause=cause, proposal=proposal.id)
        )

    def _succeed(self, proposal: Proposal, at: Moment) -> None:
        slot = proposal.manifest.get("slot")
        child = self.genomes.get(proposal.challenger.harness)
        if slot not in self._live_spans or child is None:
            self.strays.append(f"proposal {proposal.id} was accepted for slot {slot}, which the journal does not hold")
            return
        parent = self._spans[self._live_spans[slot]].harness
        merged = replace(self.genomes[parent], prompt=child.prompt, episode=child.episode)
        self.genomes[merged.id] = merged
        self._settle(slot, merged.id, at, proposal.operator, (parent,), proposal.id)

    def _race_ended(self, proposal: Proposal, won: bool, at: Moment) -> None:
        child = proposal.challenger.version.policy
        replaced = self._policies.get(PolicyId(str(proposal.manifest.get("replaces"))))
        life = self._policies.get(child)
        if life is None:
            self.strays.append(f"the race of {child}, whose merge is not in the journal")
        elif not won:
            self._leave(child, "did not win its race", at)
        elif replaced is None or replaced.ended is not None:
            self._leave(child, "won its race when its place was taken already", at)
        else:
            slot = self._leave(replaced.id, f"replaced by {child}, a merge", at)
            self._policies[child] = replace(life, slot=slot, joined=at)

    def _diff(self, before: HarnessId, after: HarnessId) -> tuple[str, ...]:
        old, new = self.genomes.get(before), self.genomes.get(after)
        return () if old is None or new is None else tuple(harness_diff(old, new))

    def _edits(self, proposal: Proposal) -> tuple[str, ...]:
        challenger, incumbent = proposal.challenger, proposal.incumbent
        edits: list[str] = []
        if challenger.version != incumbent.version:
            edits.append(f"weights: {incumbent.version} → {challenger.version}")
        if challenger.harness != incumbent.harness:
            edits += self._diff(incumbent.harness, challenger.harness) or [
                f"harness: {incumbent.harness} → {challenger.harness}"
            ]
        return tuple(edits)
