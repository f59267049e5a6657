"""Projects in temporary folders whose `experiments` hides the one of this repository while a test runs."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coharness.studies.place import StudyPlace, locate
from tests.unit.studies.toy import forget_studies, run, write_project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with the toy, never run; the working directory while the test runs."""
    root = tmp_path / "project"
    write_project(root)
    yield from entered(root, monkeypatch)


@pytest.fixture(scope="session")
def ran_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose toy was run once; tests work on copies of it."""
    root = tmp_path_factory.mktemp("ran") / "project"
    write_project(root)
    with pytest.MonkeyPatch.context() as monkeypatch:
        for _ in entered(root, monkeypatch):
            run(locate("toy"))
    return root


@pytest.fixture
def ran(ran_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StudyPlace]:
    """The toy after a full run."""
    root = tmp_path / "project"
    shutil.copytree(ran_template, root)
    for entered_root in entered(root, monkeypatch):
        yield locate("toy", entered_root)


def entered(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make `root` the project that studies are imported from."""
    kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "experiments"}
    forget_studies()
    monkeypatch.syspath_prepend(str(root))
    monkeypatch.chdir(root)
    try:
        yield root
    finally:
        forget_studies()
        sys.modules.update(kept)
