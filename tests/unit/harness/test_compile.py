"""Prompts: a pure function of (harness, task, format, seed), named exactly by the serving signature."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.harness.compile import (
    changed_families,
    compile_prompt,
    compile_turns,
    retry_prompt,
    serving_format,
    serving_signature,
)
from coharness.harness.operators import set_format
from coharness.harness.templates import DISTRACTOR_LETTERS, HINTS, TEMPLATES
from coharness.records.harness import EpisodeGenes, Harness, PromptGenes, RewardGenes, SamplingGenes, TaskGene
from coharness.records.task import Pool
from coharness.tasks.builtin import BuiltinSource
from coharness.tasks.formats import CUED_FORMATS, FORMATS
from coharness.tasks.sources import TaskSources

FAMILIES = ("count", "parity", "sort")
SOURCES = TaskSources([BuiltinSource(FAMILIES, max_level=3)])
SEEDS = (3, 4)
EASIEST = {task.question: task for task in (SOURCES.make("count", 1, seed) for seed in range(3 * 6**4))}

harnesses = st.builds(
    Harness,
    tasks=st.lists(
        st.builds(
            TaskGene,
            family=st.sampled_from(FAMILIES),
            level_low=st.just(1),
            level_high=st.integers(1, 3),
            weight=st.sampled_from([0.5, 1.0]),
        ),
        max_size=3,
        unique_by=lambda gene: gene.family,
    ).map(tuple),
    sampling=st.builds(SamplingGenes, learnability=st.sampled_from([0.2, 0.8])),
    prompt=st.builds(
        PromptGenes,
        template=st.sampled_from(sorted(TEMPLATES)),
        formats=st.dictionaries(st.sampled_from(FAMILIES), st.sampled_from(CUED_FORMATS)),
        num_shots=st.integers(0, 2),
        hint=st.sampled_from(sorted(HINTS)),
    ),
    episode=st.builds(
        EpisodeGenes, retries=st.integers(0, 1), max_tokens=st.sampled_from([16, 32]), num_distractors=st.integers(0, 2)
    ),
    reward=st.builds(RewardGenes, format=st.sampled_from([0.0, 0.5])),
)


def what_is_run(harness: Harness, family: str) -> list[object]:
    """All that a family's episodes depend on: prompts of some tasks, how they are read, and the budget."""
    fmt = serving_format(harness, SOURCES, family)
    tasks = [SOURCES.make(family, 2, seed) for seed in SEEDS]
    prompts = [compile_prompt(harness, task, fmt, SOURCES, seed) for task in tasks for seed in SEEDS]
    turns = [compile_turns(harness, task, fmt, SOURCES, seed) for task in tasks for seed in SEEDS]
    return [fmt, prompts, turns, harness.episode.max_tokens, harness.episode.retries]


@settings(max_examples=60, deadline=None)
@given(a=harnesses, b=harnesses, family=st.sampled_from(FAMILIES))
def test_signatures_are_equal_exactly_where_prompts_and_budgets_are(a: Harness, b: Harness, family: str) -> None:
    # Half of the pairs differ in training genes alone; two free draws would almost never be the same computation.
    for other in (b, replace(b, prompt=a.prompt, episode=a.episode), replace(a, prompt=b.prompt)):
        signatures = [serving_signature(h, family, serving_format(h, SOURCES, family)) for h in (a, other)]
        assert (signatures[0] == signatures[1]) == (what_is_run(a, family) == what_is_run(other, family))


@settings(max_examples=60, deadline=None)
@given(a=harnesses, b=harnesses)
def test_changed_families_are_those_whose_evaluation_differs(a: Harness, b: Harness) -> None:
    for other in (b, replace(a, prompt=replace(a.prompt, formats=b.prompt.formats))):
        differing = tuple(f for f in FAMILIES if what_is_run(a, f) != what_is_run(other, f))
        assert changed_families(a, other, SOURCES) == differing


def test_a_family_without_a_format_is_served_in_its_sources_first() -> None:
    harness = Harness(tasks=())
    assert serving_format(harness, SOURCES, "count") == "plain"
    assert changed_families(harness, set_format(harness, "count", "plain"), SOURCES) == ()
    assert changed_families(harness, set_format(harness, "count", "trace"), SOURCES) == ("count",)


