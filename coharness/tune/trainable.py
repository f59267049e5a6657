"""What a user writes: a class that steps, saves and loads. A Ray Tune `Trainable` is taken as it is.

    class Mine:
        def __init__(self, hyperparameters, seed): ...      everything that learns starts here
        def step(self): return {"accuracy": 0.7}            one step of work, numbers by name
        def save(self, folder): ...                         files into an empty folder: weights, optimizer, generators
        def load(self, folder): ...                         the inverse

Optional: `apply(hyperparameters)` changes a living one and returns what is now in force; `merge(folders, weights)` becomes
a blend of saved ones; `reseed(seed)` restarts its randomness, so that clones part. Invariant, checked at every change: the
hyperparameters in force are the assigned ones, because a checkpoint that brings back its own old ones fails silently
everywhere else.
"""

import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from coharness.records.errors import ConfigError
from coharness.records.ids import content_hash
from coharness.spaces.domain import Value


@runtime_checkable
class Trainable(Protocol):
    """The least that can be evolved."""

    def step(self) -> Mapping[str, float]:
        """Do one step of work; numbers by name, among them the score."""
        ...

    def save(self, folder: Path) -> None:
        """Write everything that `load` needs into an empty folder."""
        ...

    def load(self, folder: Path) -> None:
        """Become what was saved."""
        ...


@runtime_checkable
class Reconfigurable(Protocol):
    """A trainable whose hyperparameters can change while it lives."""

    def apply(self, hyperparameters: Mapping[str, Value]) -> Mapping[str, Value]:
        """Put them in force; returns what is in force afterwards, read from where it acts."""
        ...


@runtime_checkable
class Mergeable(Protocol):
    """A trainable that can become a blend of several saved ones."""

    def merge(self, folders: Sequence[Path], weights: Sequence[float]) -> None:
        """Become the blend; weights are not negative and sum to 1."""
        ...


@runtime_checkable
class Reseedable(Protocol):
    """A trainable that can start its randomness anew."""

    def reseed(self, seed: int) -> None:
        """Draw from `seed` from now on."""
        ...


@runtime_checkable
class _RayTrainable(Protocol):
    """The surface of `ray.tune.Trainable` that tells it from other classes."""

    def train(self) -> Mapping[str, Any]: ...

    def save_checkpoint(self, checkpoint_dir: str) -> Any: ...

    def load_checkpoint(self, checkpoint: Any) -> None: ...

    def reset_config(self, new_config: dict[str, Any]) -> bool: ...

    def stop(self) -> None: ...


