"""One run directory with everything in it, shared by the tests that only read it."""

import shutil
from pathlib import Path

import pytest

from tests.unit.report.synthetic import config, eventful, sealed_json, write_sealed


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An eventful run with sealed readings; not to be changed."""
    run_dir = eventful(config(tmp_path_factory.mktemp("report") / "toy-run")).write()
    write_sealed(run_dir, sealed_json())
    return run_dir


@pytest.fixture
def run_copy(finished_run: Path, tmp_path: Path) -> Path:
    """The same run, to change."""
    return Path(shutil.copytree(finished_run, tmp_path / "copy"))
