"""A rollout worker: turns work items into episodes and outcomes. Stateless but for caches; one instance a process.

    item ─► task ─► prompt ─► tokens ─► answer ─► check ─► score ─► episode row + outcome

A failure anywhere is attributed to the boundary it crossed and becomes the outcome of that item alone; an infrastructure
failure is never a score.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from coharness.harness.compile import compile_prompt, compile_turns, retry_prompt
from coharness.loop.checking import Checks
from coharness.records.episode import Episode, JudgedPart, Score, StopReason, episodes_to_table
from coharness.records.errors import Boundary, BoundaryError, boundary
from coharness.records.harness import Harness
from coharness.records.ids import derive_seed
from coharness.records.policy import WeightsRef
from coharness.records.protocols import Check, Generation, GenerationRequest, Generator, TextCodec, Verifier
from coharness.records.task import Task
from coharness.records.work import Audit, BatchResult, Outcome, OutcomeStatus, Purpose, WorkBatch, WorkItem
from coharness.reward.algebra.book import MultiplierBook
from coharness.reward.algebra.part import Part
from coharness.reward.judges.protocol import SCORE_PART, JudgeShelf
from coharness.reward.monitors.shortcut import FEATURES, text_features
from coharness.reward.score import Attempted, score_episode, score_group
from coharness.tasks.formats import FORMATS
from coharness.tasks.sources import TaskSources


@dataclass(slots=True)
class _Attempt:
    """One episode while it is written."""

    sample: int
    prompt_length: int
    ids: list[int]
    mask: list[bool]
    logprobs: list[float]
    written: int = 0
    answer: str | None = None
    stop: StopReason = StopReason.LENGTH
    turns: int = 0
    judged: tuple[Part, ...] = ()

    def add(self, generation: Generation) -> None:
        self.ids += generation.output_ids
        self.mask += [True] * len(generation.output_ids)
        self.logprobs += generation.logprobs
        self.written += len(generation.output_ids)
        self.stop = generation.stop_reason
        self.turns += 1

    def add_turn(self, ids: list[int]) -> None:
        self.ids += ids
        self.mask += [False] * len(ids)
        self.logprobs += [0.0] * len(ids)


@dataclass(slots=True)
class _Group:
    """One item while it runs."""

    item: WorkItem
    harness: Harness
    weights: WeightsRef
    task: Task
    reference_ids: list[int]
    attempts: list[_Attempt] = field(default_factory=list)


class EpisodeWorker:
    """Runs batches with one generator and one verifier."""

    def __init__(
        self,
        name: str,
        sources: TaskSources,
        generator: Generator,
        verifier: Verifier,
        max_context: int,
        judges: JudgeShelf | None = None,
        deadline_s: float | None = None,
        concurrency: int = 1,
    ) -> None:
        self._name = name
        self._sources = sources
        self._generator = generator
        self._checks = Checks(verifier, concurrency)
        self._max_context = max_context
        self._judges = judges
        self._book = MultiplierBook()
        self._deadline_s = deadline_s

    def run(self, batch: WorkBatch) -> tuple[BatchResult, pa.Table]:
        """Outcomes of all items of the batch, one an item, and the bodies of the episodes of those that are done."""
        wall, cpu = time.perf_counter(), time.process_time()
        outcomes: list[Outcome] = []
        groups: list[_Group] = []
        for item in batch.items:
            try:
                groups.append(self._begin(item, batch))
            except BoundaryError as error:
                outcomes.append(_failed(item, error))
        try:
            with boundary(Boundary.GENERATION):
                self._write(groups)
        except BoundaryError as error:
            outcomes += [_failed(group.item, error) for group in groups]
            groups = []
        episodes: list[Episode] = []
        for group, asked in [(group, self._asked(group)) for group in groups]:
            try:
                rows = self._score(group, asked)
            except BoundaryError as error:
                outcomes.append(_failed(group.item, error))
            else:
                episodes += rows
                outcomes.append(self._done(group, rows))
        result = BatchResult(
            batch=batch.id,
            worker=self._name,
            outcomes=tuple(outcomes),
            wall_s=time.perf_counter() - wall,
            cpu_s=time.process_time() - cpu,
        )
        return result, episodes_to_table(episodes)

    def close(self) -> None:
        """End what the engine, the verifier and the judge started."""
        self._generator.close()
        self._checks.close()
        if self._judges is not None:
            self._judges.close()

    def _begin(self, item: WorkItem, batch: WorkBatch) -> _Group:
        codec = self._generator.codec
        with boundary(Boundary.TASK):
            task = self._sources.make(item.task)
        with boundary(Boundary.HARNESS):
            harness = batch.harnesses[item.harness]
            before = compile_turns(harness, task, item.format, self._sources, item.seed)
            text = compile_prompt(harness, task, item.format, self._sources, item.seed)
            prompt = _encode_dialogue(codec, before, text)
            reference = codec.encode_completion(task.references[item.format])
            if len(prompt) + item.max_tokens > self._max_context:
                raise ValueError(
                    f"the prompt has {len(prompt)} tokens and the answer may have {item.max_tokens}, together more than "
                    f"policy.max_context={self._max_context}; raise it, or lower evaluation.tokens_per_task or num_shots"
                )
        group = _Group(
            item=item, harness=harness, weights=batch.weights[item.version], task=task, reference_ids=reference
        )
        for sample in range(item.group_size):
            group.attempts.append(
                _Attempt(
                    sample=sample,
                    prompt_length=len(prompt),
                    ids=list(prompt),
                    mask=[False] * len(prompt),
                    logprobs=[0.0] * len(prompt),
                )
            )
        return group

    def _write(self, groups: list[_Group]) -> None:
        """Write all first turns together, then the retries of those in which no answer could be read."""
        codec = self._generator.codec
        pending = [(group, attempt) for group in groups for attempt in group.attempts]
        while pending:
            generations = self._generator.generate(
                [_request(group, attempt, self._deadline_s) for group, attempt in pending]
            )
            again = []
            for (group, attempt), generation in zip(pending, generations, strict=True):
                if generation.written_by != group.weights.digest:
                    raise BoundaryError(
                        Boundary.WEIGHTS,
                        f"the engine wrote with weights {generation.written_by!r}, asked for {group.weights.digest!r} of "
                        f"{group.item.version}; its answers cannot be used",
                    )
                start = len(attempt.ids)
                attempt.add(generation)
                if generation.stop_reason is StopReason.ABORTED:
                    continue
                attempt.answer = FORMATS[group.item.format].extract(codec.decode(attempt.ids[start:]))
                if generation.stop_reason is StopReason.LENGTH:
                    # A completion that was cut off has not said what its answer is.
                    attempt.answer = None
                if attempt.answer is None and attempt.turns <= group.harness.episode.retries:
                    turn = codec.encode_turn(retry_prompt(group.harness, group.item.format))
                    room = self._max_context - len(attempt.ids) - len(turn)
                    if attempt.written < group.item.max_tokens and room > group.item.max_tokens - attempt.written:
                        attempt.add_turn(turn)
                        again.append((group, attempt))
            pending = again

    def _asked(self, group: _Group) -> dict[str, Callable[[], Check]]:
        """Distinct answers of a group -> what reads the verifier's word on them; a batch is asked about before one is read."""
        if any(attempt.stop is StopReason.ABORTED for attempt in group.attempts):
            return {}
        answers = dict.fromkeys(attempt.answer for attempt in group.attempts if attempt.answer is not None)
        return {answer: self._checks.ask(group.task, answer) for answer in answers}

    def _score(self, group: _Group, asked: Mapping[str, Callable[[], Check]]) -> list[Episode]:
        if late := sum(attempt.stop is StopReason.ABORTED for attempt in group.attempts):
            raise BoundaryError(
                Boundary.DEADLINE,
                f"{late} of {len(group.attempts)} completions were withdrawn (generation.deadline_s={self._deadline_s})",
            )
        checks: dict[str, Check] = {}
        for attempt in group.attempts:
            if attempt.answer is not None and attempt.answer not in checks:
                with boundary(Boundary.VERIFIER):
                    checks[attempt.answer] = asked[attempt.answer]()
        found = [None if a.answer is None else checks[a.answer] for a in group.attempts]
        genes, allowed = group.harness.reward, group.item.max_tokens
        judging = group.item.judging
        with boundary(Boundary.VERIFIER):
            self._judge(group)
            frozen = judging is not None and not judging.counts
            if group.item.purpose is not Purpose.TRAIN or not genes.rule or frozen:
                # Evaluation looks at correctness alone: no rule is applied to it and no judge is paid for it. While a judge
                # does not count, training rests on the verifier's parts in the same way.
                scores = [
                    score_episode(check, check is not None, attempt.written, allowed, genes)
                    for check, attempt in zip(found, group.attempts, strict=True)
                ]
            else:
                scores = score_group(
                    [
                        Attempted(check=check, tokens_used=attempt.written, max_tokens=allowed, judged=attempt.judged)
                        for check, attempt in zip(found, group.attempts, strict=True)
                    ],
                    genes,
                    self._book,
                )
        return [_episode(group, attempt, score) for attempt, score in zip(group.attempts, scores, strict=True)]

    def _judge(self, group: _Group) -> None:
        """Give each attempt the judge's parts; where no answer could be read there is nothing to judge, and it earns nothing."""
        judging = group.item.judging
        if judging is None or self._judges is None or not (judging.counts or judging.audited):
            return
        judge = self._judges.of(judging.judge)
        answered = [attempt for attempt in group.attempts if attempt.answer is not None]
        judged = iter(judge.judge(group.task.question, [self._written_text(a) for a in answered]))
        silent = tuple(Part.ok(name, 0.0, "no answer could be read") for name in judge.part_names)
        for attempt in group.attempts:
            attempt.judged = silent if attempt.answer is None else next(judged)

    def _written_text(self, attempt: _Attempt) -> str:
        return self._generator.codec.decode([t for t, own in zip(attempt.ids, attempt.mask, strict=True) if own])

    def _done(self, group: _Group, rows: list[Episode]) -> Outcome:
        return Outcome(
            item=group.item.id,
            status=OutcomeStatus.DONE,
            num_correct=sum(row.score.exact == 1.0 for row in rows),
            scores=tuple(round(row.score.value, 6) for row in rows),
            num_parsed=sum(row.answer is not None for row in rows),
            num_prompt_tokens=sum(len(row.token_ids) for row in rows) - _written(rows),
            num_output_tokens=_written(rows),
            audits=tuple(self._audits(group, rows)),
        )

    def _audits(self, group: _Group, rows: list[Episode]) -> Iterator[Audit]:
        if group.item.judging is None or not group.item.judging.audited:
            return
        for attempt, row in zip(group.attempts, rows, strict=True):
            score = next((p.value for p in attempt.judged if p.name == SCORE_PART), None)
            if score is not None and attempt.answer is not None:
                surface = text_features(self._written_text(attempt))
                yield Audit(
                    judged=round(score, 6),
                    verified=row.score.exact == 1.0,
                    features=tuple(round(surface[name], 6) for name in FEATURES),
                )


