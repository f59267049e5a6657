"""A cluster of this machine alone: what it has, read from the kernel, and what a run needs at least.

`measure` reads and changes nothing. Ray is not imported: the numbers must be right before it starts.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

OBJECT_STORE_BYTES = 256 << 20
"""Shared memory of a cluster that a run starts itself; episodes pass through it a batch at a time and are then on disk."""
MIN_MEMORY_BYTES = 2 << 30
"""A coordinator, two rollout workers, a trainer and the store with the tiny base take about so much."""
MIN_DISK_BYTES = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCluster:
    """One machine as a cluster."""

    num_cores: float
    "Cores this process may use; a container's share may be a fraction."
    memory_bytes: int
    "Memory that is available now."
    shm_bytes: int
    "Free shared memory, 0 where there is no /dev/shm."
    disk_bytes: int
    "Free disk where runs are written."


def measure(root: Path) -> LocalCluster:
    """This machine, with the disk that `root` lies on."""
    shm = Path("/dev/shm")
    return LocalCluster(
        num_cores=min(float(_allowed_cores()), _core_quota(Path("/sys/fs/cgroup/cpu.max"))),
        memory_bytes=_available_memory(Path("/proc/meminfo")),
        shm_bytes=shutil.disk_usage(shm).free if shm.is_dir() else 0,
        disk_bytes=shutil.disk_usage(root).free,
    )


def _allowed_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _core_quota(path: Path) -> float:
    """Cores that the control group allows, infinite where it sets no bound."""
    if not path.is_file():
        return float("inf")
    quota, period = path.read_text().split()[:2]
    return float("inf") if quota == "max" else float(quota) / float(period)


def _available_memory(path: Path) -> int:
    """Bytes, by the kernel's own estimate where it has one."""
    if path.is_file():
        for line in path.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
