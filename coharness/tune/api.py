"""The way in from Python: a class and a space, evolved.

    from coharness.spaces.ranges import Real
    from coharness.spaces.space import Scale
    from coharness.tune.api import config_for, search

    config = config_for(Mine, {"rate": Real(low=1e-5, high=1e-1, scale=Scale.LOG)}, run_dir="runs/mine", budget={"steps": 200})
    result = search(config)

The class must stand at the top of a module, since worker processes import it by its name.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from coharness.records.errors import ConfigError
from coharness.spaces.foreign import from_any
from coharness.spaces.spelling import spell_tree
from coharness.tune.config import TuneConfig, dump_tune_config, load_tune_config, tune_config_from
from coharness.tune.core import Context
from coharness.tune.engine import SearchEnd, SearchEngine, fold_journal
from coharness.tune.files import SearchDir
from coharness.tune.inline import InlinePool
from coharness.tune.pool import Pool, ProcessPool
from coharness.tune.result import result_of
from coharness.tune.state import SearchState
from coharness.tune.trainable import reference_to

MakePool = Callable[[SearchDir, TuneConfig], Pool]


def config_for(trainable: type, space: Any, run_dir: str, **settings: Any) -> TuneConfig:
    """The config of a search over a class of this process.

    Args:
        trainable: the class, see `coharness.tune.trainable`, or a Ray Tune `Trainable`.
        space: a `Tree`, a mapping of domains, a Ray Tune `param_space`, or a mapping of Optuna distributions.
        run_dir: folder of the search; must not exist yet.
        settings: further sections of `TuneConfig`, as plain values, e.g. `budget={"steps": 200}`.

    Raises:
        ConfigError: there are mistakes; the message has one line for each.
    """
    data = {"run_dir": run_dir, "trainable": reference_to(trainable), "space": spell_tree(from_any(space)), **settings}
    return tune_config_from(data)


def search(config: TuneConfig, *, make_pool: MakePool | None = None) -> Mapping[str, Any]:
    """Run a search to its end; the result as `result.json` holds it.

    Args:
        config: what to search.
        make_pool: builds what carries intervals out; by `config.pool.type` where left out.

    Raises:
        ConfigError: the folder exists.
        SearchError: every member failed again and again.
    """
    folder = SearchDir.create(config.run_dir, dump_tune_config(config))
    return drive(folder, config, make_pool=make_pool)[1]


def resume(run_dir: Path | str, *, make_pool: MakePool | None = None) -> Mapping[str, Any]:
    """Go on with a search that was interrupted or killed; the result as `result.json` holds it.

    Raises:
        ConfigError: there is no search in that folder.
        SearchError: every member failed again and again.
    """
    folder = SearchDir.open(run_dir)
    return drive(folder, load_tune_config(folder.config_path), make_pool=make_pool)[1]


def drive(
    folder: SearchDir,
    config: TuneConfig,
    *,
    make_pool: MakePool | None = None,
    on_event: Callable[[SearchState], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[SearchEnd, dict[str, Any]]:
    """Run or go on with the search in a folder; how it ended, and its result so far.

    Raises:
        PreflightError: another process drives it.
        SearchError: every member failed again and again.
    """
    ctx = Context.of(config)
    with folder.locked():
        state = fold_journal(folder, ctx)
        if state.ended:
            return SearchEnd.DONE, result_of(ctx, state)
        pool = (make_pool or default_pool)(folder, config)
        engine = SearchEngine(folder, ctx, pool, on_event=on_event, should_stop=should_stop)
        end = engine.run()
    return end, result_of(ctx, engine.state)


def default_pool(folder: SearchDir, config: TuneConfig) -> Pool:
    """The pool that a config names, on this machine.

    Raises:
        ConfigError: it names Ray, whose pool comes from `actors.tune`.
    """
    match config.pool.type:
        case "inline":
            return InlinePool(folder, config)
        case "process":
            return ProcessPool(folder, config)
        case _:
            raise ConfigError("pool.type=ray is run by `coharness tune`, or with make_pool=actors.tune.RayPool")
