"""From a file and overrides to a RunConfig, and back to a file.

`load_config` reads YAML, lays the overrides over it, checks everything and reports *all* mistakes in one ConfigError, a line
each. `dump_config` writes the resolved config; loading that text again gives the same config.

Paths. `run_dir` is relative to the working directory. Inputs (the file of a jsonl or python source, the folder of a base) are
relative to the config file's folder, or, where nothing is there, to the working directory. Both become absolute here, so a
resolved config means the same from anywhere. Whether an input exists is the preflight's question. `policy.base: tiny` and
`smollm2` are names, not paths; a folder of that name is written `./tiny`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coharness.config.schema import CodeTasks, JsonlTasks, PythonTasks, RewardSection, RunConfig, TaskSection
from coharness.config.sections import overridden, read_file, validated
from coharness.config.yaml_text import write_mapping
from coharness.records.errors import ConfigError

BASE_NAMES = frozenset({"tiny", "smollm2"})
"""Values of `policy.base` that name a base rather than a folder."""


def load_config(path: Path | str, overrides: Sequence[str] = ()) -> RunConfig:
    """The config of a YAML file with overrides laid over it (`coharness.config.overrides` says how they are spelled).

    Raises:
        ConfigError: the file cannot be read, or holds mistakes; the message has one line for each.
    """
    path = Path(path)
    return config_from(read_file(path), overrides, source=str(path), folder=path.resolve().parent)


def config_from(
    data: Mapping[str, Any], overrides: Sequence[str] = (), *, source: str = "the config", folder: Path | None = None
) -> RunConfig:
    """The config of plain values, as `load_config` makes it of a file's.

    Args:
        data: what a YAML file would hold.
        overrides: words of a command line.
        source: what messages call the config.
        folder: where relative inputs are looked for first; the working directory where left out.

    Raises:
        ConfigError: there are mistakes; the message has one line for each.
    """
    config = validated(overridden(data, overrides, RunConfig), RunConfig, source, overrides)
    return _with_absolute_paths(config, folder or Path.cwd())


def dump_config(config: RunConfig) -> str:
    """The resolved config as YAML, every default written out; `load_config` reads it back to an equal config."""
    return write_mapping(config.model_dump(mode="json"))


def _with_absolute_paths(config: RunConfig, folder: Path) -> RunConfig:
    base = config.policy.base
    return config.model_copy(
        update={
            "run_dir": str(Path(config.run_dir).expanduser().absolute()),
            "tasks": tuple(_absolute_source(source, folder) for source in config.tasks),
            "policy": config.policy
            if base in BASE_NAMES
            else config.policy.model_copy(update={"base": _absolute_input(base, folder)}),
            "reward": _absolute_judge(config, folder),
        }
    )


def _absolute_judge(config: RunConfig, folder: Path) -> RewardSection:
    judge = config.reward.judge
    if judge is None:
        return config.reward
    names = {"endpoint": ("rubric",), "linear": ("file", "anchors", "pairs"), "trained": ("folder",)}[judge.type]
    given = {name: path for name in names if (path := getattr(judge, name)) is not None}
    paths = {name: _absolute_input(path, folder) for name, path in given.items()}
    return config.reward.model_copy(update={"judge": judge.model_copy(update=paths)})


def _absolute_source(source: TaskSection, folder: Path) -> TaskSection:
    match source:
        case JsonlTasks(path=str(path)) | CodeTasks(path=str(path)):
            return source.model_copy(update={"path": _absolute_input(path, folder)})
        case PythonTasks(path=path):
            file, colon, function = path.rpartition(":")
            if not (colon and file and function.isidentifier()):
                raise ConfigError(
                    f"tasks: got the path {path!r}, expected path/to/file.py:function, e.g. my_tasks.py:make"
                )
            return source.model_copy(update={"path": f"{_absolute_input(file, folder)}:{function}"})
        case _:
            return source


def _absolute_input(path: str, folder: Path) -> str:
    """Absolute path of an input; where neither place holds it, the one in `folder`, which messages will then name."""
    here = Path(path).expanduser()
    beside = folder / here
    if not beside.exists() and here.exists():
        return str(here.absolute())
    return str(beside.absolute())
