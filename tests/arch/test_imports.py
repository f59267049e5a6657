import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.arch.source import PACKAGES, ROOT

HEAVY = ("torch", "ray", "transformers", "peft", "pyarrow", "scipy")
MAX_IMPORT_S = 0.5


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_comes_from_this_checkout(package: str) -> None:
    file = importlib.import_module(package).__file__
    assert file is not None
    assert Path(file).resolve().parent == ROOT / package


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_importing_coharness_is_light_and_quick() -> None:
    code = (
        "import json, sys, time; began = time.perf_counter(); import coharness; took = time.perf_counter() - began; "
        f"print(json.dumps([took, [m for m in {HEAVY!r} if m in sys.modules]]))"
    )
    trials = [json.loads(run_python(code)) for _ in range(3)]
    assert all(loaded == [] for _, loaded in trials)
    assert min(took for took, _ in trials) <= MAX_IMPORT_S


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["resume", "--help"], ["show", "--help"]])
def test_help_loads_no_heavy_package(words: list[str]) -> None:
    code = (
        "import sys\nfrom coharness.cli import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    assert run_python(code).splitlines()[-1] == "[]"


def test_the_layers_hold() -> None:
    lint = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([str(lint)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