def _request(group: _Group, attempt: _Attempt, deadline_s: float | None) -> GenerationRequest:
    return GenerationRequest(
        prompt_ids=tuple(attempt.ids),
        weights=group.weights,
        seed=derive_seed(group.item.seed, attempt.sample),
        position=attempt.written,
        temperature=group.item.temperature,
        max_new_tokens=group.item.max_tokens - attempt.written,
        deadline_s=deadline_s,
    )


def _episode(group: _Group, attempt: _Attempt, score: Score) -> Episode:
    item = group.item
    return Episode(
        item=item.id,
        sample=attempt.sample,
        policy=item.version.policy,
        step=item.version.step,
        harness=item.harness,
        task=item.task.id,
        family=item.task.family,
        level=item.task.level,
        task_seed=item.task.seed,
        format=item.format,
        purpose=item.purpose,
        temperature=item.temperature,
        token_ids=attempt.ids,
        loss_mask=attempt.mask,
        logprobs=attempt.logprobs,
        prompt_length=attempt.prompt_length,
        reference_ids=group.reference_ids,
        answer=attempt.answer,
        stop_reason=attempt.stop,
        score=score,
        judge=item.judging.judge if item.judging is not None and attempt.judged else "",
        judged=tuple(JudgedPart(name=p.name, outcome=p.outcome.value, value=p.value) for p in attempt.judged),
    )


def _written(rows: list[Episode]) -> int:
    return sum(sum(row.loss_mask) for row in rows)


def _encode_dialogue(codec: TextCodec, before: list[tuple[str, str]], text: str) -> list[int]:
    """Token ids of the turns before, as the policy would have answered them, and of the prompt after them."""
    ids: list[int] = []
    for question, answer in before:
        ids += codec.encode_turn(question) if ids else codec.encode_prompt(question)
        ids += codec.encode_completion(answer)
    return ids + (codec.encode_turn(text) if ids else codec.encode_prompt(text))


def _failed(item: WorkItem, error: BoundaryError) -> Outcome:
    return Outcome(item=item.id, status=OutcomeStatus.FAILED, boundary=error.boundary, message=error.message[:500])


def failed_everywhere(batch: WorkBatch, where: Boundary, message: str) -> Iterator[Outcome]:
    """Failed outcomes of a whole batch whose worker is gone."""
    for item in batch.items:
        yield _failed(item, BoundaryError(where, message))
