"""`coharness base`: build the tiny base, fetch SmolLM2, show what a base is.

Composes the built-in tasks with the tiny base's recipe, which knows no tasks itself. The tiny base learns the two easiest
levels of each family, mostly in the plain format, so that a run has both a start and something left to learn. It sees SEARCH
tasks alone: what a report seals was not in its training either.
"""

import itertools
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from coharness.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from coharness.policy.bases import LoadedBase

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Bases that policies start from: build, fetch, show.",
)

_STEPS: Final = 2_000
_ROWS: Final = 64
_LEVELS: Final = (1, 1, 2)
"""A level is drawn from these: two thirds easiest."""
_PLAIN_SHARE: Final = 0.70
_TRACE_SHARE: Final = 0.15
"""One scratchpad format is met often enough to be understood on easy tasks; what it is good for is left to be found out."""
_SHOWN_LEVELS: Final = (1, 2, 3, 4)
_BAR: Final = 0.9
_NUM_FAMILIES_AT_BAR: Final = 4


def build_rows(seed: int, rows: int = _ROWS) -> Iterator[list[tuple[str, str]]]:
    """Endless batches of (question and cue, reference) of SEARCH tasks for the tiny base; a pure function of `seed`."""
    from coharness.records.task import Pool
    from coharness.tasks.builtin import FAMILY_NAMES, BuiltinSource
    from coharness.tasks.formats import CUED_FORMATS, FORMATS

    source, rng = BuiltinSource(), random.Random(seed)
    plain, trace, *others = CUED_FORMATS
    while True:
        batch: list[tuple[str, str]] = []
        while len(batch) < rows:
            task = source.make(rng.choice(FAMILY_NAMES), rng.choice(_LEVELS), rng.getrandbits(62))
            if task.pool is Pool.SEARCH:
                u = rng.random()
                name = plain if u < _PLAIN_SHARE else trace if u < _PLAIN_SHARE + _TRACE_SHARE else rng.choice(others)
                batch.append((task.question + FORMATS[name].cue, task.references[name]))
        yield batch


def greedy_accuracy(base: "LoadedBase", tasks_per_cell: int) -> dict[tuple[str, int, str], float]:
    """Share of correct greedy answers for each (family, level, format), over TRACK tasks, which no base trains on."""
    from coharness.policy.bases import base_weights_ref
    from coharness.policy.generation.decode import decode
    from coharness.records.protocols import GenerationRequest
    from coharness.records.task import Pool
    from coharness.tasks.builtin import FAMILY_NAMES, BuiltinSource
    from coharness.tasks.formats import CUED_FORMATS, FORMATS

    source, weights = BuiltinSource(), base_weights_ref(base)
    accuracy: dict[tuple[str, int, str], float] = {}
    for family in FAMILY_NAMES:
        for level in _SHOWN_LEVELS:
            drawn = (source.make(family, level, seed) for seed in itertools.count())
            tasks = list(itertools.islice((task for task in drawn if task.pool is Pool.TRACK), tasks_per_cell))
            for name in CUED_FORMATS:
                requests = [
                    GenerationRequest(
                        prompt_ids=tuple(base.codec.encode_prompt(task.question + FORMATS[name].cue)),
                        weights=weights,
                        seed=0,
                        position=0,
                        temperature=0.0,
                        max_new_tokens=len(task.references[name]) + 8,
                    )
                    for task in tasks
                ]
                written = decode(base.model, requests, eos_id=base.codec.eos_id, max_context=base.spec.max_context)
                answers = [FORMATS[name].extract(base.codec.decode(generation.output_ids)) for generation in written]
                right = sum(answer == task.answer for answer, task in zip(answers, tasks, strict=True))
                accuracy[family, level, name] = right / len(tasks)
    return accuracy


