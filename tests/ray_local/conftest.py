"""One Ray session for all tests of this folder: starting one takes longer than all of them."""

import importlib
from collections.abc import Iterator

import pytest

from actors.session import Session, session


@pytest.fixture(scope="session")
def ray_session() -> Iterator[Session]:
    # As a library may have done before the session begins: the cluster must be of this machine alone all the same.
    importlib.import_module("ray")
    with session(num_cpus=16, threads_per_worker=1) as opened:
        yield opened
