"""The optional package DeepSpeed: whether a usable one is installed, and how it is imported.

Reads metadata only, so a preflight can ask without loading torch. Invariant: whoever needs the package and does not have it
gets the line that installs it.
"""

import importlib
import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from coharness.records.errors import PreflightError

SERIES: Final = "0.19"
"""The series that the engine's inner state was read and tested in; `deepspeed_state` depends on it."""
INSTALL_LINE: Final = "pip install 'coharness-evolution[deepspeed]'"


def deepspeed_problem() -> str | None:
    """Why `training.backend=deepspeed` cannot run here, with the line that mends it; None where it can."""
    try:
        found = version("deepspeed")
    except PackageNotFoundError:
        return f"training.backend=deepspeed needs the package deepspeed, which is not installed; {INSTALL_LINE}"
    if not found.startswith(f"{SERIES}."):
        return f"training.backend=deepspeed was tested with deepspeed {SERIES}.*, found {found}; {INSTALL_LINE}"
    return None


def require_deepspeed() -> None:
    """Refuse to go on without a usable DeepSpeed.

    Raises:
        PreflightError: as `deepspeed_problem` says.
    """
    if (problem := deepspeed_problem()) is not None:
        raise PreflightError(problem)


def load_deepspeed() -> Any:
    """The package, imported for CPUs and without anything that compiles code.

    Raises:
        PreflightError: as `deepspeed_problem` says.
    """
    require_deepspeed()
    # Read once, when the package is imported.
    os.environ["DS_ACCELERATOR"] = "cpu"
    package = importlib.import_module("deepspeed")
    # Serves inference alone, and would be compiled for minutes by whoever joins a process group.
    importlib.import_module("deepspeed.ops").__compatible_ops__["deepspeed_shm_comm"] = False
    package.utils.logger.setLevel("WARNING")
    return package
