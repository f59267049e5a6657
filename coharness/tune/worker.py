"""Carries out one interval after another: load, put hyperparameters in force, step, save durably.

Owned by a worker process or a Ray actor. Members stay in memory between their intervals; an order names the checkpoints it
goes on from, so it does not matter whether this worker has them in memory, and results are the same.
"""

import math
import os
import shutil
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coharness.records.errors import ConfigError
from coharness.tune.events import Order, Report, SegmentId
from coharness.tune.files import SearchDir, make_durable, publish
from coharness.tune.trainable import Mergeable, Reseedable, Trainable, build, put_in_force, resolve


class Worker:
    """Members in memory, and the orders that move them.

    Args:
        search_dir: the search's folder.
        trainable: reference of the user's class.
        constants: hyperparameters that are the same for all members.
        target: (metric, value, sign) whose reaching ends an interval early: sign * metric >= sign * value.
        max_resident: members kept in memory.
    """

    def __init__(
        self,
        search_dir: Path | str,
        trainable: str,
        constants: Mapping[str, Any],
        target: tuple[str, float, float] | None = None,
        max_resident: int = 8,
    ) -> None:
        self._dir = SearchDir(Path(search_dir))
        self._kind = resolve(trainable)
        self._constants = dict(constants)
        self._target = target
        self._max_resident = max_resident
        self._resident: OrderedDict[SegmentId, tuple[Trainable, Mapping[str, Any]]] = OrderedDict()

    def run(self, order: Order) -> Report:
        """Do one interval; a failure is a report with a reason, never an exception."""
        began = time.perf_counter()
        try:
            steps, metrics = self._run(order)
        except Exception as error:
            return Report(
                slot=order.slot,
                segment=order.segment,
                steps=0,
                metrics={},
                seconds=time.perf_counter() - began,
                error=f"{type(error).__name__}: {error}",
            )
        return Report(
            slot=order.slot,
            segment=order.segment,
            steps=steps,
            metrics=metrics,
            seconds=time.perf_counter() - began,
        )

    def _run(self, order: Order) -> tuple[int, dict[str, float]]:
        wanted = {**self._constants, **order.hyperparameters}
        trainable = self._prepared(order, wanted)
        metrics: dict[str, float] = {}
        steps = 0
        while steps < order.steps and not self._is_reached(metrics):
            metrics = _numbers(trainable.step())
            steps += 1
        self._save(trainable, order.segment)
        self._resident[order.segment] = (trainable, wanted)
        while len(self._resident) > self._max_resident:
            self._resident.popitem(last=False)
        return steps, metrics

    def _prepared(self, order: Order, wanted: Mapping[str, Any]) -> Trainable:
        """The member as the order's parents left it, with the order's hyperparameters in force."""
        kept = self._resident.pop(order.parents[0][0], None) if len(order.parents) == 1 else None
        if kept is not None:
            trainable, in_force = kept
            if in_force != wanted:
                trainable = self._changed(trainable, order, wanted)
        elif not order.parents:
            trainable = build(self._kind, wanted, order.seed)
            put_in_force(trainable, wanted)
        else:
            trainable = build(self._kind, wanted, order.seed)
            self._load(trainable, order)
            put_in_force(trainable, wanted)
        if order.reseed and order.parents and isinstance(trainable, Reseedable):
            trainable.reseed(order.seed)
        return trainable

    def _changed(self, trainable: Trainable, order: Order, wanted: Mapping[str, Any]) -> Trainable:
        if not hasattr(trainable, "apply"):
            # Only a new one can have other hyperparameters; its weights come from the parent's checkpoint.
            trainable = build(self._kind, wanted, order.seed)
            self._load(trainable, order)
        put_in_force(trainable, wanted)
        return trainable

    def _load(self, trainable: Trainable, order: Order) -> None:
        folders = [self._dir.checkpoint(segment) for segment, _ in order.parents]
        if len(folders) == 1:
            trainable.load(folders[0])
        elif isinstance(trainable, Mergeable):
            trainable.merge(folders, [weight for _, weight in order.parents])
        else:
            raise ConfigError(
                f"{type(trainable).__name__} cannot merge; give it merge(folders, weights), or use a rule without merges"
            )

    def _save(self, trainable: Trainable, segment: SegmentId) -> None:
        temp = self._dir.checkpoints / f".{segment}.{os.getpid()}"
        if temp.exists():
            shutil.rmtree(temp)
        temp.mkdir()
        trainable.save(temp)
        make_durable(temp)
        publish(temp, self._dir.checkpoint(segment))

    def _is_reached(self, metrics: Mapping[str, float]) -> bool:
        if self._target is None:
            return False
        name, value, sign = self._target
        return name in metrics and sign * metrics[name] >= sign * value


def _numbers(metrics: Any) -> dict[str, float]:
    if isinstance(metrics, int | float) and not isinstance(metrics, bool):
        metrics = {"score": metrics}
    if not isinstance(metrics, Mapping):
        raise ConfigError(f"step() returned {metrics!r:.200}, expected numbers by name, e.g. {{'accuracy': 0.7}}")
    found = {str(name): float(value) for name, value in metrics.items()}
    bad = sorted(name for name, value in found.items() if not math.isfinite(value))
    if bad:
        raise ConfigError(
            f"step() returned {', '.join(f'{name}={found[name]}' for name in bad)}, which is no finite number"
        )
    return found
