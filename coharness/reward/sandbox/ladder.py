"""The sandbox of a run: tries the layers from the cheapest to the most capable, and none below a declared minimum.

    literal ─unsupported─▶ monty ─unsupported─▶ bubblewrap, or landlock where namespaces are refused, or unsafe by name

Owns one runner of each layer it uses. Invariants: a layer is used only after a trial program ran in it in this process; a
program that a layer supports is never tried in another; `infra` is tried once more in the same layer and then reported.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from coharness.records.errors import PreflightError
from coharness.reward.sandbox.launchers import BubblewrapLauncher, LandlockLauncher, UnsafeLauncher
from coharness.reward.sandbox.literal import NotLiteral, evaluate
from coharness.reward.sandbox.monty import MontyLayer
from coharness.reward.sandbox.process import ProcessLayer
from coharness.reward.sandbox.program import Call, Layer, Limits, Outcome, Program, Returned, Status

logger = logging.getLogger(__name__)

STRENGTH = (Layer.UNSAFE, Layer.LANDLOCK, Layer.BUBBLEWRAP, Layer.MONTY)
"""From the weakest to the strongest; the literal layer runs nothing and needs no place."""
_MONTY_S = 1.0
"""How long Monty may try what CPython could run instead."""
_TRIAL = "import {module}\ndef trial(x):\n    return x + 1\n"


class LayerRunner(Protocol):
    """Runs programs in one layer; never raises for what a program does. One thread at a time."""

    @property
    def layer(self) -> Layer:
        """The layer."""
        ...

    def absent(self) -> str | None:
        """Why it cannot even be tried here."""
        ...

    def run(self, program: Program, limits: Limits) -> Outcome:
        """Run one program."""
        ...

    def close(self) -> None:
        """End what it started."""
        ...


class LiteralLayer:
    """Evaluates expressions that are literals; runs no code."""

    layer = Layer.LITERAL

    def absent(self) -> str | None:
        """It is always there."""
        return None

    def run(self, program: Program, limits: Limits) -> Outcome:
        """The value of an expression, or `unsupported`."""
        if program.entry is not None:
            return Outcome(status=Status.UNSUPPORTED, layer=self.layer, detail="calls a function")
        try:
            value = evaluate(program.code)
        except NotLiteral as error:
            return Outcome(status=Status.UNSUPPORTED, layer=self.layer, detail=str(error))
        return Outcome(status=Status.OK, layer=self.layer, results=(Returned(value=value),))

    def close(self) -> None:
        """Nothing was started."""


def make_runner(layer: Layer, *, spares: int = 1) -> LayerRunner:
    """A runner of one layer; processes start when it is first used."""
    match layer:
        case Layer.LITERAL:
            return LiteralLayer()
        case Layer.MONTY:
            return MontyLayer()
        case Layer.BUBBLEWRAP:
            return ProcessLayer(BubblewrapLauncher(), spares=spares)
        case Layer.LANDLOCK:
            return ProcessLayer(LandlockLauncher(), spares=spares)
        case Layer.UNSAFE:
            return ProcessLayer(UnsafeLauncher(), spares=spares)


def why_unusable(runner: LayerRunner) -> str | None:
    """Why a layer does not work here, by a trial program; None where it does."""
    reason = runner.absent()
    if reason is not None:
        return reason
    if runner.layer is Layer.LITERAL:
        return None
    # A module from the standard library's files, which an unprivileged uid must be able to read.
    module = "math" if runner.layer is Layer.MONTY else "colorsys"
    program = Program(code=_TRIAL.format(module=module), entry="trial", calls=(Call(args=(1,)),))
    outcome = runner.run(program, Limits(timeout_s=30.0))
    if outcome.status is Status.OK and outcome.results == (Returned(value=2),):
        return None
    return outcome.detail or f"a trial program ended with {outcome.status}"


class Sandbox:
    """Runs programs in the best layer that can. One thread at a time."""

    def __init__(
        self,
        *,
        minimum: Layer = Layer.LANDLOCK,
        unsafe: bool = False,
        limits: Limits | None = None,
        spares: int = 1,
        ladder: Sequence[LayerRunner] | None = None,
    ) -> None:
        """A sandbox that uses no layer below `minimum`, but for `unsafe` where that is asked for by name.

        Args:
            minimum: the weakest layer that may run foreign code: landlock, bubblewrap or monty.
            unsafe: whether the unsafe layer may stand in where neither bubblewrap nor landlock works.
            limits: the default ones of a program.
            spares: guests that wait ready in a process layer.
            ladder: the very runners to use, in this order, instead of what is found here; they are closed with it.

        Raises:
            ValueError: the minimum is no layer that isolates.
        """
        if minimum not in STRENGTH[1:]:
            raise ValueError(
                f"the minimum layer is one of {', '.join(STRENGTH[1:])}, got {minimum!r}; unsafe is asked for apart"
            )
        self.limits = limits or Limits()
        self._minimum = minimum
        self._unsafe = unsafe
        self._spares = spares
        self._ladder: tuple[LayerRunner, ...] | None = None if ladder is None else tuple(ladder)
        self._absent: dict[Layer, str] = {}

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers it uses here, in the order they are tried; the first call tries each with a trial program.

        Raises:
            PreflightError: no layer at or above the minimum works here.
        """
        return tuple(runner.layer for runner in self._climb())

    @property
    def absent(self) -> dict[Layer, str]:
        """Layers that would have been used and do not work here, with the reason."""
        self._climb()
        return dict(self._absent)

    def run(self, program: Program, *, limits: Limits | None = None, only: Layer | None = None) -> Outcome:
        """Run one program in the first layer that supports it.

        Args:
            program: what to run.
            limits: other limits than the default ones.
            only: the one layer to use, e.g. that in which an earlier part of the same work ran.

        Raises:
            PreflightError: no layer at or above the minimum works here.
        """
        outcome = Outcome(status=Status.UNSUPPORTED, layer=Layer.LITERAL, detail="no layer was tried")
        ladder = [runner for runner in self._climb() if only is None or runner.layer is only]
        for runner in ladder:
            given, inconclusive = limits or self.limits, {Status.UNSUPPORTED}
            if runner.layer is Layer.MONTY and runner is not ladder[-1]:
                # It is slower than CPython, counts memory otherwise, and is young: CPython settles what it could not.
                given = replace(given, timeout_s=min(given.timeout_s, _MONTY_S))
                inconclusive |= {Status.TIMEOUT, Status.MEMORY, Status.CRASHED}
            outcome = runner.run(program, given)
            if outcome.status is Status.INFRA:
                logger.warning("sandbox: %s; trying once more", outcome.detail)
                outcome = runner.run(program, given)
            if outcome.status not in inconclusive:
                return outcome
        return outcome

    def _climb(self) -> tuple[LayerRunner, ...]:
        if self._ladder is None:
            allowed = STRENGTH[STRENGTH.index(self._minimum) :]
            found: list[LayerRunner] = [make_runner(Layer.LITERAL)]
            found += self._usable([layer for layer in (Layer.MONTY,) if layer in allowed])
            found += self._usable([layer for layer in (Layer.BUBBLEWRAP, Layer.LANDLOCK) if layer in allowed])
            strongest = found[-1].layer
            if self._unsafe and strongest not in (Layer.BUBBLEWRAP, Layer.LANDLOCK):
                found += self._usable([Layer.UNSAFE])
            if len(found) == 1:
                reasons = "; ".join(f"{layer}: {reason}" for layer, reason in self._absent.items())
                raise PreflightError(
                    f"no sandbox layer at or above reward.sandbox.minimum={self._minimum} works here ({reasons})"
                )
            self._ladder = tuple(found)
        return self._ladder

    def _usable(self, layers: Sequence[Layer]) -> list[LayerRunner]:
        """Runners of the first of `layers` that works."""
        for layer in layers:
            runner = make_runner(layer, spares=self._spares)
            reason = why_unusable(runner)
            if reason is None:
                return [runner]
            runner.close()
            self._absent[layer] = reason
        return []

    def close(self) -> None:
        """End all processes it started."""
        for runner in self._ladder or ():
            runner.close()
        self._ladder = None