@app.command()
def build(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Only `tiny` can be built.", show_default=False)],
    out: Annotated[Path | None, typer.Option("--out", help="Folder; beside the quickstart where left out.")] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Optimizer steps of 64 rows.")] = _STEPS,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the initial weights and the rows.")] = 0,
    tasks: Annotated[int, typer.Option("--tasks", min=1, max=150, help="Tasks a cell of the accuracy table.")] = 100,
) -> None:
    """Build a base from text alone and measure it; replaces the one that is there."""
    if name != "tiny":
        raise typer.BadParameter(f"got {name!r}, expected tiny (smollm2 is fetched: coharness base fetch smollm2)")
    path = _checked_folder(out)
    import torch
    import transformers
    from transformers.utils.logging import disable_progress_bar

    from coharness.policy.tiny import build_tokenizer, save_base, train_tiny

    disable_progress_bar()
    began = time.process_time()

    def report(step: int, loss: float) -> None:
        if step % 100 == 0 or step == steps:
            typer.echo(f"step {step}/{steps}  loss {loss:.3f}  cpu {time.process_time() - began:.0f} s", err=True)

    model = train_tiny(build_rows(seed), num_steps=steps, seed=seed, progress=report)
    command = f"OMP_NUM_THREADS=1 coharness base build tiny --steps {steps} --seed {seed}"
    recipe = {
        "command": command,
        "seed": seed,
        "num_steps": steps,
        "rows_per_step": _ROWS,
        "cpu_s": round(time.process_time() - began),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    save_base(model, build_tokenizer(), path, recipe)
    accuracy = _write_record(path, recipe, tasks)
    good = [
        family
        for family, level, name in accuracy
        if (level, name) == (1, "plain") and accuracy[family, 1, "plain"] >= _BAR
    ]
    typer.echo(f"{path}  {len(good)} families at {_BAR:.0%} or more on level 1: {', '.join(good)}")
    if len(good) < _NUM_FAMILIES_AT_BAR:
        typer.echo(f"error: expected {_NUM_FAMILIES_AT_BAR} families at the bar; raise --steps", err=True)
        raise typer.Exit(ExitCode.CHECK_FAILED)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Only `smollm2` is fetched.", show_default=False)],
    cache_dir: Annotated[
        Path | None, typer.Option("--cache-dir", help="Folder of all bases; ~/.cache/coharness/bases where left out.")
    ] = None,
) -> None:
    """Get a base that is not in the repository, convert it, and print its folder; at once if it is there."""
    if name != "smollm2":
        raise typer.BadParameter(f"got {name!r}, expected smollm2 (tiny is built: coharness base build tiny)")
    from coharness.policy.smollm2 import fetch_smollm2

    typer.echo(fetch_smollm2(cache_dir))


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="tiny, smollm2 or a folder.")] = "tiny",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Check a base and say what it is; loads no model."""
    from coharness.policy.bases import resolve_base

    spec = resolve_base(name)
    facts = {
        "name": spec.name,
        "path": str(spec.path),
        "digest": spec.digest,
        "kind": "chat" if spec.is_chat else "raw",
        "parameters": spec.num_parameters,
        "context": spec.max_context,
        "bytes": spec.num_bytes,
    }
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for key, value in facts.items():
        typer.echo(f"{key:<12}{value}")


def _write_record(path: Path, recipe: dict[str, object], tasks: int) -> dict[tuple[str, int, str], float]:
    """Measure the base in `path` and write base.json and BASE.md; returns the accuracy table."""
    from coharness.policy.bases import load_base, resolve_base

    base = load_base(resolve_base(str(path)))
    # The digest covers weights, configuration and tokenizer, not this file; so it can stand in it.
    recipe = recipe | {
        "digest": base.spec.digest,
        "num_parameters": base.spec.num_parameters,
        "num_bytes": base.spec.num_bytes,
    }
    (path / "base.json").write_text(json.dumps(recipe, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    accuracy = greedy_accuracy(base, tasks)
    (path / "BASE.md").write_text(_describe(recipe, accuracy, tasks), encoding="utf-8")
    return accuracy


def _checked_folder(out: Path | None) -> Path:
    """Where the tiny base goes; refused now, and not after minutes of training, where something else lies there."""
    from coharness.policy.bases import tiny_path

    path = tiny_path() if out is None else out
    if path.exists() and not (path / "base.json").is_file():
        raise typer.BadParameter(f"{path} is there and holds no base.json; name a new folder, or one that holds a base")
    return path


def _describe(recipe: dict[str, object], accuracy: dict[tuple[str, int, str], float], tasks: int) -> str:
    formats = list(dict.fromkeys(name for _, _, name in accuracy))
    lines = [
        "# The tiny base",
        "",
        f"A Llama of {recipe['num_parameters']:,} parameters with one token a character, trained by supervision on the two "
        "easiest levels of the built-in families: "
        f"{_PLAIN_SHARE:.0%} of the rows in the plain format, {_TRACE_SHARE:.0%} in the trace format, the rest spread over the "
        "other five, SEARCH tasks only.",
        "",
        f"- Rebuild: `{recipe['command']}` ({recipe['cpu_s']} s of CPU on one core)",
        f"- Digest: `{recipe['digest']}` (weights, configuration, tokenizer; another CPU or library may round otherwise)",
        f"- Made with torch {recipe['torch']}, transformers {recipe['transformers']}",
        "",
        f"Share of correct greedy answers, {tasks} TRACK tasks a cell, none of them trained on:",
        "",
        "| family | level | " + " | ".join(formats) + " |",
        "|---|---|" + "---|" * len(formats),
    ]
    for family, level in dict.fromkeys((f, n) for f, n, _ in accuracy):
        shares = " | ".join(f"{accuracy[family, level, name]:.2f}" for name in formats)
        lines.append(f"| {family} | {level} | {shares} |")
    return "\n".join(lines) + "\n"
