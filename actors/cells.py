"""Cells of a study on Ray: one actor a cell, and no decisions.

An actor carries its cell out in its own process, as `coharness study cell` does, so that ending the actor ends the cell. Cells
lie in folders that all nodes must see.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.options import thread_env
from actors.session import session
from coharness.studies.cells import CellFolder, Launch


class CellHost:
    """The actor of one cell."""

    def carry_out(self, folder: str) -> None:
        """Run the cell of a folder; what it logs, and the traceback of what ends it, stand in the cell's log."""
        from coharness.studies.cells import carry_out

        log = logging.FileHandler(Path(folder) / "log.txt", encoding="utf-8")
        root = logging.getLogger()
        root.addHandler(log)
        root.setLevel(logging.INFO)
        try:
            carry_out(Path(folder))
        except BaseException:
            root.exception("the cell ended without a result")
            raise


@dataclass(frozen=True, slots=True)
class RayCell:
    """A `coharness.studies.cells.CellProcess` that is an actor."""

    actor: Any
    ref: Any

    def wait(self) -> int:
        """0 where it went well, else 1; the cell's log says why."""
        import ray

        try:
            ray.get(self.ref)
        except ray.exceptions.RayError:
            return 1
        finally:
            # An actor keeps its cores for as long as it lives.
            ray.kill(self.actor, no_restart=True)
        return 0

    def end(self) -> None:
        """Kill the actor."""
        import ray

        ray.kill(self.actor, no_restart=True)


def launch_cell(here: CellFolder) -> RayCell:
    """Start a cell in an actor of the Ray session that is open."""
    import ray

    here.write_spec()
    options = {"num_cpus": 1, "max_restarts": 0, "runtime_env": {"env_vars": thread_env(1)}}
    actor = ray.remote(CellHost).options(**options).remote()
    return RayCell(actor, actor.carry_out.remote(str(here.path)))


@contextmanager
def cells_on_ray(parallel: int) -> Iterator[Launch]:
    """A Ray session for a study, and what starts its cells there, one core each.

    Raises:
        PreflightError: the cluster has fewer cores than cells at once, or its workers would run other code than this process.
    """
    with session(num_cpus=parallel, threads_per_worker=1):
        yield launch_cell
