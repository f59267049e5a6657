"""Thirty kinds of abuse against every sandbox layer: each does what the committed table says, and the table promises enough."""

import json
from collections.abc import Iterator
from importlib import resources

import pytest

from coharness.reward.sandbox import Layer
from coharness.reward.sandbox.abuse import ATTEMPTS, Attempt, Verdict, expected_verdict, run_attempt
from coharness.reward.sandbox.abuse.bait import Bait, lay_out
from coharness.reward.sandbox.ladder import STRENGTH, LayerRunner, make_runner, why_unusable

ISOLATING = [layer for layer in STRENGTH if layer is not Layer.UNSAFE]


@pytest.fixture(scope="module")
def bait() -> Iterator[Bait]:
    with lay_out() as made:
        yield made


@pytest.fixture(scope="module", params=STRENGTH)
def runner(request: pytest.FixtureRequest) -> Iterator[LayerRunner]:
    made = make_runner(request.param)
    reason = why_unusable(made)
    if reason is not None:
        made.close()
        pytest.skip(f"{request.param} is absent here: {reason}")
    yield made
    made.close()


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: f"{attempt.number}-{attempt.name}")
def test_each_layer_does_what_the_table_says(runner: LayerRunner, attempt: Attempt, bait: Bait) -> None:
    found = run_attempt(runner, attempt, bait)
    if runner.layer is Layer.UNSAFE:
        # It promises nothing: what a group kill catches of a fork bomb depends on who is faster.
        assert found.verdict in (found.expected, Verdict.NOT_CONTAINED), found.evidence
        return
    assert found.verdict is found.expected, found.evidence


def test_the_attempts_are_thirty_and_each_has_its_row() -> None:
    assert [attempt.number for attempt in ATTEMPTS] == list(range(1, 31))
    text = resources.files("coharness.reward.sandbox.abuse").joinpath("verdicts.json").read_text(encoding="utf-8")
    rows = json.loads(text)["attempts"]
    assert [(row["number"], row["name"]) for row in rows] == [(attempt.number, attempt.name) for attempt in ATTEMPTS]


def test_no_layer_that_isolates_is_expected_to_let_anything_through() -> None:
    for layer in ISOLATING:
        verdicts = {expected_verdict(layer, attempt.number) for attempt in ATTEMPTS}
        assert Verdict.NOT_CONTAINED not in verdicts, layer
    for layer in (Layer.BUBBLEWRAP, Layer.LANDLOCK):
        assert {expected_verdict(layer, attempt.number) for attempt in ATTEMPTS} == {Verdict.CONTAINED}


def test_the_battery_can_tell_a_layer_that_does_not_isolate() -> None:
    reached = [a.number for a in ATTEMPTS if expected_verdict(Layer.UNSAFE, a.number) is Verdict.NOT_CONTAINED]
    assert {8, 9, 10, 25, 30} <= set(reached)
