"""The error family: one root, users' mistakes are ValueErrors, and a failure names one boundary."""

import pytest

from coharness.records import errors
from coharness.records.errors import Boundary, BoundaryError, CoharnessError, ConfigError, TaskError, boundary


def test_all_errors_are_of_one_family_that_the_module_draws() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 5
    for kind in kinds:
        assert issubclass(kind, CoharnessError)
        assert kind.__name__ in str(errors.__doc__)


def test_a_users_mistake_is_a_value_error() -> None:
    kinds = {kind for kind in CoharnessError.__subclasses__() if issubclass(kind, ValueError)}
    assert kinds == {ConfigError, TaskError}


def test_what_escapes_a_step_is_attributed_to_its_boundary_with_its_cause() -> None:
    cause = KeyError("gone")
    with pytest.raises(BoundaryError) as caught, boundary(Boundary.REPLAY):
        raise cause
    assert caught.value.boundary is Boundary.REPLAY
    assert caught.value.message == "KeyError: 'gone'"
    assert str(caught.value) == "replay: KeyError: 'gone'"
    assert caught.value.__cause__ is cause


def test_an_inner_boundary_keeps_its_name() -> None:
    with pytest.raises(BoundaryError) as caught, boundary(Boundary.WORKER), boundary(Boundary.VERIFIER):
        raise RuntimeError("broke")
    assert caught.value.boundary is Boundary.VERIFIER


def test_a_step_that_works_is_left_alone() -> None:
    with boundary(Boundary.TASK):
        value = 1
    assert value == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_a_request_to_stop_is_no_failure(kind: type[BaseException]) -> None:
    with pytest.raises(kind), boundary(Boundary.GENERATION):
        raise kind
