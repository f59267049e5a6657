"""`coharness judge`: score, compare and rank answers by a rubric through an OpenAI-compatible endpoint; check a rubric.

Items are JSON lines, results are JSON lines in the same order, and a summary goes to standard error.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from coharness.cli.exit_codes import ExitCode
from coharness.cli.judge_distil import register as register_distilling
from coharness.cli.judge_library import register as register_library
from coharness.cli.judge_linear import register as register_linear
from coharness.cli.judge_train import register as register_training
from coharness.records.errors import ConfigError
from coharness.reward.json_rows import parse_rows

if TYPE_CHECKING:
    from coharness.reward.judges.rubric_judge import RubricJudge
    from coharness.reward.training.readout_judge import ReadoutJudge

app = typer.Typer(
    name="judge",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Judge answers by a rubric: a reason before each verdict, both orders of a pair, failures that are no numbers.",
    epilog="Exit codes: 0 all items judged (for lint: no error), 2 bad rubric or items, 4 some could not be judged "
    "(for lint: an error). The results of those that could are printed all the same.",
)
Rubric = Annotated[Path, typer.Argument(metavar="RUBRIC", help="A rubric's YAML file.", show_default=False)]
Judge = Annotated[
    Path,
    typer.Argument(metavar="JUDGE", help="A rubric's YAML file, or the folder of a trained judge.", show_default=False),
]
Items = Annotated[str, typer.Argument(metavar="ITEMS", help="JSON lines, - for standard input.", show_default=False)]
Endpoints = Annotated[
    list[str] | None,
    typer.Option("--endpoint", help="Base address such as http://127.0.0.1:8000/v1; may be given again."),
]
Model = Annotated[str | None, typer.Option("--model", help="The model's name at the endpoint.", show_default=False)]
Key = Annotated[str | None, typer.Option("--key-env", help="Environment variable that holds the endpoint's key.")]
Cache = Annotated[Path | None, typer.Option("--cache", help="File that keeps judgments; none is paid for twice.")]
Precedents = Annotated[
    Path | None, typer.Option("--precedents", help="JSON lines of settled cases: question, candidate, value, note.")
]
MaxCalls = Annotated[int, typer.Option("--max-calls", min=0, help="Paid calls at most.")]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, help="Calls in flight.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds of one call.")]


Work: TypeAlias = "Callable[[RubricJudge | ReadoutJudge, Sequence[dict[str, Any]]], list[dict[str, Any]]]"
"""Rows with the asked fields -> their results, in the same order."""


def _judging(*fields: str) -> Callable[[Work], Work]:
    """A command of this name and help, which reads items of these fields, opens the judge and prints what it said."""

    def register(work: Work) -> Work:
        def command(
            rubric: Judge,
            items: Items,
            endpoint: Endpoints = None,
            model: Model = None,
            key_env: Key = None,
            cache: Cache = None,
            precedents: Precedents = None,
            max_calls: MaxCalls = 100_000,
            concurrency: Concurrency = 8,
            timeout: Timeout = 60.0,
        ) -> None:
            rows = list(_rows(items, fields))
            with _judge(rubric, endpoint, model, key_env, cache, precedents, max_calls, concurrency, timeout) as made:
                _print(made, rows, work(made, rows))

        app.command(work.__name__, help=work.__doc__)(command)
        return work

    return register


@_judging("question", "candidate")
def score(judge: "RubricJudge | ReadoutJudge", rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Score items {question, candidate}: a value in [0, 1] with each criterion's."""
    return [j.to_json() for j in judge.score_all([(row["question"], row["candidate"]) for row in rows])]


