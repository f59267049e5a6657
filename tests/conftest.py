"""What holds for all tests."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# A property is about what comes out, not how fast on a busy machine; pytest's own timeout ends what hangs.
settings.register_profile("coharness", deadline=None)
settings.load_profile("coharness")


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_disks() -> Iterator[None]:
    """This process does not wait until its files are on a disk: tests kill processes, which lose nothing of what they wrote.

    A search or a run of some seconds waits a thousand times. Processes that tests start wait as they do for users.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield
