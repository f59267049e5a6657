"""The doctor: says what this machine lacks for a run, and what to do about it. Changes nothing, raises nothing.

It must work where things are broken, so it imports neither ray nor torch nor any part of coharness; Ray is tried in a process
of its own, which is ended after a deadline.
"""

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from clusters.local import MIN_DISK_BYTES, MIN_MEMORY_BYTES, OBJECT_STORE_BYTES, LocalCluster, measure

PACKAGES = ("coharness", "actors", "clusters", "experiments")
MIN_PYTHON = (3, 11)
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
RAY_S = 240.0
"""Deadline of the trial start of Ray."""
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;#]+)")
_TRY_RAY = "import sys; from actors.session import probe; sys.stdout.write(probe())"


class Level(StrEnum):
    """What a finding means for a run."""

    OK = "ok"
    "As it should be."
    WARNING = "warning"
    "A run starts and may be slower or run other versions than those that were tested."
    ERROR = "error"
    "A run would not start, or not end."


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    what: str
    "What was looked at, in a word or two."
    message: str
    "What was found and, where it is not well, what to do."


def run_doctor(root: Path, *, with_ray: bool = False) -> list[Finding]:
    """All findings, in a fixed order.

    Args:
        root: the checkout.
        with_ray: whether to start a local Ray as a run does, check its workers' code, and end it (about 20 s).
    """
    machine = measure(root)
    findings = [
        check_python(sys.version_info[:3]),
        *check_packages(root / "clusters" / "environments" / "cpu.txt"),
        *(check_origin(name, root) for name in PACKAGES),
        *check_machine(machine),
        *check_environment(os.environ, machine.num_cores),
    ]
    if with_ray:
        findings.append(check_ray(root))
    return findings


def check_python(version: tuple[int, ...]) -> Finding:
    """Whether the interpreter is new enough."""
    text = ".".join(map(str, version))
    if version >= MIN_PYTHON:
        return Finding(level=Level.OK, what="python", message=text)
    need = ".".join(map(str, MIN_PYTHON))
    return Finding(
        level=Level.ERROR,
        what="python",
        message=f"{text} is older than {need}; make the environment with `make env PYTHON=python{need}`",
    )


def check_packages(pins: Path) -> Iterator[Finding]:
    """Whether the installed packages are those that are tested."""
    if not pins.is_file():
        yield Finding(level=Level.WARNING, what="packages", message=f"{pins} is missing, nothing to compare with")
        return
    wanted = read_pins(pins)
    installed = {name: _installed(name) for name in wanted}
    missing = sorted(name for name, version in installed.items() if version is None)
    other = sorted(
        f"{name} {version} instead of {wanted[name]}"
        for name, version in installed.items()
        if version is not None and version.partition("+")[0] != wanted[name]
    )
    if missing:
        message = f"{', '.join(missing)} not installed; run `make env`"
        yield Finding(level=Level.ERROR, what="packages", message=message)
    if other:
        message = f"other versions than those that are tested: {', '.join(other)}; run `make env`"
        yield Finding(level=Level.WARNING, what="packages", message=message)
    if not missing and not other:
        yield Finding(level=Level.OK, what="packages", message=f"{len(wanted)} as pinned in {pins.name}")


def check_origin(name: str, root: Path) -> Finding:
    """Whether a package is imported from this checkout and no other."""
    spec = importlib.util.find_spec(name)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    expected = (root / name).resolve()
    if not folders:
        message = f"cannot be imported; start from {root}, or install it with `make env`"
        return Finding(level=Level.ERROR, what=f"package {name}", message=message)
    found = Path(folders[0]).resolve()
    if found != expected:
        message = f"is imported from {found} instead of {expected}; leave the folder that holds another {name}"
        return Finding(level=Level.ERROR, what=f"package {name}", message=message)
    return Finding(level=Level.OK, what=f"package {name}", message=str(found))


def check_machine(machine: LocalCluster) -> Iterator[Finding]:
    """Whether cores, memory, shared memory and disk suffice."""
    cores = f"{machine.num_cores:g}"
    if machine.num_cores < 2:
        message = f"{cores}: generation and training share it, a run takes about twice as long"
        yield Finding(level=Level.WARNING, what="cores", message=message)
    else:
        yield Finding(level=Level.OK, what="cores", message=cores)
    yield _enough(
        "memory",
        machine.memory_bytes,
        MIN_MEMORY_BYTES,
        Level.ERROR,
        "end other programs, or set fleet.rollout_workers=1",
    )
    yield _enough(
        "shared memory",
        machine.shm_bytes,
        OBJECT_STORE_BYTES,
        Level.WARNING,
        "Ray will use slower files instead; enlarge /dev/shm (in a container: --shm-size=1g)",
    )
    yield _enough("disk", machine.disk_bytes, MIN_DISK_BYTES, Level.ERROR, "free some, or set run_dir to another disk")


def check_environment(environment: Mapping[str, str], num_cores: float) -> Iterator[Finding]:
    """Whether the environment would slow a run or send it elsewhere."""
    over = {
        name: environment[name]
        for name in THREAD_VARIABLES
        if environment.get(name, "").isdigit() and int(environment[name]) > num_cores
    }
    unset = [name for name in THREAD_VARIABLES if name not in environment]
    if over:
        settings = ", ".join(f"{name}={value}" for name, value in over.items())
        message = f"{settings} asks for more threads than there are cores; unset it, workers set their own"
        yield Finding(level=Level.WARNING, what="threads", message=message)
    else:
        message = "workers set their own" + (f" (not set here: {', '.join(unset)})" if unset else "")
        yield Finding(level=Level.OK, what="threads", message=message)
    if environment.get("RAY_ADDRESS"):
        message = f"RAY_ADDRESS={environment['RAY_ADDRESS']}: a run attaches to this cluster; unset it to run here"
        yield Finding(level=Level.WARNING, what="cluster", message=message)
    else:
        yield Finding(level=Level.OK, what="cluster", message="a run starts one on this machine and ends it")


def check_ray(root: Path) -> Finding:
    """Whether Ray starts as a run starts it, and its workers import this code."""
    try:
        ended = subprocess.run(
            [sys.executable, "-c", _TRY_RAY], cwd=root, capture_output=True, text=True, timeout=RAY_S, check=False
        )
    except subprocess.TimeoutExpired:
        message = f"did not start within {RAY_S:.0f} s; look for left-over processes of an earlier one"
        return Finding(level=Level.ERROR, what="ray", message=message)
    if ended.returncode != 0:
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        return Finding(level=Level.ERROR, what="ray", message=lines[-1] if lines else "ended without a word")
    return Finding(level=Level.OK, what="ray", message=ended.stdout.splitlines()[-1])


def read_pins(path: Path) -> dict[str, str]:
    """Package -> version of the lines `name==version`; all else is left out."""
    matches = (_PIN.match(line.strip()) for line in path.read_text(encoding="utf-8").splitlines())
    return {match[1]: match[2] for match in matches if match is not None}


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _enough(what: str, got: int, need: int, otherwise: Level, fix: str) -> Finding:
    text = f"{got / 2**30:.1f} GiB free"
    if got >= need:
        return Finding(level=Level.OK, what=what, message=text)
    return Finding(level=otherwise, what=what, message=f"{text}, a run needs {need / 2**30:.1f} GiB; {fix}")
