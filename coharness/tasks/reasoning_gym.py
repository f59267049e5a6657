"""Families of the reasoning-gym package (Stojanovski et al., 2025), with their curricula as levels.

Level k sets every attribute of a family's curriculum to its level k - 1, capped at the attribute's last one; a family
without a curriculum has one level. A task is entry 0 of the dataset built with the task's seed, so that (family, level,
seed) is the whole recipe and a scorer elsewhere rebuilds the very entry from it.

The package's scorers execute the answer's text. They are never called here: a task carries a VerifierSpec, and
`coharness.reward.verify` runs them in a guarded process. Without `partial_credit` they do not run at all.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from decimal import Context, localcontext
from difflib import get_close_matches
from typing import Any

from coharness.config.schema import ReasoningGymTasks
from coharness.records.errors import Boundary, TaskError, boundary
from coharness.records.task import MIN_TASKS_TO_SEAL, FamilySpec, Task, VerifierKind, VerifierSpec, task_id
from coharness.tasks.formats import Solution, render_references

_FORMATS = ("answer_line", "stated", "boxed", "tagged")
_HASH_DEPENDENT = frozenset(
    {"isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note", "word_ladder"}
)
"""Families that iterate over sets, so that their tasks change with Python's hash seed (found on version 0.1.25)."""
_GLOBAL_RANDOM = frozenset({"codeio", "list_functions"})
"""Families that draw from the process's global generator, so that a seed does not fix their tasks."""
_FEW_TASKS: dict[str, tuple[int, ...]] = {
    "aiw": (1,), "basic_arithmetic": (1,), "caesar_cipher": (1,), "chain_sum": (1,), "coin_flip": (1, 2, 3, 4),
    "count_bits": (1,), "game_of_life_halting": (3, 4), "jugs": (1,), "leg_counting": (1, 2), "n_queens": (1, 2),
    "number_sequence": (1, 2), "palindrome_partitioning": (1,), "prime_factorization": (1,), "products": (1,),
    "quantum_lock": (1, 2, 3), "self_reference": (1, 2, 3, 4), "tower_of_hanoi": (1, 2, 3, 4),
}  # fmt: skip
"""Levels whose default settings give fewer than 2,000 distinct tasks, by the duplicates among 500 draws (version 0.1.25)."""
_DRAWS = 200
"""Tasks that are made of a level under settings of the user's own, to see whether they repeat."""
_FEW_SEEDS = 1_000
"""Such a cell is cut to this many seeds: it counts as finite and is not sealed."""


class ReasoningGymSource:
    """Chosen families of reasoning-gym."""

    def __init__(self, section: ReasoningGymTasks) -> None:
        """Offer the families of `section`; one entry of each is made, to find what is wrong before the run.

        Raises:
            TaskError: the package is missing, a family is unknown or unfit (no reference answers, or tasks that differ
                from process to process), or its parameters are refused.
        """
        try:
            from reasoning_gym.factory import DATASETS
        except ModuleNotFoundError as error:
            raise TaskError(
                "tasks of type reasoning_gym need the package reasoning-gym; install coharness-evolution[run]"
            ) from error
        for family in section.families:
            _refuse_unfit(family, DATASETS)
        stray = [family for family in section.params if family not in section.families]
        if stray or not section.families:
            raise TaskError(f"reasoning_gym: params names {stray}, families are {list(section.families)}")
        self._configs = {
            family: _level_configs(family, section.max_level, section.params.get(family, {}))
            for family in section.families
        }
        self._few = frozenset(
            (family, level)
            for family in section.families
            if family not in section.params
            for level in _FEW_TASKS.get(family, ())
        )
        self._kind = VerifierKind.REASONING_GYM if section.partial_credit else VerifierKind.EXACT
        for family in section.families:
            self.make(family, 1, 0)
        # Settings of the user's own give more or fewer tasks than the table says.
        self._few |= {
            (family, level)
            for family in section.families
            if family in section.params
            for level in range(1, len(self._configs[family]) + 1)
            if self._repeats(family, level)
        }

    def _repeats(self, family: str, level: int) -> bool:
        """Whether draws repeat as often as they would with fewer than 2,000 tasks of equal probability."""
        questions = {self.make(family, level, seed).question for seed in range(_DRAWS)}
        return _DRAWS - len(questions) >= _DRAWS**2 / (2 * MIN_TASKS_TO_SEAL)

    @property
    def families(self) -> tuple[FamilySpec, ...]:
        """The families on offer."""
        return tuple(
            FamilySpec(
                name=family,
                num_levels=len(configs),
                formats=_FORMATS,
                num_tasks=tuple(
                    _FEW_SEEDS if (family, level) in self._few else None for level in range(1, len(configs) + 1)
                ),
            )
            for family, configs in self._configs.items()
        )

    def make(self, family: str, level: int, seed: int) -> Task:
        """The task of this recipe; seeds count modulo 2**32, the widest that every dataset takes.

        Raises:
            TaskError: another family or level, or the entry has no reference answer.
            BoundaryError: the package failed to make this entry.
        """
        configs = self._configs.get(family)
        if configs is None or not 1 <= level <= len(configs):
            offered = ", ".join(f"{name} (levels 1 to {len(found)})" for name, found in self._configs.items())
            raise TaskError(f"no reasoning-gym family {family!r} with level {level} here; on offer: {offered}")
        num_seeds = _FEW_SEEDS if (family, level) in self._few else 2**32
        recipe: dict[str, Any] = {"dataset": family, "config": configs[level - 1], "seed": seed % num_seeds}
        with boundary(Boundary.TASK):
            entry = make_entry(**recipe)
        if entry["answer"] is None:
            raise TaskError(
                f"reasoning_gym family {family} gives no reference answer, so it can be neither taught nor checked exactly"
            )
        answer, question = str(entry["answer"]).strip(), str(entry["question"])
        return Task(
            id=task_id(family, level, question, answer),
            family=family,
            level=level,
            seed=seed,
            question=question,
            answer=answer,
            verifier=VerifierSpec(kind=self._kind, params=recipe if self._kind is VerifierKind.REASONING_GYM else {}),
            references=render_references(_FORMATS, Solution(answer=answer)),
            metadata=_json_safe(entry["metadata"]),
        )


