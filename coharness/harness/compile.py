"""Compile a harness and a task into the prompt that the policy reads.

Pure: the prompt is a function of (harness, task, format, item seed), so two workers that run the same item write the same
tokens. `serving_signature` names the part of a harness that this function depends on.
"""

import numpy as np

from coharness.harness.templates import DISTRACTOR_LETTERS, HINTS, TEMPLATES, TURNS
from coharness.records.harness import Harness
from coharness.records.ids import content_hash, derive_seed
from coharness.records.task import Pool, Task
from coharness.tasks.draw import draw_task
from coharness.tasks.formats import FORMATS
from coharness.tasks.sources import TaskSources


def serving_format(harness: Harness, sources: TaskSources, family: str) -> str:
    """The answer format that the harness serves `family` in."""
    return harness.prompt.formats.get(family) or sources.families[family].formats[0]


def serving_signature(harness: Harness, family: str, answer_format: str) -> str:
    """Names everything about a harness that one family's episodes depend on when it serves in `answer_format`.

    Two harnesses with the same signature give the policy the same prompts and the same budget, so their episodes are
    draws of one and the same experiment: evidence is shared, and in a paired greedy test they tie by construction.
    """
    prompt, episode = harness.prompt, harness.episode
    return content_hash(
        [
            family,
            answer_format,
            prompt.template,
            prompt.hint,
            prompt.num_shots,
            episode.retries,
            episode.max_tokens,
            episode.num_distractors,
        ],
        12,
    )


def changed_families(a: Harness, b: Harness, sources: TaskSources) -> tuple[str, ...]:
    """Families whose evaluation differs between two harnesses, in name order."""
    return tuple(
        family
        for family in sorted(sources.families)
        if serving_signature(a, family, serving_format(a, sources, family))
        != serving_signature(b, family, serving_format(b, sources, family))
    )


def compile_prompt(harness: Harness, task: Task, answer_format: str, sources: TaskSources, seed: int) -> str:
    """The text of the first turn.

    Args:
        harness: the genome.
        task: the problem.
        answer_format: name of the format the answer is asked for in.
        sources: where worked examples come from (SEARCH tasks of the same family at its easiest level).
        seed: the item's seed; fixes the examples and the distractors.
    """
    rng = np.random.default_rng(derive_seed(seed, "prompt"))
    letters = rng.choice(list(DISTRACTOR_LETTERS), size=harness.episode.num_distractors)
    distractors = "".join(letters) + " " if harness.episode.num_distractors else ""
    return _fill(
        harness, task, answer_format, "".join(_shots(harness, task, answer_format, sources, seed)), distractors
    )


def compile_turns(
    harness: Harness, task: Task, answer_format: str, sources: TaskSources, seed: int
) -> list[tuple[str, str]]:
    """Turns that went before the prompt, each a user's text and the answer to it; none but under the template of that kind.

    The arguments are those of `compile_prompt`.
    """
    if harness.prompt.template != TURNS:
        return []
    return [
        (_fill(harness, example, answer_format, "", ""), example.references[answer_format])
        for example in _examples(harness, task, sources, seed)
    ]


def retry_prompt(harness: Harness, answer_format: str) -> str:
    """The text of a further turn, after no answer could be read; it tells nothing about correctness."""
    fmt = FORMATS[answer_format]
    return f"No answer was found. {fmt.instruction}" if harness.prompt.template.startswith("chat") else fmt.cue


def _shots(harness: Harness, task: Task, answer_format: str, sources: TaskSources, seed: int) -> list[str]:
    fmt = FORMATS[answer_format]
    shots = []
    for example in _examples(harness, task, sources, seed):
        reference = example.references[answer_format]
        if fmt.instruction and harness.prompt.template.startswith("chat"):
            shots.append(f"Question: {example.question}\n{reference}\n\n")
        else:
            shots.append(f"{example.question}{fmt.cue}{reference}\n")
    return shots


def _examples(harness: Harness, task: Task, sources: TaskSources, seed: int) -> list[Task]:
    return [
        draw_task(sources, task.family, 1, Pool.SEARCH, derive_seed(seed, "shot", index))
        for index in range(harness.prompt.num_shots)
    ]


def _fill(harness: Harness, task: Task, answer_format: str, shots: str, distractors: str) -> str:
    fmt = FORMATS[answer_format]
    # Answers that went before show the format; told as well, a small model talks about it instead of answering.
    shown = harness.prompt.template == TURNS and harness.prompt.num_shots > 0
    return (
        TEMPLATES[harness.prompt.template]
        .format(
            shots=shots,
            distractors=distractors,
            hint=HINTS[harness.prompt.hint],
            question=task.question,
            cue=fmt.cue,
            instruction="" if shown else fmt.instruction,
        )
        .removesuffix("\n" if shown else "")
    )
