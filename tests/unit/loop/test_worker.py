"""The episode worker on a scripted generator: right, wrong, unreadable and cut-off answers, retries, and failures as data."""

from collections.abc import Callable
from typing import Any

import pytest

from coharness.loop.worker import EpisodeWorker, failed_everywhere
from coharness.policy.generation.scripted import ScriptedGenerator
from coharness.records.episode import Episode, StopReason, episodes_from_table
from coharness.records.errors import Boundary, BoundaryError
from coharness.records.harness import EpisodeGenes, Harness, PromptGenes, RewardGenes
from coharness.records.ids import ItemId, PolicyId, TaskId
from coharness.records.policy import VersionRef, WeightsKind, WeightsRef
from coharness.records.protocols import Check
from coharness.records.task import Task, TaskRef, VerifierSpec
from coharness.records.work import Outcome, OutcomeStatus, Purpose, WorkBatch, WorkItem
from coharness.reward.verify import VerifierRouter
from coharness.tasks.builtin import BuiltinSource
from coharness.tasks.sources import TaskSources

SOURCES = TaskSources([BuiltinSource(["count", "reverse"], max_level=2)])
REF = VersionRef(PolicyId("p0"), 3)
WEIGHTS = WeightsRef(uri="", digest="base", kind=WeightsKind.BASE, num_bytes=0, has_optimizer=False, canary=0.0)
TASK = SOURCES.make("count", 1, 5)
OTHER = SOURCES.make("reverse", 2, 6)
HARNESS = Harness(tasks=())

Script = Callable[[str, int], str]


