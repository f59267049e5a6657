"""How much does the reward service answer on one machine, and does an outage ever make a number?"""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from coharness.config.yaml_text import write_mapping
from coharness.records.errors import ConfigError
from coharness.reward.judges.rubric import rubric_from_json
from coharness.reward.service.client import RewardClient
from coharness.studies.contract import Cell, Figure, StudyError, Summary, Table
from coharness.testing.judge_server import Reply, Script, ScriptedServer, fair_judge

SECONDS, QUICK_SECONDS = 10.0, 1.0
Row = tuple[str | int | float | None, ...]
CONNECTIONS = 8
BATCH = 32
OUTAGE_ITEMS, QUICK_OUTAGE_ITEMS = 1000, 60
RUBRIC = rubric_from_json(
    {
        "name": "study",
        "criteria": [
            {"name": "steps", "text": "Each step follows from the one before."},
            {"name": "clarity", "text": "A reader can follow it without guessing."},
        ],
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStudy:
    """The service under load and under an outage; see `coharness.studies.contract.Study`."""

    name: str = "reward/service"
    question: str = (
        "How many requests does the reward service answer on two cores, and does an outage ever make a number?"
    )
    num_seeds: int = 1
    cell_deadline_s: float = 900.0

    def budget(self, *, quick: bool, rollouts: int | None) -> Mapping[str, float]:
        """Seconds of load."""
        if rollouts is not None:
            raise ConfigError("reward/service measures for some seconds and rolls nothing out; leave --rollouts out")
        return {"seconds": QUICK_SECONDS if quick else SECONDS}

    def cells(self, seeds: Sequence[int], *, quick: bool, rollouts: int | None) -> list[Cell]:
        """One cell a kind of load; run them one at a time (`--parallel 1`), they measure the machine."""
        config = {
            "seconds": self.budget(quick=quick, rollouts=rollouts)["seconds"],
            "items": QUICK_OUTAGE_ITEMS if quick else OUTAGE_ITEMS,
        }
        return [
            Cell(arm=arm, seed=seed, config=config)
            for seed in seeds
            for arm in ("prefilter", "cached", "prefilter_batch", "cached_batch", "outage")
        ]

    def run_cell(self, cell: Cell, folder: Path) -> dict[str, Any]:
        """Load the service over loopback sockets, or break its judge."""
        folder.mkdir(parents=True, exist_ok=True)
        if cell.arm == "outage":
            return _outage(int(cell.config["items"]), cell.seed, folder)
        path = "/v1/prefilter" if cell.arm.startswith("prefilter") else "/v1/score"
        size = BATCH if cell.arm.endswith("batch") else 1
        with _serving(fair_judge(lambda question, candidate: 0.9), folder) as (base, token, process):
            client = RewardClient(base, token)
            for start in range(0, 64, BATCH):
                client.score_all([("q", _text(index)) for index in range(start, start + BATCH)])
            client.close()
            before = sum(psutil.Process(process.pid).cpu_times()[:2])
            result = asyncio.run(_load(base, token, path, size, float(cell.config["seconds"])))
            cpu_s = sum(psutil.Process(process.pid).cpu_times()[:2]) - before
            return {**result, "cpu_us_per_item": 1e6 * cpu_s / max(result["items"], 1)}

    def summarise(self, cells: Mapping[Cell, Mapping[str, Any]]) -> Summary:
        """Items a second, latencies, and what became of the items of an outage."""
        figures: list[Figure] = []
        rows: list[Row] = []
        outage_rows: list[Row] = []
        for cell, result in cells.items():
            if cell.arm == "outage":
                figures += [
                    _figure("outage/fabricated", result["fabricated"], "scores"),
                    _figure("outage/failed_share", result["failed"] / result["items"], "share"),
                ]
                outage_rows.append(tuple(result[key] for key in ("items", "scored", "failed", "fabricated")))
                continue
            figures += [
                _figure(f"{cell.arm}/items_per_s", result["items_per_s"], "1/s"),
                _figure(f"{cell.arm}/p50_ms", result["p50_ms"], "ms"),
                _figure(f"{cell.arm}/p99_ms", result["p99_ms"], "ms"),
                _figure(f"{cell.arm}/cpu_us_per_item", result["cpu_us_per_item"], "us"),
            ]
            numbers = (result[key] for key in ("items_per_s", "p50_ms", "p99_ms", "cpu_us_per_item", "errors"))
            rows.append((cell.arm, *(round(float(number), 2) for number in numbers)))
        return Summary(
            figures=tuple(figures),
            tables=(
                Table(
                    title=f"Load over {CONNECTIONS} kept connections, client and service on the same machine",
                    columns=("request", "items/s", "p50 ms", "p99 ms", "service's CPU us an item", "errors"),
                    rows=tuple(rows),
                    note=f"single items, and batches of {BATCH}; the latency is of a request",
                ),
                Table(
                    title="An outage: 30 % of calls fail, 10 % are cut off, 10 % come as nonsense",
                    columns=("items", "scored", "failed by name", "fabricated"),
                    rows=tuple(outage_rows),
                ),
            ),
        )


def _text(index: int) -> str:
    return f"The sum of {index} and {index + 1} is {2 * index + 1} because the two are added one after the other."


@contextmanager
def _serving(script: Script, folder: Path) -> Iterator[tuple[str, str, "subprocess.Popen[str]"]]:
    """The service in a process of its own, as `coharness serve` starts it; its address, its token, its process."""
    rubric = folder / "rubric.yaml"
    rubric.write_text(write_mapping(RUBRIC.to_json()), encoding="utf-8")
    with ScriptedServer(script) as model:
        words = ["serve", str(rubric), "--endpoint", model.base, "--model", "scripted", "--port", "0"]
        process = subprocess.Popen(
            [sys.executable, "-m", "coharness", *words, "--cache", str(folder / "cache.sqlite")],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            token, base = _announced(process)
            yield base, token, process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stderr is not None:
                process.stderr.close()


def _announced(process: "subprocess.Popen[str]") -> tuple[str, str]:
    assert process.stderr is not None
    said: list[str] = []
    while len(said) < 2:
        line = process.stderr.readline()
        if not line:
            raise StudyError(f"the service did not start: {' '.join(said) or 'it said nothing'}")
        if line.startswith(("token", "serving")):
            said.append(line)
    return said[0].split()[1], said[1].split()[-1]


async def _load(base: str, token: str, path: str, size: int, seconds: float) -> dict[str, Any]:
    """Requests one after the other on each of some connections, for some seconds; raw streams cost the client little."""
    host, _, port = base.removeprefix("http://").partition(":")
    latencies: list[float] = []
    errors = 0
    end = time.perf_counter() + seconds

    async def connection(number: int) -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection(host, int(port))
        index = number
        while time.perf_counter() < end:
            items = [{"question": "q", "candidate": _text((index + i) % 64)} for i in range(size)]
            body = json.dumps({"items": items}).encode()
            head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-length: {len(body)}\r\n\r\n"
            began = time.perf_counter()
            writer.write(head.encode() + body)
            status, reply = await _reply(reader)
            latencies.append(time.perf_counter() - began)
            results = json.loads(reply).get("results", [])
            fine = status == 200 and len(results) == size and all(row.get("value", 1.0) == 1.0 for row in results)
            errors += not fine
            index += size
        writer.close()
        await writer.wait_closed()

    began = time.perf_counter()
    await asyncio.gather(*(connection(number) for number in range(CONNECTIONS)))
    took = time.perf_counter() - began
    p50, p99 = np.quantile(latencies, (0.5, 0.99))
    return {
        "items": size * len(latencies),
        "items_per_s": size * len(latencies) / took,
        "p50_ms": 1000 * float(p50),
        "p99_ms": 1000 * float(p99),
        "errors": errors,
    }


async def _reply(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.partition(b":")[2]) for line in head.lower().splitlines() if line.startswith(b"content-length:")
    )
    return int(head[9:12]), await reader.readexactly(length)


def _outage(num_items: int, seed: int, folder: Path) -> dict[str, Any]:
    """Every item is worth 1 by the judge's taste: any other number would be made up."""
    rng = np.random.default_rng(seed)
    lock = threading.Lock()
    fair = fair_judge(lambda question, candidate: 0.9)

    def broken(request: dict[str, Any]) -> str | Reply:
        with lock:
            draw = float(rng.random())
        if draw < 0.3:
            return Reply(status=503)
        if draw < 0.4:
            return Reply(text="half of an answer", cut=True)
        if draw < 0.5:
            return Reply(text='{"boundary": "guessed", "criteria": [], "score": 0}')
        return fair(request)

    with _serving(broken, folder) as (base, token, _):
        client = RewardClient(base, token)
        judged = []
        for start in range(0, num_items, BATCH):
            judged += client.score_all([("q", _text(index)) for index in range(start, min(start + BATCH, num_items))])
        client.close()
    values = [j.value for j in judged if j.value is not None]
    return {
        "items": len(judged),
        "scored": len(values),
        "failed": len(judged) - len(values),
        "fabricated": sum(value != 1.0 for value in values),
    }


def _figure(name: str, value: float, unit: str) -> Figure:
    return Figure(name=name, value=float(value), low=None, high=None, unit=unit, seeds=(0,))


STUDY = ServiceStudy()
