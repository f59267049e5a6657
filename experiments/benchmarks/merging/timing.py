"""CPU seconds of calls in this process, one thread. Imports nothing of coharness: the peer's side runs it too."""

import statistics
import time
from collections.abc import Callable, Mapping


def cpu_seconds(calls: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median CPU seconds of each call after one that is not counted; the calls take turns."""
    import torch

    torch.set_num_threads(1)
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, call in calls.items():
            began = time.process_time()
            call()
            if turn:
                taken[name].append(time.process_time() - began)
    return {name: statistics.median(times) for name, times in taken.items()}
