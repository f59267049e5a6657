"""How fast, and in how little memory, does merging go beside mergekit and beside the dense SVD of an adapter merge?

Three arms: `memory` (one tensor of four parents, three rules), `lora` (four adapters in product space and by way of the dense
change), `disk` (four files into one, whole processes). mergekit runs in an environment of its own, named below; where it
is absent, what needs it is skipped and said to be. Both sides run one thread in processes of their own and take turns; what is
compared is CPU time, of whole processes on disk, of calls in memory.
"""

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coharness.records.errors import ConfigError
from coharness.studies.contract import Cell, StudyError, Summary
from experiments.benchmarks.merging.inputs import DENSITY, NUM_PARENTS, RULES, WEIGHTS
from experiments.benchmarks.merging.summary import summarise
from experiments.benchmarks.merging.timing import cpu_seconds

logger = logging.getLogger(__name__)

MERGEKIT = "0.1.5"
ENVIRONMENT = "COHARNESS_MERGEKIT_ENV"
"""Environment variable that names mergekit's virtual environment; `.venv-mergekit` of the project where it is not set."""
ROOT = Path(__file__).resolve().parents[3]
ROUNDS = 3
"""Times that each side's process runs, in turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergingStudy:
    """Merging beside its peers; see `coharness.studies.contract.Study`."""

    name: str = "benchmarks/merging"
    question: str = "How much CPU time and memory does merging take beside mergekit and beside a dense SVD?"
    num_seeds: int = 3
    cell_deadline_s: float = 3600.0

    def budget(self, *, quick: bool, rollouts: int | None) -> Mapping[str, float]:
        """Entries of a tensor; there are no rollouts."""
        if rollouts is not None:
            raise ConfigError("experiments/benchmarks/merging rolls nothing out; leave --rollouts away")
        return {"entries": _width(quick) ** 2}

    def cells(self, seeds: Sequence[int], *, quick: bool, rollouts: int | None) -> list[Cell]:
        """Each arm under each seed; run them one at a time (`--parallel 1`), since they are timed."""
        config = {
            "width": _width(quick),
            "repeats": 1 if quick else 5,
            "rounds": 1 if quick else ROUNDS,
            "num_tensors": 1 if quick else 8,
            "mergekit": _mergekit_version(),
        }
        arms = ("lora",) if quick else ("disk", "memory", "lora")
        return [Cell(arm=arm, seed=seed, config=config) for seed in seeds for arm in arms]

    def run_cell(self, cell: Cell, folder: Path) -> dict[str, Any]:
        """Measure one arm."""
        if cell.arm == "lora":
            return _lora(cell)
        if cell.config["mergekit"] is None:
            return {"skipped": f"mergekit {MERGEKIT} is not there; see the README for its environment"}
        return _memory(cell) if cell.arm == "memory" else _disk(cell, folder / "disk")

    def summarise(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
        """Ratios to the peers; see `summary`."""
        return summarise(cells)


def _width(quick: bool) -> int:
    return 256 if quick else 2048


def environment() -> Path:
    """Where mergekit is looked for."""
    return Path(os.environ.get(ENVIRONMENT) or ROOT / ".venv-mergekit")


def _mergekit_version() -> str | None:
    python = environment() / "bin" / "python"
    if not python.is_file():
        return None
    code = "from importlib.metadata import version; print(version('mergekit'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _memory(cell: Cell) -> dict[str, Any]:
    words = [str(cell.seed), str(cell.config["width"]), str(cell.config["repeats"])]
    commands = {
        "ours": [sys.executable, "-m", "experiments.benchmarks.merging.ours", *words],
        "mergekit": [str(environment() / "bin" / "python"), str(Path(__file__).with_name("peer.py")), *words],
    }
    found: dict[str, list[Mapping[str, float]]] = {side: [] for side in commands}
    for turn in range(cell.config["rounds"]):
        for side, command in commands.items():
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)
            if done.returncode:
                raise StudyError(f"{side} failed: {done.stderr[-800:]}")
            found[side].append(json.loads(done.stdout.splitlines()[-1]))
            logger.info("round %s, %s: %s", turn + 1, side, found[side][-1])
    return {side: {name: min(turn[name] for turn in turns) for name in turns[0]} for side, turns in found.items()}


def _lora(cell: Cell) -> dict[str, Any]:
    import torch

    from coharness.evolution.merging import LoraSpec, merge_lora

    width, rank = cell.config["width"], 16
    generator = torch.Generator().manual_seed(cell.seed)
    spec = LoraSpec(rank=rank, alpha=float(rank), target_modules=("q",))
    adapters = [
        (
            spec,
            {
                "q.lora_A.weight": torch.randn(rank, width, generator=generator),
                "q.lora_B.weight": torch.randn(width, rank, generator=generator),
            },
        )
        for _ in range(NUM_PARENTS)
    ]

    def dense() -> torch.Tensor:
        # As PEFT's combination_type="svd" goes: the full change, its full SVD, cut.
        total = torch.zeros(width, width)
        for weight, (_, tensors) in zip(WEIGHTS, adapters, strict=True):
            total += weight * (tensors["q.lora_B.weight"] @ tensors["q.lora_A.weight"])
        u, s, vh = torch.linalg.svd(total)
        cut: torch.Tensor = (u[:, :rank] * s[:rank]) @ vh[:rank]
        return cut

    def product() -> torch.Tensor:
        found = merge_lora(adapters, WEIGHTS, rank).tensors
        return found["q.lora_B.weight"] @ found["q.lora_A.weight"]

    torch.set_num_threads(1)
    distance = float((dense() - product()).norm() / dense().norm())
    if distance > 1e-4:
        raise StudyError(
            f"the two ways of merging adapters differ by {distance:.2g} of the change; expected rounding alone"
        )
    ours = cpu_seconds({"product": lambda: merge_lora(adapters, WEIGHTS, rank)}, cell.config["repeats"] * 5)
    return {**ours, **cpu_seconds({"dense": dense}, cell.config["repeats"]), "distance": distance}


def _disk(cell: Cell, folder: Path) -> dict[str, Any]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # In a process of its own: what it holds would count as ours.
    code = "import sys; from pathlib import Path; from experiments.benchmarks.merging.inputs import write_files as w; "
    words = [str(folder), str(cell.seed), str(cell.config["width"]), str(cell.config["num_tensors"])]
    subprocess.run(
        [sys.executable, "-c", code + "f, *n = sys.argv[1:]; w(Path(f), *map(int, n))", *words], cwd=ROOT, check=True
    )
    parents = [folder / f"p{i}.safetensors" for i in range(NUM_PARENTS)]
    found: dict[str, dict[str, list[float]]] = {}
    for turn in range(cell.config["rounds"]):
        for rule in RULES:
            for side, command in (
                ("ours", _our_command(rule, folder, parents)),
                ("mergekit", _peer_command(rule, folder, parents)),
            ):
                cpu_s, peak_bytes = _measured(command)
                taken = found.setdefault(f"{side}/{rule}", {"cpu_s": [], "peak_bytes": []})
                taken["cpu_s"].append(cpu_s)
                taken["peak_bytes"].append(peak_bytes)
                logger.info("round %s, %s by %s: %.2f s, %.0f MB", turn + 1, rule, side, cpu_s, peak_bytes / 1e6)
                shutil.rmtree(folder / "out", ignore_errors=True)
                (folder / "out.safetensors").unlink(missing_ok=True)
    shutil.rmtree(folder)
    return {key: {name: min(values) for name, values in taken.items()} for key, taken in found.items()}


def _our_command(rule: str, folder: Path, parents: Sequence[Path]) -> list[str]:
    options = ["--rule", rule, "--weights", ",".join(map(str, WEIGHTS))]
    options += [] if rule == "linear" else ["--base", str(folder / "base.safetensors")]
    options += ["--set", f"density={DENSITY}"] if rule == "ties" else []
    return [sys.executable, "-m", "coharness", "merge", str(folder / "out.safetensors"), *map(str, parents), *options]


def _peer_command(rule: str, folder: Path, parents: Sequence[Path]) -> list[str]:
    density = {"density": DENSITY} if rule == "ties" else {}
    config: dict[str, Any] = {
        "merge_method": rule,
        "models": [
            {"model": str(path), "parameters": {"weight": weight, **density}}
            for path, weight in zip(parents, WEIGHTS, strict=True)
        ],
        "dtype": "float32",
        "out_dtype": "bfloat16",
    }
    if rule != "linear":
        config["base_model"] = str(folder / "base.safetensors")
    path = folder / f"{rule}.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    return [str(environment() / "bin" / "mergekit-pytorch"), str(path), str(folder / "out")]


def _measured(command: Sequence[str]) -> tuple[float, float]:
    """(CPU seconds, peak resident bytes) of a process and of all it waited for."""
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    _, errors = process.stderr, process.stderr.read() if process.stderr else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise StudyError(f"{' '.join(command[:4])} ... ended with {process.returncode}: {errors[-800:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024.0


STUDY = MergingStudy()
