"""Our side, a process of its own as the peer's is: prints CPU seconds by rule as one JSON object."""

import json
import sys
from collections.abc import Callable

from experiments.benchmarks.merging.inputs import DENSITY, WEIGHTS, tensors
from experiments.benchmarks.merging.timing import cpu_seconds


def main(seed: int, width: int, repeats: int) -> None:
    import torch

    from coharness.evolution.merging import RULES

    base, parents = tensors(seed, width)
    maps, origin = [{"w": parent} for parent in parents], {"w": base}
    ties = RULES["ties"].configured({"density": DENSITY})
    target = torch.empty_like(base)
    calls: dict[str, Callable[[], object]] = {
        "linear": lambda: RULES["linear"].merge(maps, WEIGHTS),
        "task_arithmetic": lambda: RULES["task_arithmetic"].merge(maps, WEIGHTS, origin),
        "ties": lambda: ties(maps, WEIGHTS, origin),
        "copy": lambda: target.copy_(base),
    }
    print(json.dumps(cpu_seconds(calls, repeats)))


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
