"""A rollout worker: turns work items into episodes and outcomes. Stateless but for caches; one instance a process.

    item ─► task ─► prompt ─► tokens ─► answer ─► check ─► score ─► episode row + outcome

A failure anywhere is attributed to the boundary it crossed and becomes the outcome of that item alone; an infrastructure
failure is never a score.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from coharness.harness.compile import compile_prompt, compile_turns, retry_prompt
from coharness.records.episode import Episode, Score, StopReason, episodes_to_table
from coharness.records.errors import Boundary, BoundaryError, boundary
from coharness.records.harness import Harness
from coharness.records.ids import derive_seed
from coharness.records.policy import WeightsRef
from coharness.records.protocols import Check, Generation, GenerationRequest, Generator, TextCodec, Verifier
from coharness.records.task import Task
from coharness.records.work import BatchResult, Outcome, OutcomeStatus, Purpose, WorkBatch, WorkItem
from coharness.reward.algebra.book import MultiplierBook
from coharness.reward.algebra.part import Part
from coharness.reward.judges.protocol import AttemptJudge
from coharness.reward.score import Attempted, needs_judge, rule_of, score_episode, score_group
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
        judge: AttemptJudge | None = None,
        deadline_s: float | None = None,
    ) -> None:
        self._name = name
        self._sources = sources
        self._generator = generator
        self._verifier = verifier
        self._max_context = max_context
        self._judge = judge
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
        for group in groups:
            try:
                rows = self._score(group)
            except BoundaryError as error:
                outcomes.append(_failed(group.item, error))
            else:
                episodes += rows
                outcomes.append(_done(group, rows))
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
        self._verifier.close()
        if self._judge is not None:
            self._judge.close()

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

    def _score(self, group: _Group) -> list[Episode]:
        if late := sum(attempt.stop is StopReason.ABORTED for attempt in group.attempts):
            raise BoundaryError(
                Boundary.DEADLINE,
                f"{late} of {len(group.attempts)} completions were withdrawn (generation.deadline_s={self._deadline_s})",
            )
        checks: dict[str, Check] = {}
        for attempt in group.attempts:
            if attempt.answer is not None and attempt.answer not in checks:
                with boundary(Boundary.VERIFIER):
                    checks[attempt.answer] = self._verifier.check(
                        group.task.verifier, group.task.question, group.task.answer, attempt.answer
                    )
        found = [None if a.answer is None else checks[a.answer] for a in group.attempts]
        genes, allowed = group.harness.reward, group.item.max_tokens
        with boundary(Boundary.VERIFIER):
            if group.item.purpose is not Purpose.TRAIN or not genes.rule:
                # Evaluation looks at correctness alone: no rule is applied to it and no judge is paid for it.
                scores = [
                    score_episode(check, check is not None, attempt.written, allowed, genes)
                    for check, attempt in zip(found, group.attempts, strict=True)
                ]
            else:
                judged = self._judged(group)
                scores = score_group(
                    [
                        Attempted(check=check, tokens_used=attempt.written, max_tokens=allowed, judged=parts)
                        for check, attempt, parts in zip(found, group.attempts, judged, strict=True)
                    ],
                    genes,
                    self._book,
                )
        return [_episode(group, attempt, score) for attempt, score in zip(group.attempts, scores, strict=True)]

    def _judged(self, group: _Group) -> list[tuple[Part, ...]]:
        """The judge's parts of each attempt; where no answer could be read there is nothing to judge, and it earns nothing."""
        rule = rule_of(group.harness.reward)
        nothing: list[tuple[Part, ...]] = [() for _ in group.attempts]
        if self._judge is None or rule is None or not needs_judge(rule):
            return nothing
        decode = self._generator.codec.decode
        answered = [attempt for attempt in group.attempts if attempt.answer is not None]
        texts = [decode([t for t, own in zip(a.ids, a.mask, strict=True) if own]) for a in answered]
        judged = iter(self._judge.judge(group.task.question, texts))
        silent = tuple(Part.ok(name, 0.0, "no answer could be read") for name in self._judge.part_names)
        return [silent if attempt.answer is None else next(judged) for attempt in group.attempts]


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
    )


def _done(group: _Group, rows: list[Episode]) -> Outcome:
    return Outcome(
        item=group.item.id,
        status=OutcomeStatus.DONE,
        num_correct=sum(row.score.exact == 1.0 for row in rows),
        scores=tuple(round(row.score.value, 6) for row in rows),
        num_parsed=sum(row.answer is not None for row in rows),
        num_prompt_tokens=sum(len(row.token_ids) for row in rows) - _written(rows),
        num_output_tokens=_written(rows),
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
