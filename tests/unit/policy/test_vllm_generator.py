"""The vLLM generator's own half, against a process that speaks its language: lives, deaths, silence, refusals."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from coharness.config.generation import GenerationSection, VllmSection
from coharness.config.schema import PolicySection
from coharness.policy.bases import resolve_base
from coharness.policy.generation import vllm_extra
from coharness.policy.generation.vllm_engine import VllmGenerator
from coharness.records.episode import StopReason
from coharness.records.errors import Boundary, BoundaryError, PreflightError, WeightsError
from coharness.records.policy import WeightsKind, WeightsRef
from coharness.records.protocols import GenerationRequest
from tests.unit.policy import engine_double as double

WEIGHTS = WeightsRef(
    uri="weights/p0/v1", digest="d1", kind=WeightsKind.LORA, num_bytes=1, has_optimizer=False, canary=0.0
)


def request(first: int = 20) -> GenerationRequest:
    return GenerationRequest(
        prompt_ids=(first, 21), weights=WEIGHTS, seed=1, position=0, temperature=1.0, max_new_tokens=4
    )


def engine(run_dir: Path, *, eager: bool = True, stall_s: float = 60.0) -> VllmGenerator:
    section = GenerationSection(engine="vllm", vllm=VllmSection(eager=eager, stall_s=stall_s))
    policy = PolicySection(weights="lora")
    return VllmGenerator(
        resolve_base("tiny"), run_dir, policy, section, num_threads=1, module="tests.unit.policy.engine_double"
    )


@pytest.fixture
def generator(tmp_path: Path) -> Iterator[VllmGenerator]:
    made = engine(tmp_path)
    yield made
    made.close()


def is_there(pid: int | None) -> bool:
    assert pid is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_answers_come_back_in_order_with_their_stamps(generator: VllmGenerator) -> None:
    answers = generator.generate([request(20), request(30)])
    assert [(a.output_ids, a.written_by) for a in answers] == [([20, 21], "d1"), ([30, 21], "d1")]


def test_it_says_what_it_can_do(generator: VllmGenerator) -> None:
    able = generator.capabilities
    assert (able.name, able.kinds, able.counter_noise, able.exact_tokens) == ("vllm", {"base", "lora"}, True, True)


def test_refusals_are_the_caller_s_errors_and_the_process_lives_on(generator: VllmGenerator) -> None:
    pid = generator.pid
    with pytest.raises(WeightsError, match="these weights are not right"):
        generator.generate([request(double.WEIGHTS)])
    with pytest.raises(ValueError, match="this value is not right"):
        generator.generate([request(double.VALUE)])
    assert generator.generate([request()])[0].output_ids == [20, 21]
    assert generator.pid == pid


@pytest.mark.parametrize(
    ("first", "message"),
    [(double.DIE, "died; the end of .*the engine says why it died"), (double.FAIL, "a kernel failed")],
)
def test_an_engine_that_fails_is_ended_and_replaced_at_the_next_call(
    generator: VllmGenerator, first: int, message: str
) -> None:
    pid = generator.pid
    with pytest.raises(BoundaryError, match=message) as caught:
        generator.generate([request(first)])
    assert caught.value.boundary is Boundary.GENERATION
    assert not is_there(pid)
    assert generator.generate([request()])[0].output_ids == [20, 21]
    assert generator.pid != pid


def test_silence_ends_the_engine(tmp_path: Path) -> None:
    generator = engine(tmp_path, stall_s=0.5)
    pid = generator.pid
    with pytest.raises(BoundaryError, match=r"no sign of life for 0\.5 s"):
        generator.generate([request(double.SILENT)])
    assert not is_there(pid)
    generator.close()


def test_signs_of_life_keep_a_long_call_going_until_it_is_aborted(tmp_path: Path) -> None:
    generator = engine(tmp_path, stall_s=5.0)
    stop = threading.Timer(0.3, generator.abort)
    stop.start()
    answer = generator.generate([request(double.SLOW)])[0]
    stop.join()
    assert answer.stop_reason is StopReason.ABORTED
    generator.close()


def test_an_engine_that_cannot_start_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BoundaryError, match=r"did not start: .*no compiler here"):
        engine(tmp_path, eager=False)


def test_closing_ends_the_process_and_may_be_repeated(generator: VllmGenerator) -> None:
    pid = generator.pid
    generator.close()
    generator.close()
    assert not is_there(pid)
    assert generator.pid is None


def test_no_requests_ask_nothing_of_the_process(generator: VllmGenerator) -> None:
    generator.close()
    assert generator.generate([]) == []
    assert generator.pid is None


def test_without_vllm_the_message_has_the_install_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_extra, "vllm_version", lambda: None)
    with pytest.raises(PreflightError, match=r"needs vLLM.*pip install 'coharness-evolution\[vllm\]'"):
        VllmGenerator(resolve_base("tiny"), tmp_path, PolicySection(), GenerationSection(engine="vllm"), num_threads=1)
