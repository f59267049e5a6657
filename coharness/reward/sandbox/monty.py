"""The Monty layer: an interpreter of a Python subset that has no files, processes or network to give (pydantic-monty).

It runs in a worker process of its own, one session a program. What it does not know (inheritance, `yield`, most modules) ends as
`unsupported`, as does every kind of error that such a gap may look like; so does code that it is known to run otherwise
than CPython (`monty_dialect`). All other ends are final.
"""

import time
from typing import TYPE_CHECKING, Any

from coharness.reward.sandbox.guest import plain
from coharness.reward.sandbox.monty_dialect import differs
from coharness.reward.sandbox.program import (
    CallResult,
    Layer,
    Limits,
    Outcome,
    Program,
    Raised,
    Returned,
    Status,
    Usage,
    conclude,
    printable,
)

if TYPE_CHECKING:
    from pydantic_monty import Monty, MontySession

_GAPS = (SyntaxError, NotImplementedError, ImportError, AttributeError, NameError, TypeError, SystemError)
"""Exceptions that a feature which Monty lacks may raise."""
_TIME = ("feed time limit exceeded", "sleep limit exceeded")
_MAX_DEPTH = 1_000
_NOT_PLAIN = "_not_plain_ "
_ENCODER = f"""
def _encode_(value, depth=0):
    kind = type(value)
    name = kind.__name__
    if depth > {plain.MAX_DEPTH}:
        raise ValueError("{_NOT_PLAIN}too deep")
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -(2**63) <= value < 2**63 else {{"t": "int", "v": hex(value)}}
    if kind is float:
        return value if value - value == 0 else {{"t": "float", "v": repr(value)}}
    if kind is list:
        return [_encode_(item, depth + 1) for item in value]
    if kind is tuple or kind is set or kind is frozenset:
        return {{"t": name, "v": [_encode_(item, depth + 1) for item in value]}}
    if kind is dict or name in ("Counter", "defaultdict", "OrderedDict"):
        return {{"t": "dict", "v": [[_encode_(k, depth + 1), _encode_(v, depth + 1)] for k, v in value.items()]}}
    if kind is bytes:
        return {{"t": "bytes", "v": value.hex()}}
    if kind is complex:
        return {{"t": "complex", "v": [repr(value.real), repr(value.imag)]}}
    raise ValueError("{_NOT_PLAIN}a value of type " + name + " is not plain")


def _dumps_(value):
    import json

    return json.dumps(_encode_(value))


None
"""
"""As `guest.plain.encode`. Values leave as one text, since a dict whose keys collide would hold this process up while it was
taken over, where no limit of Monty's reaches."""
_TAIL = 4_096