@_judging("question", "first", "second")
def pair(judge: "RubricJudge | ReadoutJudge", rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare items {question, first, second}: a preference for the first in [-1, 1], from both orders."""
    return [j.to_json() for j in judge.pair_all([(row["question"], row["first"], row["second"]) for row in rows])]


@_judging("question", "candidates")
def rank(judge: "RubricJudge | ReadoutJudge", rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Order items {question, candidates}: 2 to 16 candidates each, from two passes in opposite orders."""
    return [judge.rank(row["question"], row["candidates"]).to_json() for row in rows]


@app.command()
def lint(
    rubric: Rubric, as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False
) -> None:
    """Check a rubric's wording before it costs money."""
    from dataclasses import asdict

    from coharness.reward.judges.lint import lint as check
    from coharness.reward.judges.rubric import load_rubric

    read = load_rubric(rubric)
    findings = check(read)
    if as_json:
        data = {"rubric": read.name, "version": read.version, "findings": [asdict(f) for f in findings]}
        typer.echo(json.dumps(data))
    else:
        typer.echo(f"{read.name}@{read.version}, {len(read.criteria)} criteria")
        for finding in findings:
            typer.echo(f"{finding.level:<8}{finding.where}: {finding.message} ({finding.rule})")
        if not findings:
            typer.echo("nothing to mend")
    failed = any(finding.level == "error" for finding in findings)
    raise typer.Exit(ExitCode.CHECK_FAILED if failed else ExitCode.DONE)


@app.command()
def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.", show_default=False)],
    pairs: Annotated[
        Path | None, typer.Option("--pairs", help="Write preference pairs for training a judge here.")
    ] = None,
    pay: Annotated[
        bool, typer.Option("--pay", help="Ask the endpoint for judgments that are not in the run's cache.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Hold a run's judge against its verifier: conflicts, shortcuts, worn-out criteria, pairs to mend it with."""
    from coharness.cli.judge_audit import audit_run, audit_text

    found = audit_run(run, pairs=pairs, pay=pay)
    typer.echo(json.dumps(found) if as_json else audit_text(found))


register_library(app)
register_linear(app)
register_training(app)
register_distilling(app)


@contextmanager
def _judge(
    rubric: Path,
    endpoints: Sequence[str] | None,
    model: str | None,
    key_env: str | None,
    cache: Path | None,
    precedents: Path | None,
    max_calls: int,
    concurrency: int,
    timeout_s: float,
) -> "Iterator[RubricJudge | ReadoutJudge]":
    if rubric.is_dir():
        given = {"--endpoint": endpoints, "--model": model, "--key-env": key_env, "--precedents": precedents}
        if wrong := [name for name, value in given.items() if value]:
            raise ConfigError(
                f"{rubric} is a trained judge's folder and judges by itself; leave out {', '.join(wrong)}"
            )
        yield from _trained(rubric, cache, max_calls)
        return
    if not endpoints or not model:
        raise ConfigError(
            f"{rubric} is a rubric, which needs --endpoint and --model; a trained judge's folder needs none"
        )
    from coharness.config.reward import JudgeSection
    from coharness.reward.judges.build import build_judge
    from coharness.reward.judges.prompt import Precedent

    section = JudgeSection(
        endpoints=tuple(endpoints),
        model=model,
        rubric=str(rubric),
        api_key_env=key_env,
        max_calls=max_calls,
        concurrency=concurrency,
        timeout_s=timeout_s,
    )
    cases = []
    if precedents is not None:
        for row in _rows(str(precedents), ("question", "candidate", "value")):
            cases.append(
                Precedent(**{key: row[key] for key in ("question", "candidate", "value", "note") if key in row})
            )
    judge = build_judge(section, cache, precedents=cases)
    try:
        yield judge
    finally:
        judge.close()


def _trained(folder: Path, cache: Path | None, max_calls: int) -> "Iterator[ReadoutJudge]":
    from coharness.loop.trained_judge import open_trained_judge
    from coharness.reward.judges.budget import Budget

    judge = open_trained_judge(folder, cache=cache, budget=Budget(max_calls=max_calls, max_tokens=10**15))
    if not judge.record.promoted:
        typer.echo(
            f"warning: the judge in {folder} did not pass its gate; it is not known to be better than none", err=True
        )
    try:
        yield judge
    finally:
        judge.close()


_KINDS: dict[str, Callable[[Any], bool]] = {
    "candidates": lambda value: isinstance(value, list) and all(isinstance(text, str) for text in value),
    "value": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1,
}


def _rows(source: str, fields: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The rows of a file of JSON lines; further fields are passed through to the results.

    Raises:
        ConfigError: names the line.
    """
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the items {source}: {error}") from error
    for where, row in parse_rows(text, source):
        missing = [name for name in fields if name not in row]
        if missing:
            raise ConfigError(f"{where} lacks {' and '.join(missing)}")
        wrong = [name for name in fields if not _KINDS.get(name, lambda value: isinstance(value, str))(row[name])]
        if wrong:
            raise ConfigError(f"{where}: {wrong[0]} is of the wrong kind, expected text (candidates: a list of it)")
        if "candidates" in fields and not 2 <= len(row["candidates"]) <= 16:
            raise ConfigError(f"{where} has {len(row['candidates'])} candidates, expected 2 to 16")
        yield row


def _print(
    judge: "RubricJudge | ReadoutJudge", rows: Sequence[dict[str, Any]], results: Sequence[dict[str, Any]]
) -> None:
    texts = ("question", "candidate", "first", "second", "candidates")
    for row, result in zip(rows, results, strict=True):
        kept = {key: value for key, value in row.items() if key not in texts}
        typer.echo(json.dumps({**kept, **result}, ensure_ascii=False))
    outcomes = Counter(result["outcome"] for result in results)
    spent = judge.budget.spent
    cached = sum(bool(result["cached"]) for result in results)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())) or "no items"
    typer.echo(
        f"{counts}; {cached} from the cache; {spent.calls} calls, {spent.tokens_in} tokens in, {spent.tokens_out} out",
        err=True,
    )
    if outcomes["infra"] or outcomes["parse"]:
        raise typer.Exit(ExitCode.CHECK_FAILED)
