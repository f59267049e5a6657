"""mergekit's side, run as a script by the Python of its own environment: prints CPU seconds by rule as one JSON object."""

import json
import sys
from collections.abc import Callable
from pathlib import Path


def main(seed: int, width: int, repeats: int) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from inputs import DENSITY, WEIGHTS, tensors  # type: ignore[import-not-found]
    from mergekit.merge_methods import merge_tensors  # type: ignore[import-not-found]
    from timing import cpu_seconds  # type: ignore[import-not-found]

    base, parents = tensors(seed, width)
    weight = list(WEIGHTS)
    calls: dict[str, Callable[[], object]] = {
        "linear": lambda: merge_tensors(parents, "linear", parameters={"weight": weight}),
        "task_arithmetic": lambda: merge_tensors(
            [base, *parents], "task_arithmetic", base_index=0, parameters={"weight": weight}
        ),
        "ties": lambda: merge_tensors(
            [base, *parents], "ties", base_index=0, parameters={"weight": weight, "density": DENSITY}
        ),
    }
    print(json.dumps(cpu_seconds(calls, repeats)))


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