class RayTuneTrainable:
    """A Ray Tune `Trainable` (Ray 2.x) behind the protocol above; Ray itself need not run."""

    _STATE = "coharness.json"

    def __init__(self, kind: type, hyperparameters: Mapping[str, Value], seed: int) -> None:
        """Build the user's class.

        Args:
            kind: the subclass of `ray.tune.Trainable`.
            hyperparameters: its config; `seed` is added where the config has no key of that name.
            seed: of this trainable.
        """
        self._kind = kind
        self._seed = seed
        self._inner: Any = kind(config=self._config(hyperparameters))

    def step(self) -> Mapping[str, float]:
        """One call of `train`, numbers only."""
        result = self._inner.train()
        return {k: float(v) for k, v in result.items() if isinstance(v, int | float) and not isinstance(v, bool)}

    def save(self, folder: Path) -> None:
        """Call `save_checkpoint`; a dictionary that it returns is kept as JSON.

        Raises:
            ConfigError: it returned something that JSON cannot hold.
        """
        returned = self._inner.save_checkpoint(str(folder))
        try:
            kept = json.dumps(
                {"iteration": _iteration(self._inner), "state": returned if isinstance(returned, Mapping) else None}
            )
        except TypeError as error:
            raise ConfigError(
                f"{self._kind.__name__}.save_checkpoint returned a dictionary that JSON cannot hold ({error}); "
                "write files into checkpoint_dir instead: nothing is unpickled from disk here"
            ) from error
        (folder / self._STATE).write_text(kept, encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Call `load_checkpoint` with the folder, or with the dictionary that `save_checkpoint` returned."""
        kept = json.loads((folder / self._STATE).read_text(encoding="utf-8"))
        self._inner.load_checkpoint(str(folder) if kept["state"] is None else kept["state"])
        # What Ray's own `restore` does; schedules inside a trainable count by it.
        self._inner._iteration = kept["iteration"]

    def apply(self, hyperparameters: Mapping[str, Value]) -> Mapping[str, Value]:
        """Call `reset_config`; where the class does not support it, build it anew around its own state."""
        config = self._config(hyperparameters)
        if self._inner.reset_config(config):
            self._inner.config = config
        else:
            import tempfile

            with tempfile.TemporaryDirectory() as scratch:
                self.save(Path(scratch))
                self._inner.stop()
                self._inner = self._kind(config=config)
                self.load(Path(scratch))
        return {key: self._inner.config[key] for key in hyperparameters}

    def _config(self, hyperparameters: Mapping[str, Value]) -> dict[str, Any]:
        return {"seed": self._seed, **hyperparameters}


def _iteration(trainable: Any) -> int:
    return int(trainable.training_iteration)


# Finding the class --------------------------------------------------------------------------------------------------


def resolve(reference: str) -> Any:
    """The object that `path/to/file.py:name` or `package.module:name` refers to.

    Raises:
        ConfigError: there is no such file, module or name, or importing it fails.
    """
    place, colon, name = reference.rpartition(":")
    if not (colon and place and name.isidentifier()):
        raise ConfigError(f"got {reference!r}, expected path/to/file.py:Name or package.module:Name")
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:
        raise ConfigError(f"{reference} cannot be imported: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        raise ConfigError(f"{place} defines no {name}; it defines {', '.join(_names(module)) or 'nothing'}")
    return getattr(module, name)


def reference_to(kind: Any) -> str:
    """The reference by which another process finds a class or an object of a module.

    Raises:
        ConfigError: it is local to a function, so that no other process can import it.
    """
    qualified: str = kind.__qualname__
    if "." in qualified:
        raise ConfigError(
            f"{qualified} is defined inside something else; workers import it, so put it at a module's top"
        )
    file = inspect.getsourcefile(kind)
    if file is None:
        raise ConfigError(f"{qualified} has no source file that a worker could import; put it into a .py file")
    return f"{Path(file).resolve()}:{qualified}"


def build(kind: Any, hyperparameters: Mapping[str, Value], seed: int) -> Trainable:
    """A trainable of the user's class.

    Raises:
        ConfigError: the class lacks methods, or its hyperparameters are not the assigned ones.
    """
    if isinstance(kind, type) and issubclass(kind, _RayTrainable):
        return RayTuneTrainable(kind, hyperparameters, seed)
    made = kind(hyperparameters, seed)
    if not isinstance(made, Trainable):
        lacking = [name for name in ("step", "save", "load") if not hasattr(made, name)]
        raise ConfigError(
            f"{kind.__name__} lacks {', '.join(lacking)}; a trainable has step(), save(folder) and load(folder)"
        )
    return made


def put_in_force(trainable: Trainable, hyperparameters: Mapping[str, Value]) -> None:
    """Apply hyperparameters after weights were loaded, and check that they are in force.

    Raises:
        ConfigError: another value is in force; the message names it.
    """
    if isinstance(trainable, Reconfigurable):
        live = trainable.apply(hyperparameters)
    else:
        live = getattr(trainable, "hyperparameters", hyperparameters)
    for name, value in hyperparameters.items():
        if name not in live or live[name] != value:
            got = live.get(name, "nothing")
            raise ConfigError(
                f"{type(trainable).__name__}: {name} is {got!r} after a change to {value!r}; a checkpoint must not bring its own "
                "hyperparameters back, and apply() must put the new ones where they act"
            )


def _load_file(path: Path) -> Any:
    path = path.resolve()
    name = f"coharness_user_{content_hash(str(path))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _names(module: Any) -> list[str]:
    return sorted(name for name, value in vars(module).items() if not name.startswith("_") and inspect.isclass(value))
