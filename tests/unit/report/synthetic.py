"""Builders of synthetic journals: the real event records of short, made-up runs, for the tests of this folder."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from coharness.config.schema import RunConfig
from coharness.loop.journal import Frame, JournalWriter
from coharness.loop.run_dir import RunDir
from coharness.records.errors import Boundary
from coharness.records.events import (
    Asked,
    BatchDone,
    Capacity,
    Clone,
    Decide,
    Directive,
    Event,
    Finish,
    Issued,
    JobDone,
    Lease,
    Merge,
    Open,
    Spawn,
    Started,
    Tick,
    Train,
    WorkerLost,
)
from coharness.records.harness import EpisodeGenes, Harness, PromptGenes, TaskGene
from coharness.records.ids import HarnessId, ItemId, JobId, PolicyId, ProposalId, TaskId
from coharness.records.policy import PolicyVersion, VersionRef, WeightsKind, WeightsRef
from coharness.records.proposals import Proposal, ProposalKind, Verdict, VerdictKind
from coharness.records.task import TaskRef
from coharness.records.training import JobResult, JobStatus, MergeJob, TrainJob
from coharness.records.work import BatchResult, Outcome, OutcomeStatus, Purpose, Serving, WorkItem

FAMILIES = ("count", "maximum", "parity", "reverse")
H0 = Harness(tasks=tuple(TaskGene(family=f, level_low=1, level_high=2, weight=1.0) for f in FAMILIES))
H_TRACE = replace(H0, prompt=PromptGenes(formats={"parity": "trace"}))
H_SHOTS = replace(H0, episode=EpisodeGenes(max_tokens=32))


def ref(policy: str, step: int) -> VersionRef:
    """The name of a version."""
    return VersionRef(PolicyId(policy), step)


def weights(digest: str, kind: WeightsKind = WeightsKind.FULL) -> WeightsRef:
    """Weights of this digest."""
    return WeightsRef(uri=f"weights/{digest}", digest=digest, kind=kind, num_bytes=8, has_optimizer=True, canary=-1.0)


def version(policy: str, step: int, operator: str = "train") -> PolicyVersion:
    """A published version whose digest is its name."""
    return PolicyVersion(ref=ref(policy, step), weights=weights(f"{policy}-{step}"), parents=(), operator=operator)


def serving(policy: str, step: int, harness: Harness = H0) -> Serving:
    """A pinned pairing."""
    return Serving(ref(policy, step), harness.id)


def proposal(number: int, kind: ProposalKind, challenger: Serving, incumbent: Serving, **more: Any) -> Proposal:
    """A proposal of this kind."""
    return Proposal(
        id=ProposalId(number), kind=kind, operator=more.pop("operator", kind.value), challenger=challenger,
        incumbent=incumbent, **more,
    )  # fmt: skip


def verdict(number: int, kind: VerdictKind, wins: int = 30, losses: int = 5, ties: int = 61, **more: Any) -> Verdict:
    """A verdict with these counts."""
    return Verdict(
        proposal=ProposalId(number), kind=kind, reason=more.pop("reason", "the e-value reached its threshold"), wins=wins,
        losses=losses, ties=ties, log_evalue=more.pop("log_evalue", 6.0), level=more.pop("level", 0.06),
    )  # fmt: skip


@dataclass
class Script:
    """Collects events by running time, in any order; each moment is a frame that begins with its Tick."""

    config: RunConfig
    moments: list[tuple[float, tuple[Event, ...]]] = field(default_factory=list)
    next_item: int = 0

    @property
    def frames(self) -> list[Frame]:
        """What the journal will hold, in the order of running time."""
        return [
            Frame(
                seq=number,
                time=1_800_000_000.0 + elapsed_s,
                events=(Tick(elapsed_s=elapsed_s, cpu_s=elapsed_s / 50), *events),
            )
            for number, (elapsed_s, events) in enumerate(sorted(self.moments, key=lambda moment: moment[0]), 1)
        ]

    def at(self, elapsed_s: float, *events: Event) -> "Script":
        """Record events at this running time."""
        self.moments.append((elapsed_s, events))
        return self

    def issue(self, elapsed_s: float, *directives: Directive) -> "Script":
        """Record directives at this running time."""
        asked = Asked(capacity=Capacity(num_items=64, num_jobs=1))
        return self.at(elapsed_s, asked, *(Issued(directive=d) for d in directives))

    def start(self, run_id: str = "toy-run") -> "Script":
        """Record the start of the run."""
        base = weights("base", WeightsKind.BASE)
        started = Started(
            run_id=run_id, seed=3, config=self.config.model_dump(mode="json"), base=base, code_digest="c0de" * 16
        )
        return self.at(0.0, started)

    def items(
        self, purpose: Purpose, num: int, serving_: Serving, *, families: Sequence[str] = FAMILIES, levels: int = 2,
        group_size: int = 1,
    ) -> tuple[WorkItem, ...]:  # fmt: skip
        """New work items, families and levels in turn."""
        made = []
        for i in range(num):
            family, level = families[i % len(families)], 1 + i // len(families) % levels
            task = TaskRef(family=family, level=level, seed=self.next_item, id=TaskId(f"t{self.next_item}"))
            made.append(
                WorkItem(
                    id=ItemId(self.next_item), version=serving_.version, harness=serving_.harness, task=task,
                    format="plain", purpose=purpose, seed=self.next_item, group_size=group_size, temperature=0.0,
                    max_tokens=32,
                )
            )  # fmt: skip
            self.next_item += 1
        return tuple(made)

    def work(
        self, start_s: float, end_s: float, items: Sequence[WorkItem], correct: Iterable[int] | None = None,
        worker: str = "rollout-0", wall_s: float | None = None,
    ) -> "Script":  # fmt: skip
        """Lease items and end them as done."""
        self.issue(start_s, Lease(items=tuple(items)))
        return self.finish(end_s, items, correct, worker, end_s - start_s if wall_s is None else wall_s)

    def finish(
        self, end_s: float, items: Sequence[WorkItem], correct: Iterable[int] | None, worker: str, wall_s: float
    ) -> "Script":
        """End items as done."""
        hits = list(correct) if correct is not None else [0] * len(items)
        outcomes = tuple(
            Outcome(
                item=item.id, status=OutcomeStatus.DONE, num_correct=hit, scores=(float(hit),) * item.group_size,
                num_parsed=item.group_size, num_prompt_tokens=10 * item.group_size,
                num_output_tokens=5 * item.group_size,
            )
            for item, hit in zip(items, hits, strict=True)
        )  # fmt: skip
        result = BatchResult(batch=len(self.moments), worker=worker, outcomes=outcomes, wall_s=wall_s, cpu_s=wall_s / 2)
        return self.at(end_s, BatchDone(result=result))

    def train(
        self, start_s: float, end_s: float, number: int, policy: str, step: int, items: Sequence[WorkItem],
        status: JobStatus = JobStatus.DONE,
    ) -> "Script":  # fmt: skip
        """Train `policy` from version `step` to the next one."""
        job = TrainJob(
            id=JobId(number), start=version(policy, step), step=step + 1, hyperparameters={"learning_rate": 5e-4},
            items=tuple(item.id for item in items), borrowed=(), seed=number,
        )  # fmt: skip
        done = status is JobStatus.DONE
        result = JobResult(
            job=job.id, status=status, version=version(policy, step + 1) if done else None,
            metrics={"loss/sft": 2.0 / (step + 1)} if done else {}, wall_s=end_s - start_s, cpu_s=end_s - start_s,
            boundary=None if done else Boundary.TRAINING, message="" if done else "<script>alert(1)</script>",
        )  # fmt: skip
        return self.issue(start_s, Train(job=job)).at(end_s, JobDone(result=result))

    def spawn(
        self, elapsed_s: float, harness: Harness, slot: int, operator: str = "initial", *parents: str
    ) -> "Script":
        """Put a genome into a slot."""
        directive = Spawn(harness=harness, slot=slot, operator=operator, parents=tuple(map(HarnessId, parents)))
        return self.issue(elapsed_s, directive)

    def test(
        self, start_s: float, end_s: float, proposal_: Proposal, verdict_: Verdict, harness: Harness | None = None
    ) -> "Script":
        """Open a proposal and decide it."""
        self.issue(start_s, Open(proposal=proposal_, harness=harness))
        return self.issue(end_s, Decide(verdict=verdict_))

    def lost(self, elapsed_s: float, worker: str, reason: str) -> "Script":
        """Lose a worker."""
        return self.at(elapsed_s, WorkerLost(worker=worker, reason=reason, num_items=4))

    def end(self, elapsed_s: float, reason: str = "the budget is spent") -> "Script":
        """Finish the run."""
        return self.issue(elapsed_s, Finish(reason=reason))

    def write(self) -> Path:
        """The run directory with this journal."""
        run = RunDir.create(self.config)
        journal = JournalWriter(run.journal_dir, epoch=1)
        for frame in self.frames:
            journal.append(frame.events)
        journal.close()
        return run.path


def config(folder: Path | str = "runs/toy", **changes: Any) -> RunConfig:
    """A small config."""
    base: dict[str, Any] = {
        "run_dir": str(folder),
        "budget": {"rollouts": 2_000},
        "evaluation": {"track_tasks": 16, "track_every": 400},
    }
    return RunConfig.model_validate(base | changes)


def eventful(settings: RunConfig | None = None, seed: int = 0, num_rounds: int = 24) -> Script:
    """Ten minutes with everything in them: updates, a clone, a merge, edits, promotions, a rollback, A/A, failures."""
    rng = np.random.default_rng(seed)
    s = Script(config=settings or config()).start()
    for slot in range(3):
        s.spawn(0.1, replace(H0, episode=EpisodeGenes(max_tokens=64 - slot)), slot)
    first = s.frames[1].events[2].directive.harness  # type: ignore[union-attr]
    champion = Serving(ref("p0", 0), first.id)
    heads = {"p0": 0, "p1": 0, "p2": 0}
    job, skill = 0, 0.15
    t = 1.0
    for step in range(num_rounds):
        track = s.items(Purpose.TRACK, 16, champion, levels=4)
        others = [Serving(ref(p, h), first.id) for p, h in heads.items() if Serving(ref(p, h), first.id) != champion]
        track += tuple(item for other in others for item in s.items(Purpose.TRACK, 16, other, levels=4))
        hits = [int(rng.random() < max(0.02, min(0.97, skill * 1.6 - 0.18 * (i.task.level - 1)))) for i in track]
        s.work(t, t + 4, track, hits)
        for index, policy in enumerate(list(heads)):
            own = s.items(Purpose.TRAIN, 12, Serving(ref(policy, heads[policy]), first.id), group_size=2)
            s.issue(t + 4 + index, Lease(items=own))
            s.finish(
                t + 9 + index, own, rng.integers(0, 3, 12).tolist(), f"rollout-{index % 2}", 4.0 + 10 * (index % 2)
            )
            s.train(t + 9.5 + index, t + 13 + index, job, policy, heads[policy], own)
            heads[policy] += 1
            job += 1
        gate = s.items(Purpose.GATE, 16, champion)
        s.work(t + 5, t + 16, gate, rng.integers(0, 2, 16).tolist(), "rollout-1")
        if step == 4:
            edited = replace(first, prompt=PromptGenes(formats={"parity": "trace", "count": "trace"}))
            change = proposal(
                0, ProposalKind.HARNESS, Serving(ref("p1", 4), edited.id), Serving(ref("p1", 4), first.id),
                operator="mutate.format", test_index=1, families=("parity", "count"),
                manifest={"slot": 0, "fixes": ["parity", "count"]},
            )  # fmt: skip
            s.test(t + 6, t + 17, change, verdict(0, VerdictKind.ACCEPTED), edited)
        if step == 6:
            worse = replace(first, prompt=PromptGenes(formats={"reverse": "filler"}))
            change = proposal(
                1, ProposalKind.HARNESS, Serving(ref("p0", 6), worse.id), Serving(ref("p0", 6), first.id),
                operator="mutate.format", test_index=2, families=("reverse",), manifest={"slot": 1},
            )  # fmt: skip
            s.test(
                t + 6,
                t + 17,
                change,
                verdict(1, VerdictKind.REJECTED, 3, 9, 84, reason="futile", log_evalue=-1.2),
                worse,
            )
        if step == 8:
            challenge = proposal(
                2, ProposalKind.PAIR, Serving(ref("p1", heads["p1"]), edited.id), champion, test_index=3,
                operator="challenge",
            )  # fmt: skip
            s.test(t + 7, t + 17, challenge, verdict(2, VerdictKind.ACCEPTED, 60, 8, 60, log_evalue=22.0))
            champion = challenge.challenger
        if step == 10:
            s.issue(
                t + 17,
                Clone(child=PolicyId("p3"), donor=ref("p1", heads["p1"]), replaced=PolicyId("p2"),
                      hyperparameters={"learning_rate": 7e-4}, probability=0.94),
            )  # fmt: skip
            del heads["p2"]
            heads["p3"] = 0
        if step == 12:
            null = proposal(3, ProposalKind.NULL, champion, champion)
            s.test(t + 5, t + 17, null, verdict(3, VerdictKind.REJECTED, 20, 22, 86, log_evalue=-0.7, level=0.0))
        if step in (13, 16):
            parents = tuple(version(p, heads[p]) for p in ("p0", "p1"))
            child = PolicyId("p4" if step == 13 else "p5")
            merge = MergeJob(id=JobId(job), child=child, rule="task_arithmetic", parents=parents, weights=(0.5, 0.5))
            s.issue(t + 14, Merge(job=merge))
            done = JobResult(
                job=merge.id, status=JobStatus.DONE, version=version(child, 0, "merge"), wall_s=1.0, cpu_s=1.0
            )
            s.at(t + 15, JobDone(result=done))
            job += 1
            number = 4 if step == 13 else 5
            race = proposal(
                number, ProposalKind.MERGE, Serving(ref(child, 0), first.id), Serving(ref("p0", heads["p0"]), first.id),
                operator="merge.task_arithmetic", manifest={"replaces": "p0"},
            )  # fmt: skip
            won = VerdictKind.REJECTED if step == 13 else VerdictKind.ACCEPTED
            s.test(t + 15.5, t + 17, race, verdict(number, won, 12, 11, 70, level=0.0, log_evalue=0.2))
            if step == 16:
                del heads["p0"]
                heads["p5"] = 0
        if step == 18:
            s.lost(t + 17, "rollout-0", "silent for 30 s & <b>gone</b>")
        if step == 19:
            bad = s.items(Purpose.TRAIN, 2, champion)
            s.issue(t + 17, Lease(items=bad))
            failed = tuple(
                Outcome(
                    item=i.id,
                    status=OutcomeStatus.FAILED,
                    boundary=Boundary.GENERATION,
                    message="<img src=x onerror=1>",
                )
                for i in bad
            )
            s.at(
                t + 17.5,
                BatchDone(result=BatchResult(batch=-1, worker="rollout-0", outcomes=failed, wall_s=0.1, cpu_s=0.1)),
            )
        if step == 20:
            wide = replace(edited, tasks=tuple(replace(g, level_high=4) for g in edited.tasks))
            s.spawn(t + 17, wide, 0, "levels", edited.id)
        skill = min(0.95, skill + 0.035)
        t += 20
    return s.end(t)


def sealed_json(
    *, rates: Sequence[float] = (0.2, 0.55, 0.3, 0.8), votes: bool = True, per_cell: int = 12, seed: int = 0,
    num_milestones: int = 4,
) -> dict[str, Any]:  # fmt: skip
    """Sealed readings in which the four cells solve about these shares."""
    rng = np.random.default_rng(seed)
    tasks = [(f, level, f"s-{f}-{level}-{i}") for f in FAMILIES for level in (1, 2, 3, 4) for i in range(per_cell)]
    luck = rng.random(len(tasks))

    def arm(name: str, k: int, rate: float, tokens: int) -> dict[str, Any]:
        rows = [[*task, int(u < rate), tokens * k] for task, u in zip(tasks, luck, strict=True)]
        return {"serving": name, "k": k, "rows": rows}

    names = ("theta0_h0", "theta_h0", "theta0_h", "theta_h")
    pairs = ("p0@0×h-0", "p1@9×h-0", "p0@0×h-1", "p1@9×h-1")
    arms = {n: arm(p, 1, r, 6) for n, p, r in zip(names, pairs, rates, strict=True)}
    if votes:
        for name, k in (("vote_equal_rollouts", 16), ("vote_equal_tokens", 2)):
            oracle = [int(u < 0.6) for u in luck]
            arms[name] = arm("p0@0×h-0", k, 0.35, 6) | {"oracle_correct": oracle}
    shares = np.linspace(rates[0], rates[3], num_milestones + 1)[1:] if num_milestones else []
    milestones = [
        {"rollouts": 500 * (i + 1), "tokens": 9_000 * (i + 1), "cpu_s": 60.0 * (i + 1), "serving": f"p1@{2 * i}×h-1",
         "arm": arm(f"p1@{2 * i}×h-1", 1, share, 6)}
        for i, share in enumerate(shares)
    ]  # fmt: skip
    return {
        "schema": 1,
        "run": "toy-run",
        "seed": 3,
        "arms": arms,
        "milestones": milestones,
        "twin": {"pairs": 64, "discordant": 0},
    }


def write_sealed(run_dir: Path, data: dict[str, Any]) -> None:
    """Put sealed readings into a run directory."""
    RunDir.open(run_dir).sealed_path.write_text(json.dumps(data), encoding="utf-8")
