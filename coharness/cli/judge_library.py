"""`coharness judge evolve`, `compare`, `lint-library` and `demonstrations`: libraries of skills that judge edits of images."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coharness.cli.exit_codes import ExitCode
from coharness.records.errors import ConfigError

if TYPE_CHECKING:
    from coharness.reward.images.endpoint_model import EndpointModel


Kind = Annotated[str, typer.Option("--kind", help="Rows: editreward-data, editreward-bench or genai-bench.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Rows = Annotated[Path, typer.Argument(metavar="FILE", help="JSONL or Parquet, images beside it.", show_default=False)]
Folder = Annotated[Path, typer.Argument(metavar="LIBRARY", help="A library's folder.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the verbs to `coharness judge`."""
    app.command()(evolve)
    app.command()(compare)
    app.command("evolve-model")(evolve_model)
    app.command("lint-library")(lint_library)
    app.command()(demonstrations)


def evolve(
    file: Rows,
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of library versions.", show_default=False)],
    kind: Kind = "editreward-data",
    start: Annotated[
        Path | None, typer.Option("--start", help="Library to begin with; the champion, else none.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the split into proposing and confirming groups.")] = 0,
    shuffles: Annotated[
        int, typer.Option("--shuffles", min=0, help="Evolutions from labels by coin, for the null.")
    ] = 20,
    use_strength: Annotated[
        bool, typer.Option("--use-strength", help="Count a pair by its difference of scores.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Evolve a library of skills that judge edits of images, from preferences, behind a gate."""
    raise typer.Exit(
        _evolve(
            file,
            store,
            kind=kind,
            start=start,
            seed=seed,
            shuffles=shuffles,
            use_strength=use_strength,
            as_json=as_json,
        )
    )


def compare(
    library: Folder,
    file: Rows,
    kind: Kind = "editreward-data",
    tie: Annotated[float, typer.Option("--tie", min=0.0, help="Difference of scores up to which tools say tie.")] = 0.0,
    endpoint: Annotated[
        list[str] | None,
        typer.Option("--endpoint", help="Judge by a model that sees images, there; may be given again."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="The model's name at the endpoint.")] = None,
    key_env: Annotated[str | None, typer.Option("--key-env", help="Environment variable that holds its key.")] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="File that keeps judgments; none is paid for twice.")
    ] = None,
    max_calls: Annotated[int, typer.Option("--max-calls", min=0, help="Paid calls at most.")] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Judge pairs of edits by a library and hold the verdicts against people's."""
    raise typer.Exit(
        _compare(
            library, file, kind=kind, tie=tie, endpoint=endpoint or [], model=model, key_env=key_env, cache=cache,
            max_calls=max_calls, as_json=as_json,
        )
    )  # fmt: skip


def evolve_model(
    file: Rows,
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of library versions.", show_default=False)],
    endpoint: Annotated[
        list[str], typer.Option("--endpoint", help="Where a model that sees images is served; may be given again.")
    ],
    model: Annotated[str, typer.Option("--model", help="Its name there.")],
    kind: Kind = "editreward-data",
    start: Annotated[
        Path | None, typer.Option("--start", help="Library to begin with; the champion, else none.")
    ] = None,
    key_env: Annotated[str | None, typer.Option("--key-env", help="Environment variable that holds its key.")] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="File that keeps judgments; none is paid for twice.")
    ] = None,
    max_calls: Annotated[
        int,
        typer.Option("--max-calls", min=0, help="Paid calls at most; Ray workers and this process have equal shares."),
    ] = 100_000,
    islands: Annotated[int, typer.Option("--islands", min=1, help="Lineages that exchange entries.")] = 3,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Proposals that are judged at most.")] = 60,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Trials at once.")] = 4,
    fleet: Annotated[
        str,
        typer.Option("--fleet", help="local: threads of this process; ray: a worker a trial, deadlines kept by force."),
    ] = "local",
    deadline: Annotated[
        float, typer.Option("--deadline", min=1.0, help="Seconds for one trial on Ray; then its worker is replaced.")
    ] = 1800.0,
    telling: Annotated[
        str,
        typer.Option("--telling", help="arrival: nobody waits; asked: one result for a seed and a number of workers."),
    ] = "arrival",
    seed: Annotated[int, typer.Option("--seed", help="Of splits and order.")] = 0,
) -> None:
    """Evolve a library by a model over endpoints: an asynchronous population, each change gated on fresh pairs."""
    from coharness.cli.compose import trial_pool
    from coharness.reward.images.extra import require_images

    require_images()
    from coharness.reward.images.society import evolve_by_model
    from coharness.reward.library.society import Telling

    for option, word, known in (("--fleet", fleet, ("local", "ray")), ("--telling", telling, tuple(Telling))):
        if word not in known:
            raise ConfigError(f"{option}: got {word!r:.40}, expected one of {', '.join(known)}")
    asked = _model(endpoint, model, key_env, cache, max_calls)
    if fleet == "ray":
        asked = asked.shared_by(workers + 1, store.absolute() / "judgments.sqlite")
    with trial_pool(workers, deadline_s=deadline, on_ray=fleet == "ray") as make_pool:
        report = evolve_by_model(
            file,
            store,
            asked,
            make_pool,
            kind=_kind(kind),
            start=start,
            islands=islands,
            trials=trials,
            seed=seed,
            telling=Telling(telling),
        )
    typer.echo(json.dumps(report))
    raise typer.Exit(ExitCode.DONE)


def lint_library(folder: Folder) -> None:
    """Check a library of skills and tools: contradictions, duplicates, positional language, schemas, orphans."""
    raise typer.Exit(_lint_library(folder))


