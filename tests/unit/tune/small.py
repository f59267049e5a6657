"""Small trainables and searches for tests."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coharness.tune.config import TuneConfig, tune_config_from
from coharness.tune.core import Context
from coharness.tune.files import SearchDir

HERE = str(Path(__file__).resolve())


class Climber:
    """Goes up by its rate, with noise from a generator of its own; can be changed, merged and reseeded."""

    def __init__(self, hyperparameters: Mapping[str, Any], seed: int) -> None:
        self.hyperparameters = dict(hyperparameters)
        self.height, self.seed = 0.0, seed % 1000

    def step(self) -> dict[str, float]:
        self.seed = (self.seed * 48271 + 11) % 2147483647
        self.height += self.hyperparameters["rate"] + 0.1 * (self.seed / 2147483647 - 0.5)
        return {"score": self.height, "half": self.height / 2}

    def save(self, folder: Path) -> None:
        (folder / "state.json").write_text(json.dumps([self.height, self.seed]))

    def load(self, folder: Path) -> None:
        self.height, self.seed = json.loads((folder / "state.json").read_text())

    def apply(self, hyperparameters: Mapping[str, Any]) -> Mapping[str, Any]:
        self.hyperparameters = dict(hyperparameters)
        return self.hyperparameters

    def merge(self, folders: Sequence[Path], weights: Sequence[float]) -> None:
        states = [json.loads((folder / "state.json").read_text()) for folder in folders]
        self.height = sum(w * s[0] for w, s in zip(weights, states, strict=True))
        self.seed = states[0][1]

    def reseed(self, seed: int) -> None:
        self.seed = seed % 2147483647


class Plain:
    """Has step, save and load alone."""

    def __init__(self, hyperparameters: Mapping[str, Any], seed: int) -> None:
        self.rate, self.height = hyperparameters["rate"], 0.0

    def step(self) -> float:
        self.height += self.rate
        return self.height

    def save(self, folder: Path) -> None:
        (folder / "height").write_text(repr(self.height))

    def load(self, folder: Path) -> None:
        self.height = float((folder / "height").read_text())


class Forgetful(Climber):
    """Its checkpoint misses the generator."""

    def load(self, folder: Path) -> None:
        self.height, _ = json.loads((folder / "state.json").read_text())


class Stubborn(Climber):
    """Brings its old hyperparameters back with its weights, and ignores new ones."""

    def save(self, folder: Path) -> None:
        super().save(folder)
        (folder / "h.json").write_text(json.dumps(self.hyperparameters))

    def load(self, folder: Path) -> None:
        super().load(folder)
        self.hyperparameters = json.loads((folder / "h.json").read_text())

    def apply(self, hyperparameters: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.hyperparameters


class Breaks(Climber):
    """Fails above a rate, in several ways."""

    def step(self) -> dict[str, float]:
        found = super().step()
        if self.hyperparameters["rate"] > 0.8:
            raise RuntimeError("diverged")
        return {**found, "score": float("nan")} if self.hyperparameters["rate"] > 0.6 else found


class Broken(Climber):
    """Always fails."""

    def step(self) -> dict[str, float]:
        raise RuntimeError("no luck")


class Dies(Climber):
    """Takes its process with it, hangs, or chatters on standard output, by its rate."""

    def step(self) -> dict[str, float]:
        rate = self.hyperparameters["rate"]
        if rate > 0.9:
            os._exit(3)
        if rate > 0.8:
            time.sleep(600)
        print("a trainable may print")
        return super().step()


class Incomplete:
    """Lacks save and load."""

    def __init__(self, hyperparameters: Mapping[str, Any], seed: int) -> None:
        self.hyperparameters = hyperparameters

    def step(self) -> float:
        return 1.0


def config(folder: Path, kind: type = Climber, **changes: Any) -> TuneConfig:
    data: dict[str, Any] = {
        "run_dir": str(folder),
        "trainable": f"{HERE}:{kind.__name__}",
        "space": {"rate": {"type": "float", "low": 0.0, "high": 1.0}},
        "members": 4,
        "interval": 3,
        "budget": {"steps": 30},
        "pool": {"type": "inline"},
        **changes,
    }
    return tune_config_from(data)


def context(folder: Path) -> tuple[SearchDir, Context]:
    from coharness.tune.config import load_tune_config

    search = SearchDir.open(folder)
    return search, Context.of(load_tune_config(search.config_path))
