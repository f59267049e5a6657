"""What a user writes: found by its name, checked, and Ray Tune's taken as it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from coharness.records.errors import ConfigError
from coharness.tune.events import Order
from coharness.tune.files import SearchDir
from coharness.tune.trainable import RayTuneTrainable, build, put_in_force, reference_to, resolve
from coharness.tune.worker import Worker
from tests.unit.tune.small import HERE, Climber, Plain, Stubborn


class RayStyle:
    """The surface of `ray.tune.Trainable` of Ray 2.60, without Ray."""

    returns: Any = None
    resets = False

    def __init__(self, config: dict[str, Any]) -> None:
        self.config, self.training_iteration, self.height = config, 0, 0.0

    @property
    def _iteration(self) -> int:
        return self.training_iteration

    @_iteration.setter
    def _iteration(self, value: int) -> None:
        self.training_iteration = value

    def train(self) -> dict[str, Any]:
        self.training_iteration += 1
        self.height += self.config["rate"]
        return {"score": self.height, "done": False, "date": "today", "training_iteration": self.training_iteration}

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        if self.returns is not None:
            return {"height": self.height, **self.returns}
        (Path(checkpoint_dir) / "height").write_text(repr(self.height))
        return None

    def load_checkpoint(self, checkpoint: Any) -> None:
        if isinstance(checkpoint, dict):
            self.height = checkpoint["height"]
        else:
            self.height = float((Path(checkpoint) / "height").read_text())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        return self.resets

    def stop(self) -> None:
        self.height = -1.0


class WithDictionary(RayStyle):
    returns = {}  # noqa: RUF012


class WithObject(RayStyle):
    returns = {"what": object()}  # noqa: RUF012


class Resets(RayStyle):
    resets = True


@pytest.mark.parametrize("kind", [RayStyle, WithDictionary, Resets])
def test_a_ray_tune_trainable_steps_saves_loads_and_changes(tmp_path: Path, kind: type) -> None:
    first = build(kind, {"rate": 1.0}, seed=7)
    assert isinstance(first, RayTuneTrainable)
    assert first.step() == {"score": 1.0, "training_iteration": 1.0}
    first.save(tmp_path)
    second = build(kind, {"rate": 2.0}, seed=8)
    second.load(tmp_path)
    put_in_force(second, {"rate": 3.0})
    assert second.step() == {"score": 4.0, "training_iteration": 2.0}


def test_nothing_is_pickled_for_a_ray_tune_trainable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="write files into checkpoint_dir"):
        build(WithObject, {"rate": 1.0}, seed=0).save(tmp_path)


def test_a_real_ray_tune_trainable_is_taken_where_ray_tune_is_installed(tmp_path: Path) -> None:
    tune = pytest.importorskip("ray.tune", reason="Ray Tune is not installed", exc_type=ImportError)

    class Mine(tune.Trainable):  # type: ignore[misc,name-defined]
        def setup(self, config: dict[str, Any]) -> None:
            self.height = 0.0

        def step(self) -> dict[str, float]:
            self.height += self.config["rate"]
            return {"score": self.height}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            (Path(checkpoint_dir) / "height").write_text(repr(self.height))

        def load_checkpoint(self, checkpoint: str) -> None:
            self.height = float((Path(checkpoint) / "height").read_text())

    first = build(Mine, {"rate": 1.0}, seed=7)
    assert first.step()["score"] == 1.0
    first.save(tmp_path)
    second = build(Mine, {"rate": 2.0}, seed=8)
    second.load(tmp_path)
    put_in_force(second, {"rate": 3.0})
    found = second.step()
    assert (found["score"], found["training_iteration"]) == (4.0, 2.0)


def test_a_reference_finds_a_class_in_a_file_or_a_module(tmp_path: Path) -> None:
    assert resolve("tests.unit.tune.small:Climber") is Climber
    assert resolve(f"{HERE}:Climber").__name__ == "Climber"
    assert resolve(reference_to(Plain)).__qualname__ == "Plain"
    (tmp_path / "broken.py").write_text("raise RuntimeError('no')")
    for reference, match in (
        ("nothing", "expected path/to/file.py:Name"),
        (f"{HERE}:Nobody", "defines no Nobody; it defines"),
        (f"{tmp_path}/missing.py:X", "FileNotFoundError"),
        (f"{tmp_path}/broken.py:X", "RuntimeError: no"),
        ("no.such.module:X", "ModuleNotFoundError"),
    ):
        with pytest.raises(ConfigError, match=match):
            resolve(reference)


def test_hyperparameters_must_be_in_force() -> None:
    put_in_force(Climber({"rate": 0.1}, 0), {"rate": 0.5})
    put_in_force(Plain({"rate": 0.1}, 0), {"rate": 0.1})
    with pytest.raises(ConfigError, match=r"rate is 0\.1 after a change to 0\.5"):
        put_in_force(Stubborn({"rate": 0.1}, 0), {"rate": 0.5})


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    SearchDir.create(tmp_path / "a", "")
    return Worker(tmp_path / "a", f"{HERE}:Climber", {"width": 3}, ("score", 100.0, 1.0), max_resident=1)


def order(segment: str, *parents: tuple[str, float], rate: float = 0.5, seed: int = 5, reseed: bool = False) -> Order:
    return Order(
        slot=0, segment=segment, parents=parents, hyperparameters={"rate": rate}, seed=seed, reseed=reseed, steps=4
    )


def test_it_does_not_matter_whether_a_member_is_in_memory(worker: Worker, tmp_path: Path) -> None:
    worker.run(order("a-1"))
    warm = worker.run(order("a-2", ("a-1", 1.0)))
    cold = Worker(tmp_path / "a", f"{HERE}:Climber", {}, None).run(order("a-2", ("a-1", 1.0)))
    assert warm.metrics == cold.metrics
    assert json.loads((tmp_path / "a" / "checkpoints" / "a-2" / "state.json").read_text())[0] == warm.metrics["score"]
    assert [p.name for p in sorted((tmp_path / "a" / "checkpoints").iterdir())] == ["a-1", "a-2"]


def test_a_clone_parts_from_its_parent_where_it_is_reseeded(worker: Worker) -> None:
    worker.run(order("a-1"))
    same = worker.run(order("b-1", ("a-1", 1.0)))
    apart = worker.run(order("c-1", ("a-1", 1.0), seed=99, reseed=True))
    assert worker.run(order("d-1", ("a-1", 1.0))).metrics == same.metrics
    assert apart.metrics != same.metrics


def test_a_merge_needs_a_trainable_that_can(worker: Worker, tmp_path: Path) -> None:
    a, b = worker.run(order("a-1", rate=0.0)), worker.run(order("b-1", rate=1.0))
    merged = worker.run(order("c-1", ("a-1", 0.25), ("b-1", 0.75), rate=0.0))
    expected = 0.25 * a.metrics["score"] + 0.75 * b.metrics["score"]
    assert merged.metrics["score"] == pytest.approx(expected, abs=0.21)
    plain = Worker(tmp_path / "a", f"{HERE}:Plain", {}, None)
    for name in ("d-1", "e-1"):
        plain.run(order(name))
    assert "Plain cannot merge" in plain.run(order("f-1", ("d-1", 0.5), ("e-1", 0.5))).error


def test_the_target_ends_an_interval_early(tmp_path: Path) -> None:
    SearchDir.create(tmp_path / "b", "")
    found = Worker(tmp_path / "b", f"{HERE}:Plain", {}, ("score", 1.0, 1.0)).run(order("a-1"))
    assert (found.steps, found.metrics) == (2, {"score": 1.0})
