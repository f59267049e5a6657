"""One measurement of one side, in a process of its own, and the order in which a comparison takes them.

What is measured is written into the cell's folder at once, so that a cell that was interrupted goes on with the next measurement.
Every side is pinned to the same cores; how many threads a numeric library may use is told to it before it loads.
"""

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coharness.policy.bases import tiny_path
from coharness.studies.contract import StudyError
from experiments.benchmarks.loop.arms import CORES, HERE, SHARED, Comparison, Side, max_tokens, run_config

logger = logging.getLogger(__name__)
ROOT = HERE.parents[2]
PYTHON = "COHARNESS_TRL_PYTHON"
TRL_VERSION = "1.16.0"
MEASURE_S = 3600.0
"""A measurement that takes longer is hung."""
WIDTH_10M, LAYERS_10M = 384, 5
"""Shape of the base of 9.6 M parameters."""


def trl_python() -> Path:
    """The interpreter of TRL's environment."""
    return Path(os.environ.get(PYTHON) or ROOT / ".venv-trl" / "bin" / "python")


def trl_version() -> str | None:
    """TRL's version there, None where there is none."""
    if not trl_python().is_file():
        return None
    code = "from importlib.metadata import version; print(version('trl'))"
    done = subprocess.run([trl_python(), "-c", code], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def compare(comparison: Comparison, *, seed: int, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Measurements of every side, round by round.

    Raises:
        StudyError: TRL is asked for and not there, or a side failed; the message holds the end of what it said.
    """
    if any(side.is_trl for side in comparison.sides) and trl_version() != TRL_VERSION:
        raise StudyError(
            f"TRL {TRL_VERSION} is not there ({trl_python()} has {trl_version() or 'none'}); `make env-trl` makes its "
            f"environment, or name an interpreter that has it in {PYTHON}"
        )
    base = base_of(comparison, seed, folder)
    found: dict[str, list[dict[str, Any]]] = {side.name: [] for side in comparison.sides}
    for number in range(comparison.rounds):
        for side in comparison.sides[:: -1 if number % 2 else 1]:
            kept = folder / f"round-{number}-{side.name}.json"
            if not kept.is_file():
                result = _measure(comparison, side, seed=seed, base=base, folder=folder, number=number)
                _write(kept, result)
                logger.info("round %d, %s: %s", number, side.name, result)
            found[side.name].append(json.loads(kept.read_text(encoding="utf-8")))
    return found


def base_of(comparison: Comparison, seed: int, folder: Path) -> Path:
    """The base that both sides load."""
    if comparison.base == "1m":
        return tiny_path()
    made = folder / "base"
    if not made.is_dir():
        from transformers import LlamaConfig

        from coharness.policy.tiny import build_tokenizer, new_model, save_base, tiny_config

        shape = tiny_config().to_dict() | {
            "hidden_size": WIDTH_10M,
            "intermediate_size": 3 * WIDTH_10M,
            "num_hidden_layers": LAYERS_10M,
            "num_attention_heads": WIDTH_10M // 32,
            "num_key_value_heads": WIDTH_10M // 32,
        }
        save_base(new_model(LlamaConfig(**shape), seed), build_tokenizer(), made, {"seed": seed})
    return made


def _measure(comparison: Comparison, side: Side, *, seed: int, base: Path, folder: Path, number: int) -> dict[str, Any]:
    name = f"{number}-{side.name}"
    spec: dict[str, Any] = {
        "lengths": comparison.lengths,
        "warm_updates": comparison.warm_updates,
        "updates": comparison.updates,
        "cores": list(CORES),
    }
    prompts = folder / "prompts.json"
    place = folder / f"run-{name}"
    shutil.rmtree(place, ignore_errors=True)
    if side.is_trl:
        rows = json.loads(prompts.read_text(encoding="utf-8"))
        if comparison.task == "":
            spec["updates"] = len(rows["prompts"]) // SHARED["groups_per_update"] - comparison.warm_updates
        spec |= {
            **rows,
            "base": str(base),
            "reward": comparison.reward,
            "threads": side.threads,
            "shared": dict(SHARED),
            "max_tokens": max_tokens(comparison),
            "seed": seed,
            "folder": str(place),
            "save_to": str(place / "weights") if comparison.task == "" else None,
        }
        words = [str(trl_python()), str(HERE / "peer.py")]
    else:
        spec |= {
            "config": run_config(comparison, side, seed=seed, run_dir=place, base=str(base)),
            "prompts_to": str(prompts) if number == 0 and side is comparison.sides[0] else None,
        }
        words = [sys.executable, "-m", "experiments.benchmarks.loop.ours"]
    path = folder / f"spec-{name}.json"
    path.write_text(json.dumps(spec), encoding="utf-8")
    load = os.getloadavg()[0]
    done = subprocess.run(
        [*words, str(path)],
        cwd=ROOT,
        env={**os.environ, **_threads(side.threads)},
        capture_output=True,
        text=True,
        timeout=MEASURE_S,
        check=False,
    )
    if done.returncode:
        raise StudyError(f"{comparison.name}, {side.name} ended with {done.returncode}: {done.stderr[-1500:]}")
    if comparison.task:
        shutil.rmtree(place, ignore_errors=True)
    return {**json.loads(done.stdout.splitlines()[-1]), "load_before": load}


def _threads(number: int) -> dict[str, str]:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {**{name: str(number) for name in names}, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


def _write(path: Path, result: Mapping[str, Any]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(result), encoding="utf-8")
    temporary.replace(path)
