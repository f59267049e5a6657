"""The session: what workers import is what this process imports, or there is no run."""

import socket
from dataclasses import replace

import pytest

from actors.options import Factories, resolve
from actors.session import PACKAGES, Session, check_address, check_worker_code, compare_origins, origins, project_root
from coharness.records.errors import PreflightError


def test_the_workers_of_this_session_import_this_checkout(ray_session: Session) -> None:
    assert ray_session.owned
    assert ray_session.address.startswith("127.0.0.1:")
    check_worker_code()
    assert {origin.path for origin in origins().values()} == {str(project_root() / name) for name in PACKAGES}


def test_a_difference_names_the_package_and_both_paths() -> None:
    here = origins()
    there = {**here, "actors": replace(here["actors"], path="/elsewhere/actors", digest="other")}
    with pytest.raises(PreflightError, match=r"'actors' differs.*/actors here, /elsewhere/actors there"):
        compare_origins(here, there, "node")
    there = {**here, "coharness": replace(here["coharness"], digest="other")}
    with pytest.raises(PreflightError, match="same path, other contents"):
        compare_origins(here, there, "node")
    compare_origins(here, dict(here), "node")


def test_the_factories_exist() -> None:
    factories = Factories()
    for dotted in (factories.rollout, factories.jobs, factories.replay, factories.weights, factories.engine):
        assert callable(resolve(dotted))


def test_a_factory_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match=r"coharness\.loop\.build has no function 'nothing'"):
        resolve("coharness.loop.build:nothing")
    with pytest.raises(ValueError, match=r"is written `package\.module:function`"):
        resolve("coharness.loop.build")


@pytest.mark.parametrize("address", ["ray://head:10001", "head", "head:port"])
def test_an_address_of_another_kind_is_refused(address: str) -> None:
    with pytest.raises(PreflightError, match="expected host:port"):
        check_address(address)


def test_an_address_where_nothing_answers_is_refused_at_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        # Bound and not listening: the port is nobody else's, and refuses.
        with pytest.raises(PreflightError, match=f"nothing answers at RAY_ADDRESS=127.0.0.1:{port}"):
            check_address(f"127.0.0.1:{port}")
    check_address("auto")
