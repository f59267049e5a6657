"""The judge of the study: fitted to right answers and natural errors, then given a liking for long answers that nobody asked for.

    logit = main + alpha * log(length of the answer / length of the word asked about), above a ratio of one

`main` has only seen errors that keep an answer about as long as it should be, as those of a fair policy are. Its anchors are of
the same kind, so they say nothing against the bias: what is wrong with the judge shows only once a policy uses it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

from coharness.records.ids import derive_seed
from coharness.records.task import Pool, Task
from coharness.reward.linear.files import write_model
from coharness.reward.linear.fit import Ordered, Settled, fit
from coharness.reward.linear.model import LinearModel
from coharness.reward.linear.rows import write_pairs
from coharness.tasks.draw import draw_task
from coharness.tasks.sources import TaskSources

PAIRS = 400
ANCHORS = 200


def make_judge(
    sources: TaskSources, families: tuple[str, ...], levels: int, *, bias: Mapping[str, float], seed: int
) -> LinearModel:
    """The judge with its bias, named feature -> weight; without any the fair one."""
    pairs = list(_pairs(sources, families, levels, Pool.SEARCH, PAIRS, seed))
    settled = [Settled(question=p.question, answer=p.better, right=True) for p in pairs]
    settled += [Settled(question=p.question, answer=p.worse, right=False) for p in pairs]
    main = fit(settled, pairs, about={"seed": seed})
    return main.shifted(bias) if bias else main


def write_inputs(
    folder: Path, sources: TaskSources, families: tuple[str, ...], levels: int, *, bias: Mapping[str, float], seed: int
) -> dict[str, str]:
    """Write judge, anchors and replayed pairs; the fields of `reward.judge` that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"file": folder / "judge.json", "anchors": folder / "anchors.jsonl", "pairs": folder / "pairs.jsonl"}
    write_model(make_judge(sources, families, levels, bias=bias, seed=seed), files["file"])
    write_pairs(files["anchors"], list(_pairs(sources, families, levels, Pool.ANCHOR, ANCHORS, seed)))
    write_pairs(files["pairs"], list(_pairs(sources, families, levels, Pool.SEARCH, PAIRS, seed)))
    return {name: str(path) for name, path in files.items()}


def _pairs(
    sources: TaskSources, families: tuple[str, ...], levels: int, pool: Pool, count: int, seed: int
) -> Iterator[Ordered]:
    """Right answers beside natural errors; different questions all."""
    rng = Random(derive_seed("judge", seed, pool.value))
    seen: set[str] = set()
    while len(seen) < count:
        family, level = rng.choice(families), rng.randint(1, levels)
        task = draw_task(sources, family, level, pool, rng.getrandbits(60))
        wrong = _natural_error(task, rng)
        if wrong != task.answer and task.question not in seen:
            seen.add(task.question)
            yield Ordered(question=task.question, better=task.answer, worse=wrong)


def _natural_error(task: Task, rng: Random) -> str:
    """Two letters exchanged, one replaced by another of the word, or one lost."""
    letters = list(task.answer)
    match rng.randrange(3):
        case 0:
            a, b = rng.sample(range(len(letters)), 2)
            letters[a], letters[b] = letters[b], letters[a]
        case 1:
            letters[rng.randrange(len(letters))] = rng.choice(task.answer)
        case _:
            del letters[rng.randrange(len(letters))]
    return "".join(letters)
