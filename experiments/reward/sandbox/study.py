"""What does each sandbox layer cost a call, and does any ever find a right program wrong?

A cell is one layer: all HumanEval references as candidates, the time of each call by the host's clock, and the attempts at
abuse. `ladder` is what a run uses: every layer that works here, from the cheapest on. Times are this machine's, one process on
one core, with one guest kept ready; throughput counts what that costs, latency does not.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coharness.config.sandbox import CodeTasks
from coharness.records.errors import ConfigError
from coharness.reward.sandbox import CodeTest, Layer, Limits, Program, Sandbox, Status
from coharness.reward.sandbox.abuse import Verdict, run_battery
from coharness.reward.sandbox.examination import prepare
from coharness.reward.sandbox.grade import assemble
from coharness.reward.sandbox.ladder import make_runner, why_unusable
from coharness.studies.contract import Cell, Figure, StudyError, Summary, Table
from coharness.tasks.code import CodeSource

QUICK_DATA = Path(__file__).with_name("quick.jsonl")
HUMANEVAL = Path("shared") / "data" / "humaneval" / "HumanEval.jsonl.gz"
ARMS = ("ladder", Layer.MONTY.value, Layer.BUBBLEWRAP.value, Layer.LANDLOCK.value, Layer.UNSAFE.value)
ROUNDS = 3
LIMITS = Limits(timeout_s=30.0)
"""Far above what a reference takes, so that a crowded machine is not taken for a fault of the sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxStudy:
    """Cost and soundness of the layers; see `coharness.studies.contract.Study`."""

    name: str = "reward/sandbox"
    question: str = "What does each sandbox layer cost a call, and does any ever find a right program wrong?"
    num_seeds: int = 1
    cell_deadline_s: float = 1800.0

    def budget(self, *, quick: bool, rollouts: int | None) -> Mapping[str, float]:
        """Rounds over the references."""
        if rollouts is not None:
            raise ConfigError("reward/sandbox rolls nothing out; leave --rollouts out")
        return {"rounds": 1 if quick else ROUNDS}

    def cells(self, seeds: Sequence[int], *, quick: bool, rollouts: int | None) -> list[Cell]:
        """One cell a layer."""
        rounds = int(self.budget(quick=quick, rollouts=rollouts)["rounds"])
        path = QUICK_DATA if quick else data_file()
        config = {"rounds": rounds, "quick": quick, "data": hashlib.sha256(path.read_bytes()).hexdigest()}
        return [Cell(arm=arm, seed=seed, config=config) for seed in seeds for arm in ARMS]

    def run_cell(self, cell: Cell, folder: Path) -> dict[str, Any]:
        """Calls of one layer, and what became of the attempts; only the reason where it is absent here."""
        quick = bool(cell.config["quick"])
        layer = None if cell.arm == "ladder" else Layer(cell.arm)
        runner = None if layer is None else make_runner(layer)
        reason = None if runner is None else why_unusable(runner)
        if reason is not None:
            return {"absent": reason}
        sandbox = Sandbox(limits=LIMITS) if runner is None else Sandbox(ladder=[runner], limits=LIMITS)
        judge = Sandbox(limits=LIMITS)
        try:
            calls = _calls(sandbox, judge, QUICK_DATA if quick else data_file(), int(cell.config["rounds"]))
            layers = [str(used) for used in sandbox.layers]
        finally:
            sandbox.close()
            judge.close()
        # The smoke leaves out the battery, most of which is waiting for time to run out.
        attempts = [] if layer is None or quick else [str(f.verdict) for f in run_battery(layer)]
        return {**calls, "layers": layers, "attempts": attempts}

    def summarise(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
        """Latency, throughput, false kills and escapes of each layer."""
        figures: list[Figure] = []
        rows: list[tuple[str | int | float | None, ...]] = []
        for cell, result in cells.items():
            if "absent" in result:
                rows.append((cell.arm, f"absent: {result['absent']}", *[None] * 7))
                continue
            times = np.array(result["times_s"]) * 1e3
            p50, p95 = (float(np.quantile(times, q)) for q in (0.5, 0.95))
            rate = len(times) / result["wall_s"]
            counts = {v: result["attempts"].count(v) for v in Verdict}
            figures += [
                _figure(f"{cell.arm}/p50", p50, "ms", cell.seed),
                _figure(f"{cell.arm}/p95", p95, "ms", cell.seed),
                _figure(f"{cell.arm}/calls_per_s", rate, "1/s", cell.seed),
                _figure(f"{cell.arm}/false_kills", len(result["wrong"]), "programs", cell.seed),
                _figure(f"{cell.arm}/unsupported", result["unsupported"], "programs", cell.seed),
            ]
            if result["attempts"]:
                escapes = counts[Verdict.NOT_CONTAINED]
                figures.append(_figure(f"{cell.arm}/escapes", escapes, "attempts", cell.seed))
            told = (counts[Verdict.CONTAINED], counts[Verdict.UNSUPPORTED], counts[Verdict.NOT_CONTAINED])
            shares = told if result["attempts"] else (None, None, None)
            rows.append(
                (
                    cell.arm,
                    len(result["wrong"]),
                    result["unsupported"],
                    round(p50, 2),
                    round(p95, 2),
                    round(rate, 1),
                    *shares,
                )
            )
        return Summary(
            figures=tuple(figures),
            tables=(
                Table(
                    title="References of HumanEval, and thirty attempts at abuse",
                    columns=(
                        "layer", "false kills", "left to the next layer", "p50 (ms)", "p95 (ms)", "calls/s",
                        "contained", "unsupported", "not contained",
                    ),
                    rows=tuple((*row, *[None] * (9 - len(row)))[:9] for row in rows),
                    note="one process on one core; a call is one program with all calls of its test; unsafe isolates nothing",
                ),
            ),
        )  # fmt: skip


def data_file() -> Path:
    """Where HumanEval lies: `shared` in the project or beside it.

    Raises:
        StudyError: in neither place.
    """
    root = Path(__file__).resolve().parents[3]
    for folder in (root, root.parent):
        if (folder / HUMANEVAL).is_file():
            return folder / HUMANEVAL
    raise StudyError(f"reward/sandbox needs {HUMANEVAL}, in {root} or beside it; --quick needs none")


def _figure(name: str, value: float, unit: str, seed: int) -> Figure:
    return Figure(
        name=name, value=value, low=None, high=None, unit=unit, seeds=(seed,), note="one machine, one process"
    )


def _calls(sandbox: Sandbox, judge: Sandbox, path: Path, rounds: int) -> dict[str, Any]:
    """Each reference as a candidate, `rounds` times; a reference of its own that is found wrong is a false kill."""
    source = CodeSource(CodeTasks(type="code", path=path.name), path.parent)
    (count,) = source.families[0].num_tasks
    assert count is not None
    prepared = []
    for seed in range(count):
        task = source.make("code", 1, seed)
        params = task.verifier.params
        test = CodeTest(entry=params["entry"], preamble=params["preamble"], test=params["test"], reference=task.answer)
        examination = prepare(test, judge)
        code = assemble(test, params["prompt"], task.answer)
        prepared.append(
            (str(task.metadata["row"]), examination, Program(code=code, entry=test.entry, calls=examination.calls))
        )
    sandbox.run(prepared[0][2])
    times: list[float] = []
    wrong: set[str] = set()
    unsupported: set[str] = set()
    outcomes = []
    began = time.perf_counter()
    for _ in range(rounds):
        for row, examination, program in prepared:
            start = time.perf_counter()
            outcome = sandbox.run(program)
            times.append(time.perf_counter() - start)
            outcomes.append((row, examination, outcome))
    wall_s = time.perf_counter() - began
    for row, examination, outcome in outcomes:
        if outcome.status is Status.UNSUPPORTED:
            unsupported.add(row)
        elif not all(examination.verdicts(outcome.results, judge) or (False,)):
            wrong.add(f"{row}: {outcome.status} {outcome.error} {outcome.detail}".rstrip())
    return {"times_s": times, "wall_s": wall_s, "wrong": sorted(wrong), "unsupported": len(unsupported)}


STUDY = SandboxStudy()