@settings(max_examples=50, deadline=None)
@given(harness=harnesses, family=st.sampled_from(FAMILIES), seed=st.integers(0, 2**62))
def test_a_prompt_is_the_same_wherever_it_is_compiled(harness: Harness, family: str, seed: int) -> None:
    task = SOURCES.make(family, 2, 5)
    elsewhere = TaskSources([BuiltinSource(FAMILIES, max_level=3)])
    assert compile_prompt(harness, task, "trace", SOURCES, seed) == compile_prompt(
        harness, task, "trace", elsewhere, seed
    )


def prompt(seed: int = 0, family: str = "count", fmt: str = "plain", **genes: object) -> str:
    prompt_genes = {k: v for k, v in genes.items() if k in PromptGenes.__dataclass_fields__}
    episode_genes = {k: v for k, v in genes.items() if k not in prompt_genes}
    harness = Harness(tasks=(), prompt=PromptGenes(**prompt_genes), episode=EpisodeGenes(**episode_genes))  # type: ignore[arg-type]
    return compile_prompt(harness, SOURCES.make(family, 2, 7), fmt, SOURCES, seed)


def test_the_bare_prompt_is_the_question_and_the_cue() -> None:
    question = SOURCES.make("count", 2, 7).question
    assert prompt() == f"{question}="
    assert prompt(fmt="trace") == f"{question}>"
    assert prompt(template="twice") == f"{question} {question}="
    assert prompt(template="bracketed") == f"({question})="
    assert prompt(template="cue_first") == f"={question}="
    assert prompt(hint="steps") == f"steps {question}="


def test_a_chat_prompt_asks_by_the_formats_instruction() -> None:
    question = SOURCES.make("count", 2, 7).question
    instruction = FORMATS["trace"].instruction
    assert prompt(fmt="trace", template="chat") == f"{question}\n{instruction}"
    assert prompt(fmt="trace", template="chat_instruction_first") == f"{instruction}\n{question}"


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**62), count=st.integers(1, 4))
def test_distractors_are_letters_that_no_question_uses(seed: int, count: int) -> None:
    word, _, rest = prompt(seed, num_distractors=count).partition(" ")
    assert len(word) == count
    assert set(word) <= set(DISTRACTOR_LETTERS)
    assert rest == prompt()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**62), fmt=st.sampled_from(CUED_FORMATS))
def test_worked_examples_are_easiest_search_tasks_of_the_family_answered_in_the_format(seed: int, fmt: str) -> None:
    *shots, last = prompt(seed, fmt=fmt, num_shots=2).split("\n")
    assert last == prompt(fmt=fmt)
    assert len(shots) == 2
    cue = FORMATS[fmt].cue
    for shot in shots:
        task = EASIEST[shot.split(cue)[0]]
        assert task.pool is Pool.SEARCH
        assert shot == f"{task.question}{cue}{task.references[fmt]}"


def test_examples_as_turns_are_questions_with_answers_in_the_format_and_the_prompt_is_one_more_of_them() -> None:
    task = SOURCES.make("count", 2, 1)
    shown = PromptGenes(template="chat_turns", formats={}, num_shots=2, hint="none")
    told = replace(shown, num_shots=0)
    for genes, num_turns in ((shown, 2), (told, 0)):
        harness = Harness(
            tasks=(), sampling=SamplingGenes(), prompt=genes, episode=EpisodeGenes(), reward=RewardGenes()
        )
        turns = compile_turns(harness, task, "plain", SOURCES, 5)
        prompt = compile_prompt(harness, task, "plain", SOURCES, 5)
        assert len(turns) == num_turns
        assert [
            (question, answer) for question, answer in turns if EASIEST[question].references["plain"] != answer
        ] == []
        # Where nothing shows the format it has to be told.
        assert (FORMATS["plain"].instruction in prompt) is (num_turns == 0)
        assert prompt.startswith(task.question)


def test_a_retry_tells_nothing_about_the_task() -> None:
    for fmt in FORMATS.values():
        raw, chat = (Harness(tasks=(), prompt=PromptGenes(template=t)) for t in ("bare", "chat"))
        assert retry_prompt(raw, fmt.name) == fmt.cue
        assert retry_prompt(chat, fmt.name) == f"No answer was found. {fmt.instruction}"