class _Stop(Exception):
    """The program ends here."""

    def __init__(self, status: Status, error: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.error = error
        self.detail = detail


class MontyLayer:
    """Runs programs in a pool of one Monty worker; satisfies `ladder.LayerRunner`."""

    layer = Layer.MONTY

    def __init__(self) -> None:
        self._pool: Monty | None = None

    def absent(self) -> str | None:
        """Why this layer cannot even be tried here."""
        try:
            import pydantic_monty  # noqa: F401
        except ImportError:
            return "pydantic-monty is not installed; install coharness-evolution[sandbox]"
        return None

    def run(self, program: Program, limits: Limits) -> Outcome:
        """Run one program; never raises for what the program does."""
        from pydantic_monty import CollectString

        reason = differs(program.code)
        if reason is not None:
            return Outcome(status=Status.UNSUPPORTED, layer=self.layer, detail=reason)
        began, results = time.monotonic(), list[CallResult]()
        output = CollectString(max_bytes=limits.output_bytes)
        try:
            self._converse(program, limits, output, results)
            status, error, detail = conclude(tuple(results), 1 if program.entry is None else len(program.calls))
        except _Stop as stop:
            status, error, detail = stop.status, stop.error, stop.detail
        return Outcome(
            status=status,
            layer=self.layer,
            results=tuple(results),
            error=error,
            detail=detail,
            stdout_tail=printable(output.output[-_TAIL:].encode(errors="backslashreplace")),
            usage=Usage(wall_s=time.monotonic() - began),
        )

    def _converse(self, program: Program, limits: Limits, output: Any, results: list[CallResult]) -> None:
        """Load the code and make the calls; their results are added to `results`.

        Raises:
            _Stop: the program ended before that.
        """
        from pydantic_monty import Monty, MontyError

        try:
            if self._pool is None:
                self._pool = Monty(min_processes=1, max_processes=1, checkout_timeout=30.0).__enter__()
            session = self._pool.checkout(
                limits={
                    "max_feed_duration_secs": limits.timeout_s,
                    "max_total_sleep_secs": limits.timeout_s,
                    "max_memory": limits.memory_bytes,
                    "max_recursion_depth": _MAX_DEPTH,
                }
            )
            session.__enter__()
        except (MontyError, OSError, RuntimeError, TimeoutError) as error:
            raise _Stop(Status.INFRA, "", f"monty does not start: {error}") from error
        deadline = time.monotonic() + limits.timeout_s
        try:
            session.feed_run(_ENCODER)
            if program.entry is None:
                results.append(self._feed(session, f"_dumps_(\n{program.code.strip()}\n)", {}, limits, output))
                return
            # The last value of the code is not asked for, and must not be: it would be taken over as it is.
            first = self._feed(session, f"{program.code}\n_dumps_(None)", {}, limits, output)
            if isinstance(first, Raised):
                raise _Stop(*conclude((first,), 1))
            for call in program.calls:
                inputs = {"_args_": list(call.args), "_kwargs_": dict(call.kwargs)}
                question = f"_dumps_({program.entry}(*_args_, **_kwargs_))"
                results.append(self._feed(session, question, inputs, limits, output))
                if time.monotonic() > deadline:
                    raise _Stop(Status.TIMEOUT, "", f"ran longer than {limits.timeout_s:g} s")
        finally:
            session.__exit__(None, None, None)

    def _feed(
        self, session: "MontySession", code: str, inputs: dict[str, Any], limits: Limits, output: Any
    ) -> CallResult:
        """One piece of code whose value is a text that `_dumps_` made."""
        from pydantic_monty import MontyCrashedError, MontyError

        try:
            text = session.feed_run(code, inputs=inputs, print_callback=output)
        except MontyCrashedError as error:
            status = Status.TIMEOUT if error.timed_out else Status.CRASHED
            raise _Stop(status, "", f"its worker ended: {error}"[:300]) from error
        except MontyError as error:
            return _raised(error.exception(), limits)
        if not isinstance(text, str):
            raise _Stop(Status.POLICY, "", "replaced the encoder of its values")
        if len(text) > limits.value_bytes:
            raise _Stop(Status.OUTPUT_LIMIT, "", f"more than {limits.value_bytes} bytes of values")
        try:
            return Returned(value=plain.loads(text))
        except plain.NotPlain as error:
            return Raised(error="NotPlain", detail=str(error)[:300])

    def close(self) -> None:
        """End the pool."""
        if self._pool is not None:
            self._pool.__exit__(None, None, None)
            self._pool = None


def _raised(error: BaseException, limits: Limits) -> Raised:
    """What an exception inside Monty means.

    Raises:
        _Stop: it ends the program, or is one that a gap of Monty may raise.
    """
    name, detail = type(error).__name__, str(error)[:300]
    if isinstance(error, _GAPS) or (isinstance(error, RuntimeError) and "monty" in detail):
        raise _Stop(Status.UNSUPPORTED, name, detail) from error
    if isinstance(error, TimeoutError) and detail.startswith(_TIME):
        raise _Stop(Status.TIMEOUT, "", f"ran longer than {limits.timeout_s:g} s") from error
    if isinstance(error, MemoryError):
        # The same exception tells of a full heap and of a full collector of output; only the bound differs.
        if detail.endswith(f"> {limits.output_bytes} bytes"):
            raise _Stop(Status.OUTPUT_LIMIT, "", f"printed more than {limits.output_bytes} bytes") from error
        raise _Stop(Status.MEMORY, name, detail) from error
    if isinstance(error, ValueError) and detail.startswith(_NOT_PLAIN):
        return Raised(error="NotPlain", detail=detail.removeprefix(_NOT_PLAIN))
    return Raised(error=name, detail=detail)
