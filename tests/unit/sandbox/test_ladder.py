"""Which layer runs a program, what is tried again, and what a run may ask for."""

from collections.abc import Sequence

import pytest

from coharness.records.errors import PreflightError
from coharness.reward.sandbox import Layer, Limits, Outcome, Program, Sandbox, Status
from coharness.reward.sandbox import ladder as module

PROGRAM = Program(code="def f(): pass", entry="f")


class Scripted:
    """A layer that answers with one status after another."""

    def __init__(self, layer: Layer, *statuses: Status, absent: str | None = None) -> None:
        self.layer = layer
        self.seen: list[Limits] = []
        self.is_closed = False
        self._statuses = list(statuses)
        self._absent = absent

    def absent(self) -> str | None:
        return self._absent

    def run(self, program: Program, limits: Limits) -> Outcome:
        self.seen.append(limits)
        return Outcome(status=self._statuses.pop(0), layer=self.layer)

    def close(self) -> None:
        self.is_closed = True


def run(*runners: Scripted, limits: Limits | None = None) -> Outcome:
    return Sandbox(ladder=runners).run(PROGRAM, limits=limits)


def test_the_first_layer_that_supports_a_program_answers() -> None:
    last = Scripted(Layer.BUBBLEWRAP)
    assert run(Scripted(Layer.LITERAL, Status.UNSUPPORTED), Scripted(Layer.MONTY, Status.OK), last).layer is Layer.MONTY
    assert last.seen == []


@pytest.mark.parametrize("status", [Status.ERROR, Status.POLICY, Status.OUTPUT_LIMIT, Status.OK])
def test_what_monty_decided_is_final(status: Status) -> None:
    assert run(Scripted(Layer.MONTY, status), Scripted(Layer.BUBBLEWRAP)).status is status


@pytest.mark.parametrize("status", [Status.UNSUPPORTED, Status.TIMEOUT, Status.MEMORY, Status.CRASHED])
def test_what_monty_could_not_settle_cpython_does(status: Status) -> None:
    below = Scripted(Layer.BUBBLEWRAP, Status.OK)
    monty = Scripted(Layer.MONTY, status)
    assert run(monty, below, limits=Limits(timeout_s=9.0)).layer is Layer.BUBBLEWRAP
    assert (monty.seen[0].timeout_s, below.seen[0].timeout_s) == (1.0, 9.0)
    alone = Scripted(Layer.MONTY, status)
    assert run(alone, limits=Limits(timeout_s=9.0)).status is status
    assert alone.seen[0].timeout_s == 9.0


@pytest.mark.parametrize("status", [s for s in Status if s not in (Status.UNSUPPORTED, Status.INFRA)])
def test_what_a_process_layer_decided_is_final(status: Status) -> None:
    assert run(Scripted(Layer.BUBBLEWRAP, status), Scripted(Layer.UNSAFE)).status is status


def test_infra_is_tried_once_more_and_then_reported() -> None:
    assert run(Scripted(Layer.BUBBLEWRAP, Status.INFRA, Status.OK)).status is Status.OK
    twice = Scripted(Layer.BUBBLEWRAP, Status.INFRA, Status.INFRA)
    assert run(twice, Scripted(Layer.UNSAFE)).status is Status.INFRA
    assert len(twice.seen) == 2


def test_one_layer_may_be_asked_for() -> None:
    sandbox = Sandbox(ladder=[Scripted(Layer.MONTY), Scripted(Layer.LANDLOCK, Status.OK)])
    assert sandbox.run(PROGRAM, only=Layer.LANDLOCK).layer is Layer.LANDLOCK


def with_layers(monkeypatch: pytest.MonkeyPatch, usable: Sequence[Layer]) -> None:
    monkeypatch.setattr(module, "make_runner", lambda layer, spares=1: Scripted(layer))
    monkeypatch.setattr(
        module, "why_unusable", lambda runner: None if runner.layer in usable else f"no {runner.layer} on this machine"
    )


@pytest.mark.parametrize(
    ("usable", "minimum", "unsafe", "expected"),
    [
        ("monty bubblewrap landlock", "landlock", False, "literal monty bubblewrap"),
        ("monty landlock", "landlock", False, "literal monty landlock"),
        ("monty bubblewrap landlock", "monty", False, "literal monty"),
        ("bubblewrap landlock", "bubblewrap", True, "literal bubblewrap"),
        ("monty landlock unsafe", "bubblewrap", False, "literal monty"),
        ("monty unsafe", "landlock", False, "literal monty"),
        ("monty unsafe", "landlock", True, "literal monty unsafe"),
        ("unsafe", "landlock", True, "literal unsafe"),
        ("landlock unsafe", "landlock", True, "literal landlock"),
    ],
)
def test_the_ladder_holds_what_works_and_nothing_below_the_minimum(
    monkeypatch: pytest.MonkeyPatch, usable: str, minimum: str, unsafe: bool, expected: str
) -> None:
    with_layers(monkeypatch, [Layer(name) for name in usable.split()])
    assert " ".join(Sandbox(minimum=Layer(minimum), unsafe=unsafe).layers) == expected


def test_a_machine_without_a_layer_is_refused_with_the_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    with_layers(monkeypatch, [Layer.LANDLOCK, Layer.UNSAFE])
    with pytest.raises(
        PreflightError, match=r"minimum=bubblewrap works here \(monty: no monty .*bubblewrap: no bubblewrap"
    ):
        Sandbox(minimum=Layer.BUBBLEWRAP).run(PROGRAM)


def test_what_is_absent_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with_layers(monkeypatch, [Layer.MONTY, Layer.LANDLOCK])
    assert Sandbox().absent == {Layer.BUBBLEWRAP: "no bubblewrap on this machine"}


@pytest.mark.parametrize("layer", [Layer.UNSAFE, Layer.LITERAL])
def test_no_run_declares_a_minimum_that_isolates_nothing(layer: Layer) -> None:
    with pytest.raises(ValueError, match="unsafe is asked for apart"):
        Sandbox(minimum=layer)


def test_closing_ends_every_layer() -> None:
    runners = [Scripted(Layer.MONTY), Scripted(Layer.BUBBLEWRAP)]
    Sandbox(ladder=runners).close()
    assert all(runner.is_closed for runner in runners)


def test_an_entry_is_a_name() -> None:
    with pytest.raises(ValueError, match="name of a function"):
        Program(code="", entry="f(); g")
