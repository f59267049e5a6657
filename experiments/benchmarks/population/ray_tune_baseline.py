"""Ray Tune's PBT on the triangle toy, run by `study` with an interpreter that has `ray[tune]`; prints one JSON line.

    python ray_tune_baseline.py MEMBERS SEED MAX_STEPS TARGET

The trainable is the same arithmetic as `toys.Triangle`, as a class that Ray Tune reuses actors for; interval, checkpoints and
starting point are the same. Ray's scheduler draws from Python's global generator and takes no seed, so SEED names the run and no
more. This file belongs to another environment than its neighbours, and starts Ray as the peer's users do.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

INTERVAL = 5


def main(members: int, seed: int, max_steps: int, target: float) -> dict[str, Any]:
    """One search; its iterations and seconds."""
    import ray
    from ray import tune
    from ray.tune.schedulers import PopulationBasedTraining

    began = time.perf_counter()

    class Triangle(tune.Trainable):  # type: ignore[misc]
        """See `toys.Triangle`."""

        def setup(self, config: dict[str, Any]) -> None:
            self.rng = np.random.Generator(np.random.PCG64([seed, os.getpid(), time.time_ns()]))
            self.accuracy = 0.0

        def step(self) -> dict[str, float]:
            rate = self.config["lr"]
            best = 0.01 * self.accuracy / 100 if self.accuracy < 100 else 0.01 - 0.01 * (self.accuracy - 100) / 100
            best = min(0.01, max(0.001, best))
            error = max(rate, best) / min(rate, best)
            if error < 3:
                self.accuracy += self.rng.random() / error
            elif rate > best:
                self.accuracy -= (error - 3) * self.rng.random()
            self.accuracy = max(0.0, self.accuracy + 2 * self.rng.standard_normal())
            return {"score": self.accuracy, "at": time.time()}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            text = json.dumps([{"accuracy": self.accuracy}, self.rng.bit_generator.state])
            (Path(checkpoint_dir) / "state.json").write_text(text, encoding="utf-8")

        def load_checkpoint(self, checkpoint: str) -> None:
            state, generator = json.loads((Path(checkpoint) / "state.json").read_text(encoding="utf-8"))
            self.accuracy = state["accuracy"]
            self.rng.bit_generator.state = generator

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.config = new_config
            return True

    with tempfile.TemporaryDirectory() as folder:
        # Without the dashboard, whose processes would take part of the two cores from the search.
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
        tuner = tune.Tuner(
            Triangle,
            param_space={"lr": 1e-4},
            run_config=tune.RunConfig(
                storage_path=folder,
                verbose=0,
                stop={"score": target, "training_iteration": max_steps},
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=INTERVAL, num_to_keep=4),
            ),
            tune_config=tune.TuneConfig(
                metric="score",
                mode="max",
                num_samples=members,
                reuse_actors=True,
                scheduler=PopulationBasedTraining(
                    time_attr="training_iteration",
                    perturbation_interval=INTERVAL,
                    hyperparam_mutations={"lr": tune.loguniform(1e-4, 0.02)},
                ),
            ),
        )
        found = tuner.fit()
        ended = time.perf_counter()
        frames = [result.metrics_dataframe for result in found if result.metrics_dataframe is not None]
        ray.shutdown()
    reached = [
        int(f.loc[f["score"] >= target, "training_iteration"].min()) for f in frames if (f["score"] >= target).any()
    ]
    first = min(float(f["at"].min()) for f in frames)
    steps = sum(len(f) for f in frames)
    return {
        "steps_to_target": min(reached) if reached else None,
        "steps": steps,
        "seconds": ended - began,
        "marginal_seconds": max(float(f["at"].max()) for f in frames) - first,
        "ray": ray.__version__,
    }


if __name__ == "__main__":
    numbers = [float(word) for word in sys.argv[1:5]]
    sys.stdout.write("\n" + json.dumps(main(int(numbers[0]), int(numbers[1]), int(numbers[2]), numbers[3])) + "\n")