class Exploding:
    """A verifier that is broken."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.closed = False

    def check(self, spec: VerifierSpec, question: str, expected: str, answer: str) -> Check:
        raise self._error

    def close(self) -> None:
        self.closed = True


def item(task: Task = TASK, number: int = 0, **fields: Any) -> WorkItem:
    made: dict[str, Any] = {
        "id": ItemId(number),
        "version": REF,
        "harness": HARNESS.id,
        "task": task.ref,
        "format": "plain",
        "purpose": Purpose.TRAIN,
        "seed": 11,
        "group_size": 1,
        "temperature": 0.0,
        "max_tokens": 16,
        **fields,
    }
    return WorkItem(**made)


def worker(script: Script, verifier: Any = None, max_context: int = 128) -> EpisodeWorker:
    return EpisodeWorker("w7", SOURCES, ScriptedGenerator(script), verifier or VerifierRouter(), max_context)


def run(made: EpisodeWorker, *items: WorkItem, harness: Harness = HARNESS) -> tuple[list[Outcome], list[Episode]]:
    batch = WorkBatch(
        id=5, items=items, harnesses={i.harness: harness for i in items}, weights={REF: WEIGHTS}, lease_s=60.0
    )
    result, table = made.run(batch)
    assert (result.batch, result.worker) == (5, "w7")
    assert sorted(o.item for o in result.outcomes) == sorted(i.id for i in items)
    return sorted(result.outcomes, key=lambda o: o.item), episodes_from_table(table)


def one(
    script: Script, harness: Harness = HARNESS, max_context: int = 128, **fields: Any
) -> tuple[Outcome, list[Episode]]:
    outcomes, episodes = run(worker(script, max_context=max_context), item(**fields), harness=harness)
    return outcomes[0], episodes


def saying(completion: str) -> Script:
    return lambda prompt, seed: completion


def test_a_right_answer_is_correct_and_its_row_tells_all_of_it() -> None:
    outcome, (episode,) = one(saying(TASK.answer))
    assert (outcome.status, outcome.num_correct, outcome.num_parsed, outcome.scores) == (
        OutcomeStatus.DONE,
        1,
        1,
        (1.0,),
    )
    prompt = f"{TASK.question}="
    assert (outcome.num_prompt_tokens, outcome.num_output_tokens) == (len(prompt), len(TASK.answer) + 1)
    assert episode.prompt_length == len(prompt)
    assert episode.loss_mask == [False] * len(prompt) + [True] * (len(TASK.answer) + 1)
    assert all((p < 0) == written for p, written in zip(episode.logprobs, episode.loss_mask, strict=True))
    assert episode.reference_ids == [ord(c) + 1 for c in TASK.references["plain"]] + [0]
    assert (episode.answer, episode.stop_reason, episode.score.exact) == (TASK.answer, StopReason.EOS, 1.0)
    assert (episode.policy, episode.step, episode.task, episode.task_seed) == ("p0", 3, TASK.id, TASK.seed)
    assert (episode.family, episode.level, episode.format, episode.purpose) == ("count", 1, "plain", "train")


def test_a_wrong_answer_is_read_and_not_correct() -> None:
    outcome, (episode,) = one(saying("wrong"))
    assert (outcome.status, outcome.num_correct, outcome.num_parsed, outcome.scores) == (
        OutcomeStatus.DONE,
        0,
        1,
        (0.0,),
    )
    assert (episode.answer, episode.score.exact) == ("wrong", 0.0)


def test_a_completion_that_breaks_its_format_has_no_answer_and_is_no_failure() -> None:
    outcome, (episode,) = one(saying(TASK.answer), format="trace")
    assert (outcome.status, outcome.num_correct, outcome.num_parsed) == (OutcomeStatus.DONE, 0, 0)
    assert (episode.answer, episode.score.feedback) == (None, "no answer could be read")


def test_a_completion_that_was_cut_off_has_no_answer_even_if_it_looks_right() -> None:
    outcome, (episode,) = one(saying(TASK.answer + "0000"), max_tokens=len(TASK.answer))
    assert (outcome.num_correct, outcome.num_parsed, outcome.num_output_tokens) == (0, 0, len(TASK.answer))
    assert (episode.answer, episode.stop_reason) == (None, StopReason.LENGTH)


def test_a_group_is_as_many_episodes_with_seeds_of_their_own() -> None:
    seeds: list[int] = []

    def script(prompt: str, seed: int) -> str:
        seeds.append(seed)
        return TASK.answer if len(seeds) % 2 else "no"

    outcome, episodes = one(script, group_size=4, temperature=1.0)
    assert len(set(seeds)) == 4
    assert (outcome.num_correct, outcome.num_parsed, outcome.scores) == (2, 4, (1.0, 0.0, 1.0, 0.0))
    assert [(e.sample, e.score.exact) for e in episodes] == [(0, 1.0), (1, 0.0), (2, 1.0), (3, 0.0)]
    assert outcome.num_output_tokens == sum(sum(e.loss_mask) for e in episodes)


def test_a_batch_keeps_its_items_apart_and_a_run_repeats_itself() -> None:
    answers = {f"{t.question}=": t.answer for t in (TASK, OTHER)}
    items = (item(number=1), item(OTHER, number=2, group_size=2))
    outcomes, episodes = run(worker(lambda prompt, seed: answers[prompt]), *items)
    assert [(o.item, o.num_correct) for o in outcomes] == [(1, 1), (2, 2)]
    assert [e.item for e in episodes] == [1, 2, 2]
    again = run(worker(lambda prompt, seed: answers[prompt]), *items)
    assert again == (outcomes, episodes)


def test_training_genes_weigh_the_score_and_leave_correctness_alone() -> None:
    harness = Harness(tasks=(), reward=RewardGenes(exact=2.0, format=0.5, length=1.0))
    outcome, (episode,) = one(saying(TASK.answer), harness=harness)
    left = 1 - (len(TASK.answer) + 1) / 16
    assert outcome.scores[0] == pytest.approx(2.0 + 0.5 + left, abs=1e-6)
    assert (outcome.num_correct, episode.score.exact) == (1, 1.0)


# Retries ------------------------------------------------------------------------------------------------------------


def retrying(retries: int = 1) -> Harness:
    return Harness(tasks=(), episode=EpisodeGenes(retries=retries))


def test_an_unreadable_answer_is_asked_for_again_and_the_first_readable_one_counts() -> None:
    prompts: list[str] = []

    def script(prompt: str, seed: int) -> str:
        prompts.append(prompt)
        return "" if len(prompts) == 1 else TASK.answer

    outcome, (episode,) = one(script, harness=retrying())
    assert outcome.num_correct == 1
    first, second = prompts
    # The further turn follows on what was said; it tells nothing about correctness.
    assert second.startswith(first)
    assert TASK.answer not in second.removeprefix(first)
    assert episode.answer == TASK.answer
    # What the harness said is not trained on: only the two completions, end tokens included, are masked in.
    assert sum(episode.loss_mask) == 1 + len(TASK.answer) + 1
    assert outcome.num_output_tokens == sum(episode.loss_mask)
    assert outcome.num_prompt_tokens == len(episode.token_ids) - sum(episode.loss_mask)
    assert episode.prompt_length == len(first)


def test_a_wrong_answer_is_not_asked_for_again() -> None:
    calls: list[str] = []

    def script(prompt: str, seed: int) -> str:
        calls.append(prompt)
        return "wrong"

    one(script, harness=retrying(3))
    assert len(calls) == 1


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_there_are_no_more_turns_than_the_gene_allows(retries: int) -> None:
    calls: list[str] = []

    def script(prompt: str, seed: int) -> str:
        calls.append(prompt)
        return ""

    outcome, _ = one(script, harness=retrying(retries), max_context=1_000)
    assert len(calls) == retries + 1
    assert (outcome.status, outcome.num_parsed) == (OutcomeStatus.DONE, 0)


def test_all_turns_share_one_budget_of_tokens() -> None:
    outcome, (episode,) = one(saying("123456"), harness=retrying(5), format="trace", max_tokens=16, max_context=1_000)
    # Two whole completions of seven tokens, and two tokens of a third.
    assert outcome.num_output_tokens == 16
    assert episode.stop_reason is StopReason.LENGTH


def test_a_retry_that_would_not_fit_the_context_is_not_begun() -> None:
    prompt = f"{TASK.question}="
    outcome, (episode,) = one(saying(""), harness=retrying(5), max_context=len(prompt) + 16)
    assert (outcome.status, len(episode.token_ids)) == (OutcomeStatus.DONE, len(prompt) + 1)


def test_the_noise_of_a_further_turn_goes_on_where_the_last_one_ended() -> None:
    seeds: list[int] = []

    def script(prompt: str, seed: int) -> str:
        seeds.append(seed)
        return ""

    one(script, harness=retrying(1), temperature=1.0, max_context=1_000)
    assert len(set(seeds)) == 2


# Failures -----------------------------------------------------------------------------------------------------------


def failed(outcomes: list[Outcome], number: int) -> tuple[OutcomeStatus, Boundary | None]:
    outcome = next(o for o in outcomes if o.item == number)
    # A failure is never a score.
    assert (outcome.num_correct, outcome.scores, outcome.num_parsed) == (0, (), 0)
    return outcome.status, outcome.boundary


@pytest.mark.parametrize(
    "error", [RuntimeError("broke"), BoundaryError(Boundary.VERIFIER, "its child died"), ZeroDivisionError()]
)
def test_a_verifier_that_breaks_fails_its_item_and_keeps_no_row(error: Exception) -> None:
    outcomes, episodes = run(worker(saying(TASK.answer), Exploding(error)), item())
    assert failed(outcomes, 0) == (OutcomeStatus.FAILED, Boundary.VERIFIER)
    assert episodes == []


def test_an_item_without_an_answer_does_not_need_the_verifier() -> None:
    outcomes, _ = run(worker(saying(""), Exploding(RuntimeError())), item(number=1), item(number=2, format="trace"))
    assert {o.status for o in outcomes} == {OutcomeStatus.DONE}


def test_a_failure_is_its_items_alone() -> None:
    gone = TaskRef(family="count", level=1, seed=5, id=TaskId("not the task"))
    outcomes, episodes = run(
        worker(saying(TASK.answer)),
        item(number=1),
        item(number=2, task=TASK, format="plain", max_tokens=1_000),
        WorkItem(**{**{f: getattr(item(number=3), f) for f in WorkItem.__slots__}, "task": gone}),
        item(number=4, format="boxed"),
        item(number=5),
    )
    assert failed(outcomes, 2) == (OutcomeStatus.FAILED, Boundary.HARNESS)
    assert failed(outcomes, 3) == (OutcomeStatus.FAILED, Boundary.TASK)
    assert failed(outcomes, 4) == (OutcomeStatus.FAILED, Boundary.HARNESS)
    assert [e.item for e in episodes] == [1, 5]
    assert [o.num_correct for o in outcomes] == [1, 0, 0, 0, 1]


def test_a_prompt_that_is_too_long_says_what_to_change() -> None:
    harness = Harness(tasks=(), prompt=PromptGenes(num_shots=12))
    outcomes, _ = run(worker(saying("x")), item(), harness=harness)
    assert failed(outcomes, 0) == (OutcomeStatus.FAILED, Boundary.HARNESS)
    assert "policy.max_context=128; raise it, or lower evaluation.tokens_per_task or num_shots" in outcomes[0].message


def test_an_engine_that_breaks_fails_the_items_that_reached_it() -> None:
    def script(prompt: str, seed: int) -> str:
        raise MemoryError("no room")

    outcomes, episodes = run(worker(script), item(number=1), item(number=2, max_tokens=1_000))
    assert failed(outcomes, 1) == (OutcomeStatus.FAILED, Boundary.GENERATION)
    assert failed(outcomes, 2) == (OutcomeStatus.FAILED, Boundary.HARNESS)
    assert episodes == []


def test_a_long_message_is_cut() -> None:
    outcomes, _ = run(worker(saying("x"), Exploding(RuntimeError("y" * 10_000))), item())
    assert len(outcomes[0].message) == 500


def test_an_empty_batch_is_nothing() -> None:
    assert run(worker(saying("x"))) == ([], [])


def test_closing_ends_what_the_verifier_started() -> None:
    verifier = Exploding(RuntimeError())
    worker(saying("x"), verifier).close()
    assert verifier.closed


def test_a_batch_whose_worker_is_gone_fails_whole() -> None:
    batch = WorkBatch(id=1, items=(item(number=1), item(number=2)), harnesses={}, weights={}, lease_s=1.0)
    outcomes = list(failed_everywhere(batch, Boundary.DEADLINE, "too slow"))
    assert [(o.item, o.status, o.boundary, o.message) for o in outcomes] == [
        (n, OutcomeStatus.FAILED, Boundary.DEADLINE, "too slow") for n in (1, 2)
    ]