def make_entry(*, dataset: str, config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Entry 0 of the dataset named `dataset` with these settings: question, answer and metadata."""
    from reasoning_gym.factory import create_dataset

    # Some datasets change the decimal precision of the process, which others' answers then depend on.
    with localcontext(Context()):
        entry: dict[str, Any] = create_dataset(dataset, **config, seed=seed, size=1)[0]
    return entry


def _refuse_unfit(family: str, known: Mapping[str, Any]) -> None:
    if family not in known:
        close = get_close_matches(family, known)
        hint = f"did you mean {' or '.join(close)}?" if close else "see the package's gallery for names"
        raise TaskError(f"reasoning_gym has no family {family!r}; {hint}")
    if family in _GLOBAL_RANDOM:
        raise TaskError(
            f"reasoning_gym family {family} draws from the process's global generator, so that a seed does not fix its tasks; "
            "choose another family"
        )
    if family in _HASH_DEPENDENT and os.environ.get("PYTHONHASHSEED", "random") == "random":
        raise TaskError(
            f"reasoning_gym family {family} makes different tasks in different processes, because it depends on Python's hash "
            "seed; set PYTHONHASHSEED=0 in the environment of every process of the run, or choose another family"
        )


def _level_configs(family: str, max_level: int, params: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Dataset settings of each level, as JSON values; a curriculum that breaks at some level ends before it.

    Raises:
        TaskError: the settings of the first level are refused.
    """
    from reasoning_gym.factory import DATASETS, create_curriculum, create_dataset, has_curriculum

    curriculum = create_curriculum(family) if has_curriculum(family) else None
    num_levels = 1
    if curriculum is not None:
        num_levels = min(max_level, max(len(attribute.levels) for attribute in curriculum.attributes.values()))
    defaults = DATASETS[family][1]()
    configs: list[dict[str, Any]] = []
    for level in range(1, num_levels + 1):
        try:
            changed: dict[str, Any] = {}
            if curriculum is not None:
                curriculum.set_global_level(level - 1)
                config = curriculum.generate_configuration({})
                changed = {
                    field.name: getattr(config, field.name)
                    for field in dataclasses.fields(config)
                    if getattr(config, field.name) != getattr(defaults, field.name)
                }
            # Through JSON here as it goes through JSON to the scorer, so that both build one dataset.
            settings = json.loads(json.dumps({**changed, **params}))
            create_dataset(family, **settings, seed=0, size=1)
        except (AssertionError, TypeError, ValueError) as error:
            if level > 1:
                break
            raise TaskError(f"reasoning_gym family {family}, level {level}, params {dict(params)}: {error}") from error
        configs.append(settings)
    return tuple(configs)


def _json_safe(value: Any) -> Any:
    """`value` with what JSON cannot hold written as text, for readers of the episode."""
    if isinstance(value, dict):
        return {str(key): _json_safe(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_json_safe(entry) for entry in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
