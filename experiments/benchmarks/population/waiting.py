"""A trainable that only waits: `seconds` a step, so that the wall time of a search is known beforehand."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Waiting:
    """Sleeps; a slow machine makes it no slower, so what is left over is the search's own time."""

    def __init__(self, hyperparameters: Mapping[str, Any], seed: int) -> None:
        self.hyperparameters = dict(hyperparameters)
        self.num_steps = 0

    def step(self) -> dict[str, float]:
        """Wait."""
        time.sleep(float(self.hyperparameters["seconds"]))
        self.num_steps += 1
        return {"score": float(self.num_steps)}

    def save(self, folder: Path) -> None:
        """Write the count."""
        (folder / "count").write_text(str(self.num_steps), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Read the count."""
        self.num_steps = int((folder / "count").read_text(encoding="utf-8"))
