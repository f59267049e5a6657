"""`coharness serve`: a judge as a reward service over HTTP."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from coharness.cli.exit_codes import ExitCode
from coharness.config.reward import JudgeSection
from coharness.records.errors import ConfigError

if TYPE_CHECKING:
    from coharness.reward.monitors.canary import Canary


def serve(
    section: JudgeSection,
    *,
    host: str,
    port: int,
    tokens: Path | None,
    canaries: Path | None,
    cache: Path | None,
) -> ExitCode:
    """Serve until a signal ends it.

    Raises:
        ConfigError: rubric, tokens, canaries or address are wrong.
        PreflightError: uvicorn is missing, the key is not set, or the address cannot be had.
    """
    from coharness.reward.judges.budget import Budget
    from coharness.reward.judges.build import build_judge
    from coharness.reward.judges.cache import JudgmentCache
    from coharness.reward.judges.rubric import Rubric
    from coharness.reward.judges.rubric_judge import RubricJudge
    from coharness.reward.service.app import RewardApp
    from coharness.reward.service.host import check_bind, listen, server_of
    from coharness.reward.service.judges import JudgeSlot
    from coharness.reward.service.tokens import Scope, load_tokens, new_token

    check_bind(host, has_own_tokens=tokens is not None)
    known = () if tokens is None else load_tokens(tokens)
    if not known:
        text, token = new_token("terminal", scopes=(Scope.JUDGE, Scope.ADMIN))
        known = (token,)
        typer.echo(f"token  {text}  (for this service alone, shown once)", err=True)
    judge = build_judge(section, cache)

    def make(rubric: Rubric) -> RubricJudge:
        return RubricJudge(
            rubric,
            judge.pool,
            budget=Budget(max_calls=section.max_calls, max_tokens=section.max_tokens),
            cache=JudgmentCache(cache) if section.cache else None,
            concurrency=section.concurrency,
        )

    app = RewardApp(JudgeSlot(judge, load_canaries(canaries)), known, make_judge=make)
    server = server_of(app)
    sock = listen(host, port)
    where = f"[{host}]" if ":" in host else host
    typer.echo(
        f"serving  {judge.versions.model} by {judge.versions.rubric} on http://{where}:{sock.getsockname()[1]}",
        err=True,
    )
    try:
        server.run(sockets=[sock])
    finally:
        sock.close()
    return ExitCode.DONE


def load_canaries(path: Path | None) -> "tuple[Canary, ...]":
    """Canaries of a YAML file: a list of {name, kind, question, answer, twin_of?}; none where no file is given.

    Raises:
        ConfigError: names what is wrong.
    """
    from coharness.config.yaml_text import read_mapping
    from coharness.reward.algebra.reading import keys, objects_of, word_of
    from coharness.reward.monitors.canary import Canary, CanaryKind

    if path is None:
        return ()
    try:
        data = read_mapping(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the canaries {path}: {error}") from error
    keys(data, ("canaries",), (), str(path))
    made = []
    for entry, where in objects_of(data["canaries"], f"{path}: canaries"):
        keys(entry, ("name", "kind", "question", "answer"), ("twin_of",), where)
        try:
            made.append(
                Canary(**{**entry, "kind": CanaryKind(word_of(entry["kind"], tuple(CanaryKind), f"{where}.kind"))})
            )
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from error
    return tuple(made)