def demonstrations(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to; must not exist yet.", show_default=False)],
    num: Annotated[int, typer.Option("--num", min=1, help="Sources, four candidates each.")] = 100,
    seed: Annotated[int, typer.Option("--seed", help="Of all that is drawn.")] = 0,
    flips: Annotated[
        float, typer.Option("--flips", min=0.0, max=0.5, help="Share of labels the wrong way round.")
    ] = 0.0,
    photographs: Annotated[bool, typer.Option("--photographs", help="Photographic backgrounds.")] = False,
) -> None:
    """Draw preferences of edits whose worth is known: a placeholder for data that cannot be had."""
    raise typer.Exit(_demonstrations(folder, num=num, seed=seed, flips=flips, photographs=photographs))


def _evolve(
    file: Path,
    store: Path,
    *,
    kind: str,
    start: Path | None,
    seed: int,
    shuffles: int,
    use_strength: bool,
    as_json: bool,
) -> int:
    """Evolve a library from a file of preferences into a store of versions; print what was tried and what came of it."""
    from coharness.reward.images.extra import require_images

    require_images()
    from coharness.reward.images.work import evolve_file

    report = evolve_file(
        file, store, kind=_kind(kind), start=start, seed=seed, shuffles=shuffles, use_strength=use_strength
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(report))
        return ExitCode.DONE
    for trial in report["trials"]:
        typer.echo(
            f"{'kept   ' if trial['accepted'] else 'refused'} {trial['action']:6} {trial['name']}: {trial['reason']}"
        )
    confirmed = report["confirmed"]
    if confirmed:
        typer.echo(
            f"\n{len(report['skills'])} skills; confirming pairs {confirmed['before']:.3f} -> {confirmed['after']:.3f} "
            f"(gain {confirmed['gain']:+.3f} [{confirmed['low']:+.3f}, {confirmed['high']:+.3f}] over "
            f"{confirmed['groups']} groups; {confirmed['note']})"
        )
    else:
        typer.echo("\nno skill was shown to be better than a coin; the library stays as it was")
    null = report["null_accepted"]
    if null["mean"] is not None:
        typer.echo(f"labels by coin, {null['shuffles']} times: {null['mean']:.2f} skills accepted on average")
    if report["left_out"]:
        typer.echo(f"{report['left_out']} pairs were left out: their instruction is not understood")
    typer.echo(f"library {store / 'versions' / report['library']}")
    return ExitCode.DONE


def _compare(
    library: Path, file: Path, *, kind: str, tie: float, endpoint: list[str], model: str | None, key_env: str | None,
    cache: Path | None, max_calls: int, as_json: bool,
) -> int:  # fmt: skip
    """Judge a file of preferences by a library and print how often it agrees; failures are counted apart."""
    from coharness.reward.images.extra import require_images

    require_images()
    from coharness.reward.images.flags import text_flags
    from coharness.reward.images.work import compare_file

    make = _model(endpoint, model, key_env, cache, max_calls).open(text_flags)[1] if endpoint else None
    results, figures = compare_file(library, file, kind=_kind(kind), tie=tie, vlm=make)
    if as_json:
        for result in results:
            said = None if result.said is None else result.said.value
            typer.echo(
                json.dumps({"pair": result.name, "truth": result.truth.value, "said": said, "reason": result.reason})
            )
    typer.echo(json.dumps(figures), err=as_json)
    return ExitCode.DONE if figures["judged"] == figures["pairs"] else ExitCode.CHECK_FAILED


def _lint_library(folder: Path) -> int:
    """Print what is wrong with a library; an error makes it unfit."""
    from coharness.reward.images.extra import missing
    from coharness.reward.library.files import read_library
    from coharness.reward.library.lint import errors_of, lint_folder

    features = None
    if not missing():
        from coharness.reward.images.toolbox import FEATURES

        features = FEATURES
    findings = lint_folder(folder, read_library(folder), features=features)
    for finding in findings:
        typer.echo(f"{finding.level:7} {finding.where}: {finding.message} ({finding.rule})")
    typer.echo(f"{len(findings)} findings, {len(errors_of(findings))} errors", err=True)
    return ExitCode.CHECK_FAILED if errors_of(findings) else ExitCode.DONE


def _demonstrations(folder: Path, *, num: int, seed: int, flips: float, photographs: bool) -> int:
    """Draw sources with graded candidates and write them as preferences: a placeholder for data that cannot be had."""
    from coharness.reward.images.extra import require_images

    require_images()
    if folder.exists():
        raise ConfigError(f"{folder} exists; choose a folder that does not")
    import numpy as np

    from coharness.reward.images.synthetic.draw import draw
    from coharness.reward.images.synthetic.scenes import DrawnBackgrounds, PhotoBackgrounds
    from coharness.reward.images.synthetic.write import Annotator, write

    rng = np.random.default_rng(seed)
    backgrounds = PhotoBackgrounds() if photographs else DrawnBackgrounds()
    sources = [draw(rng, f"s{index:04d}", backgrounds) for index in range(num)]
    typer.echo(str(write(sources, folder, Annotator(flips=flips, ties=True), rng)))
    return ExitCode.DONE


def _kind(name: str) -> Any:
    from coharness.reward.library.records import RecordKind

    if name not in list(RecordKind):
        raise ConfigError(f"--kind: got {name!r:.40}, expected one of {', '.join(RecordKind)}")
    return RecordKind(name)


def _model(
    endpoint: list[str], model: str | None, key_env: str | None, cache: Path | None, max_calls: int
) -> "EndpointModel":
    from coharness.reward.images.endpoint_model import EndpointModel

    return EndpointModel(
        endpoints=tuple(endpoint), name=model or "", key_env=key_env, cache=None if cache is None else str(cache),
        max_calls=max_calls,
    )  # fmt: skip
