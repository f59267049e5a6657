"""The endpoint engine against a server on the loopback: what is sent, what is retried, what is late, what is refused."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from coharness.config.generation import EndpointSection, GenerationSection
from coharness.config.schema import PolicySection
from coharness.policy.bases import BaseSpec, resolve_base
from coharness.policy.generation.endpoint import EndpointGenerator
from coharness.policy.generation.endpoint_client import (
    Call,
    EndpointAborted,
    EndpointClient,
    EndpointLate,
    EndpointRefused,
    EndpointUnavailable,
)
from coharness.policy.generation.scripted import ScriptedGenerator
from coharness.records.episode import StopReason
from coharness.records.errors import BoundaryError, PreflightError, WeightsError
from coharness.records.policy import WeightsKind, WeightsRef
from coharness.records.protocols import GenerationRequest
from coharness.testing.endpoint_server import EndpointServer, Fault

BODY = {"model": "m", "prompt": [3, 4], "max_tokens": 4}


def weights(base: BaseSpec) -> WeightsRef:
    return WeightsRef(uri="", digest=base.digest, kind=WeightsKind.BASE, num_bytes=0, has_optimizer=False, canary=-31.0)


@contextmanager
def served(*faults: Fault, answer: str = "abc", **more: Any) -> Iterator[EndpointServer]:
    behind = ScriptedGenerator(lambda prompt, seed: answer)
    with EndpointServer(behind, weights(resolve_base("tiny")), faults=faults, **more) as server:
        yield server


@contextmanager
def client(server: EndpointServer, *, concurrency: int = 4, max_attempts: int = 3) -> Iterator[EndpointClient]:
    made = EndpointClient(server.url, api_key=None, concurrency=concurrency, max_attempts=max_attempts)
    yield made
    made.close()


@contextmanager
def generator(server: EndpointServer, **section: Any) -> Iterator[EndpointGenerator]:
    settings = EndpointSection(url=server.url, model="m", **{"check_canary": False, **section})
    made = EndpointGenerator(
        resolve_base("tiny"), PolicySection(), GenerationSection(engine="openai", endpoint=settings)
    )
    yield made
    made.close()


def request(**more: Any) -> GenerationRequest:
    given: dict[str, Any] = {"seed": 5, "position": 0, "temperature": 0.5, "max_new_tokens": 8, **more}
    return GenerationRequest(prompt_ids=(3, 4, 5), weights=weights(resolve_base("tiny")), **given)


def call(deadline_s: float = 60.0, path: str = "completions") -> Call:
    return Call(path=path, body=BODY, deadline_s=deadline_s)


@pytest.mark.parametrize("fault", [500, 503, 429, "drop", "garbage"])
def test_what_infrastructure_broke_is_sent_again(fault: Fault) -> None:
    with served(fault) as server, client(server) as c:
        (answer,) = c.send([call()])
        assert isinstance(answer, dict)
        assert answer["choices"][0]["text"] == "abc"[: len(answer["choices"][0]["token_ids"])]
        assert len(server.requests) == 2


@pytest.mark.parametrize("fault", [400, 401, 404, 422])
def test_what_the_server_refuses_is_never_sent_again(fault: int) -> None:
    with served(fault) as server, client(server) as c:
        (answer,) = c.send([call()])
        assert isinstance(answer, EndpointRefused)
        assert f"status {fault}: " in answer.message
        assert f"fault {fault}" in answer.message
        assert len(server.requests) == 1


def test_attempts_are_bounded_and_the_last_failure_is_named() -> None:
    with served(500, 500, 500) as server, client(server, max_attempts=3) as c:
        (answer,) = c.send([call()])
        assert isinstance(answer, EndpointUnavailable)
        assert "failed 3 times, at last: status 500" in answer.message
        assert len(server.requests) == 3


def test_a_deadline_ends_a_call_and_no_other() -> None:
    with served("hang") as server, client(server, concurrency=1) as c:
        late, fine = c.send([call(deadline_s=0.3), call()])
        assert isinstance(late, EndpointLate)
        assert isinstance(fine, dict)


def test_a_pause_that_the_server_asks_for_is_kept_and_counts_against_the_deadline() -> None:
    with served(429, retry_after_s=30) as server, client(server) as c:
        (answer,) = c.send([call(deadline_s=0.5)])
        assert isinstance(answer, EndpointUnavailable)
        assert "status 429" in answer.message
        assert len(server.requests) == 1


def test_an_endpoint_that_is_not_there_is_unavailable() -> None:
    with served() as server:
        url = server.url
    c = EndpointClient(url, api_key=None, concurrency=1, max_attempts=2)
    (answer,) = c.send([call()])
    assert isinstance(answer, EndpointUnavailable)
    c.close()


def test_an_abort_ends_what_is_in_flight_and_nothing_later() -> None:
    with served("hang", "hang") as server, client(server) as c:
        stop = threading.Timer(0.2, c.abort)
        stop.start()
        assert all(isinstance(answer, EndpointAborted) for answer in c.send([call(), call()]))
        stop.join()
        assert isinstance(c.send([call()])[0], dict)


def test_answers_stand_in_the_order_of_the_calls() -> None:
    with served() as server, client(server) as c:
        answers = c.send([Call(path="completions", body={**BODY, "model": str(i)}, deadline_s=60.0) for i in range(20)])
        assert [answer["model"] for answer in answers if isinstance(answer, dict)] == [str(i) for i in range(20)]


def test_a_url_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="begins with http"):
        EndpointClient("file:///etc", api_key=None, concurrency=1, max_attempts=1)


def test_a_request_says_what_the_loop_asked_for() -> None:
    with served() as server, generator(server) as g:
        g.generate([request(), request(position=3), request(seed=6)])
        bodies = [body for _, body in server.requests]
    assert {(tuple(b["prompt"]), b["max_tokens"], b["temperature"], b["model"]) for b in bodies} == {
        ((3, 4, 5), 8, 0.5, "m")
    }
    assert len({b["seed"] for b in bodies}) == 3
    assert all(0 <= b["seed"] < 2**31 for b in bodies)


def test_text_alone_is_encoded_again_with_its_end_token() -> None:
    base = resolve_base("tiny")
    with served(answer="abc", is_bare=True) as server, generator(server, logprobs=False) as g:
        (answer,) = g.generate([request()])
        assert answer.output_ids == g.codec.encode_completion("abc")
        assert answer.logprobs == [0.0] * 4
        assert (answer.stop_reason, answer.written_by) == (StopReason.EOS, base.digest)
        assert "return_token_ids" not in server.requests[0][1]
        (cut,) = g.generate([request(max_new_tokens=2)])
        assert (cut.output_ids, cut.stop_reason) == (g.codec.encode_completion("abc")[:2], StopReason.LENGTH)


def test_a_key_is_taken_from_the_environment_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "secret")
    with served() as server, generator(server, api_key_env="SOME_KEY") as g:
        g.generate([request()])
        assert server.keys == ["Bearer secret"]
    monkeypatch.delenv("SOME_KEY")
    with (
        served() as server,
        pytest.raises(PreflightError, match="SOME_KEY, which is not set"),
        generator(server, api_key_env="SOME_KEY"),
    ):
        pass


def test_an_endpoint_that_computes_otherwise_is_refused_before_it_answers() -> None:
    with served(score=lambda ids: [-2.0] * (len(ids) - 1)) as server, generator(server, check_canary=True) as g:
        with pytest.raises(WeightsError, match=r"log-probability of -62\.0"):
            g.generate([request()])
        assert len(server.requests) == 1


def test_one_that_agrees_is_asked_for_its_canary_once() -> None:
    with served(score=lambda ids: [-1.0] * (len(ids) - 1)) as server, generator(server, check_canary=True) as g:
        g.generate([request()])
        g.generate([request()])
        assert [bool(body.get("echo")) for _, body in server.requests] == [True, False, False]


def test_one_that_cannot_echo_is_refused_with_the_setting_that_helps() -> None:
    with (
        served() as server,
        generator(server, check_canary=True) as g,
        pytest.raises(BoundaryError, match="check_canary=false"),
    ):
        g.generate([request()])


def test_an_own_deadline_withdraws_and_the_section_s_fails() -> None:
    with served("hang") as server, generator(server) as g:
        (answer,) = g.generate([request(deadline_s=0.2)])
        assert (answer.output_ids, answer.stop_reason) == ([], StopReason.ABORTED)
    with (
        served("hang") as server,
        generator(server, request_s=0.2) as g,
        pytest.raises(BoundaryError, match="did not answer"),
    ):
        g.generate([request()])


def test_members_weights_are_refused() -> None:
    with served() as server, generator(server) as g, pytest.raises(WeightsError, match="this engine loads base"):
        g.generate([replace(request(), weights=replace(request().weights, kind=WeightsKind.LORA, uri="weights/p0/v1"))])


def test_an_answer_without_choices_is_a_failure_of_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as server, generator(server) as g:
        monkeypatch.setattr(server, "answer", lambda path, body: {"choices": []})
        with pytest.raises(BoundaryError, match="no choices"):
            g.generate([request()])
