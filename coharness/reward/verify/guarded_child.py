"""The program of a guarded child process: evaluates answers for one host, over JSON lines.

Run by path, never imported: it needs nothing of coharness. The host's side, with deadlines and restarts, is `guarded.py`.
Whatever an answer makes an evaluator do happens here, after the packages are loaded and then the doors are shut: resource
limits (memory, CPU time, no file may grow, no core file, no process where the limit binds), an audit hook that refuses to
open files for writing, to start or signal processes and to use the network, and an environment that holds nothing.

Protocol: one line `{"ready": true}`, then for each request line `{"id": token, ...}` one line `{"id": token, "score": x}`,
or `{"id": token, "error": text}` where the evaluator raised. Ends at the end of its input.
"""

import decimal
import functools
import json
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

_CALL_CPU_S = 60
"""CPU seconds until a child whose host is gone ends itself; the host's own deadline is shorter."""
_REFUSED_EVENTS = (
    "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile", "os.system", "os.kill", "os.killpg",
    "os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate",
    "os.utime", "os.putenv", "os.unsetenv", "pty.spawn", "shutil.", "socket.", "subprocess.", "ctypes.", "webbrowser.",
    "urllib.", "ftplib.", "smtplib.", "sqlite3.", "tempfile.", "signal.pthread_kill",
)  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if event == "open":
        flags = args[2] if len(args) > 2 and isinstance(args[2], int) else 0
        if flags & _WRITING:
            raise PermissionError("a verifier may not open a file for writing")
    elif event.startswith(_REFUSED_EVENTS):
        raise PermissionError(f"a verifier may not use {event}")


def _limit_cpu() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + _CALL_CPU_S, hard))


def _shut_doors() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if os.geteuid() != 0:
        # Root is exempt from this limit, so that there it would only pretend.
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    sys.addaudithook(_refuse)


def _math_evaluator() -> Callable[[dict[str, Any]], float]:
    import logging

    from math_verify import parse, verify

    logging.disable(logging.CRITICAL)

    def read(text: str) -> Any:
        text = text.strip().strip("$")
        # Its own timeouts use signals and fail outside the main thread; the host's clock bounds the call instead.
        return parse(f"${text}$", parsing_timeout=None, raise_on_error=True)

    read_expected = functools.lru_cache(maxsize=256)(read)

    def evaluate(request: dict[str, Any]) -> float:
        expected = read_expected(request["expected"])
        if not expected:
            raise ValueError("the expected answer cannot be read as mathematics")
        return float(verify(expected, read(request["answer"]), timeout_seconds=None))

    # sympy loads much of itself on its first comparison, which must not run on the first answer's clock.
    evaluate({"expected": "x^2+2x+1", "answer": "(x+1)^2"})
    return evaluate


def _reasoning_gym_evaluator() -> Callable[[dict[str, Any]], float]:
    from reasoning_gym.factory import create_dataset

    @functools.lru_cache(maxsize=32)
    def rebuild(recipe: str) -> tuple[Any, dict[str, Any]]:
        name, config, seed = json.loads(recipe)
        # The same default precision as where the task was made; some datasets change it for the whole process.
        with decimal.localcontext(decimal.Context()):
            dataset = create_dataset(name, **config, seed=seed, size=1)
            return dataset, dataset[0]

    def evaluate(request: dict[str, Any]) -> float:
        dataset, entry = rebuild(json.dumps([request["dataset"], request["config"], request["seed"]]))
        if str(entry["answer"]).strip() != request["expected"]:
            raise ValueError("the entry rebuilt here has another answer than the task; package versions differ")
        return float(dataset.score_answer(request["answer"], entry))

    return evaluate


_EVALUATORS = {"math": _math_evaluator, "reasoning_gym": _reasoning_gym_evaluator}


def main() -> None:
    """Serve requests until the input ends."""
    # Evaluators may print; answers travel on a private copy of standard output.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))

    def send(frame: dict[str, Any]) -> None:
        channel.write(json.dumps(frame) + "\n")
        channel.flush()

    try:
        evaluate = _EVALUATORS[sys.argv[1]]()
    except ImportError as error:
        send({"error": f"{type(error).__name__}: {error}"})
        return
    _shut_doors()
    send({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        _limit_cpu()
        # An answer may make an evaluator raise anything at all; each of it is a reply, and the host judges what it means.
        try:
            send({"id": request["id"], "score": evaluate(request)})
        except Exception as error:
            send({"id": request["id"], "error": f"{type(error).__name__}: {error}"[:500]})


if __name__ == "__main__":
    main()
