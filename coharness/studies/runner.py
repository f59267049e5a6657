"""All cells of a study, a few at a time: finished ones are reused, the others run in processes of their own.

    finished? ──yes──▶ result ─┐
        └─no──▶ process ──▶ cell.json ─┴─▶ all there, of one code ──▶ summarise ──▶ results.json, plots

Driven by the command line. Whatever ends it, what is finished stays finished, and the same command goes on. Every wait has an
end: a cell's deadline, or the next line of progress.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from coharness.studies.cells import CellFolder, CellProcess, Finished, Launch, find_folder, shown, start_here
from coharness.studies.contract import Cell, Study, StudyError, Summary
from coharness.studies.place import Place, load_study
from coharness.studies.results import Results, config_digest, versions, write_results, write_whole
from coharness.studies.sources import Tree, code_digest, summary_sources

PROGRESS_S = 30.0
"""Seconds between two lines about cells that are running."""
TAIL_LINES = 15

Say = Callable[[str], None]


class CellsFailed(StudyError):
    """Some cells ended without a result; the others are finished and will be reused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What to run."""

    place: Place
    quick: bool = False
    num_seeds: int | None = None
    "Seeds 0, 1, ...; the study's own number where left out, 1 for a smoke."
    rollouts: int | None = None
    "Budget of each arm instead of the study's own."
    parallel: int = 2
    "Cells that run at once."

    @property
    def command(self) -> str:
        """The command line that asks for the same."""
        words = [self.place.command]
        words += ["--quick"] if self.quick else []
        words += [f"--seeds {self.num_seeds}"] if self.num_seeds is not None else []
        words += [f"--rollouts {self.rollouts}"] if self.rollouts is not None else []
        return " ".join(words)


@dataclass(slots=True)
class _Running:
    folder: CellFolder
    process: CellProcess
    started: float
    timed_out: bool = False
    code: int = 0
    "What it ended with."


def run_study(request: RunRequest, say: Say, launch: Launch = start_here) -> Results:
    """Run what is not finished yet, and write the results.

    Args:
        request: what to run.
        say: shows one line of progress.
        launch: starts what carries a cell out; a process of this machine where left out.

    Raises:
        ConfigError: there is no such study, or the request does not fit it.
        CellsFailed: cells ended without a result; nothing was written.
        StudyError: the sources changed meanwhile, so that the cells are not of one code; nothing was written.
    """
    place = request.place
    before = Tree(place.root)
    before.read_all()
    study = load_study(place)
    num_seeds = request.num_seeds or (1 if request.quick else study.num_seeds)
    seeds = tuple(range(num_seeds))
    cells = study.cells(seeds, quick=request.quick, rollouts=request.rollouts)
    folders = cell_folders(place, cells)
    _run_missing(study, folders, request.parallel, say, launch)
    now = Tree(place.root)
    finished = _gather(place, cells, now)
    sources = shared_sources(finished)
    summary = study.summarise({cell: found.result for cell, found in finished.items()})
    summed_up = {name: digest for name, digest in summary_sources(place, now).items() if name not in sources}
    changed = before.changed(summed_up)
    if changed:
        # This process has imported what stood there before.
        raise StudyError(f"{shown(changed)} changed while {place} ran; run it again, its cells will be reused")
    found = Results(
        study=place.name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=request.command,
        seeds=seeds,
        rollouts=request.rollouts,
        budget=study.budget(quick=request.quick, rollouts=request.rollouts),
        versions=versions(place.root),
        config_digest=config_digest(cells),
        quick=request.quick,
        num_cells=len(cells),
        figures=summary.figures,
        tables=summary.tables,
        sources=sources,
        summary_sources=summed_up,
    )
    write_results(place.results_path(quick=request.quick), found)
    if not request.quick:
        _write_plots(place, summary)
    return found


def cell_folders(place: Place, cells: Sequence[Cell]) -> dict[Cell, CellFolder]:
    """The folder of each cell under the sources as they are now: that of its result, else that in which it would run.

    A shared cell's lies with the study that owns it.

    Raises:
        StudyError: a cell stands twice, or a folder is damaged.
    """
    return _folders(place, cells, Tree(place.root))


def _folders(place: Place, cells: Sequence[Cell], tree: Tree) -> dict[Cell, CellFolder]:
    codes: dict[str, str] = {}
    folders: dict[Cell, CellFolder] = {}
    for cell in cells:
        owner: Place = place.sibling(cell.owner) if cell.owner else place
        if owner.name not in codes:
            codes[owner.name] = code_digest(owner, tree)
        folders[cell] = find_folder(owner, cell, codes[owner.name], tree)
    if len({folder.path for folder in folders.values()}) < len(cells):
        raise StudyError(f"{place} names a cell twice; give its arms different names or configs")
    return folders


def shared_sources(finished: Mapping[Cell, Finished]) -> dict[str, str]:
    """All files that cells depend on, with their digests.

    Raises:
        StudyError: two cells ran a file that did not do the same.
    """
    sources: dict[str, tuple[str, Cell]] = {}
    for cell, found in finished.items():
        for name, digest in found.sources.items():
            known, first = sources.setdefault(name, (digest, cell))
            if known != digest:
                raise StudyError(
                    f"the cells {first} and {cell} are of two versions of {name}; run the study again: results never mix two "
                    "versions of the code"
                )
    return {name: digest for name, (digest, _) in sorted(sources.items())}


def _gather(place: Place, cells: Sequence[Cell], tree: Tree) -> dict[Cell, Finished]:
    found = {cell: folder.finished(tree) for cell, folder in _folders(place, cells, tree).items()}
    finished = {cell: of_cell for cell, of_cell in found.items() if of_cell is not None}
    if len(finished) < len(cells):
        raise StudyError(
            f"the sources changed while {place} ran, and {len(cells) - len(finished)} of its {len(cells)} cells are of an older "
            "version; run it again: results never mix two versions of the code"
        )
    return finished


def _write_plots(place: Place, summary: Summary) -> None:
    for name, text in summary.plots.items():
        if "/" in name or not name.endswith(".svg"):
            raise StudyError(f"{place} names a plot {name!r}, expected NAME.svg")
        write_whole(place.folder / name, text)


# Processes ----------------------------------------------------------------------------------------------------------


def _run_missing(study: Study, folders: Mapping[Cell, CellFolder], parallel: int, say: Say, launch: Launch) -> None:
    missing = deque(folder for folder in folders.values() if folder.result() is None)
    num_missing = len(missing)
    say(f"{study.name}: {len(folders)} cells, {len(folders) - num_missing} finished before, {num_missing} to run")
    running: dict[Cell, _Running] = {}
    ended: queue.SimpleQueue[tuple[Cell, int]] = queue.SimpleQueue()
    failures: list[str] = []
    num_done, next_line = 0, time.monotonic() + PROGRESS_S
    try:
        while missing or running:
            while missing and len(running) < max(1, parallel):
                _start(missing.popleft(), running, ended, launch)
            now = time.monotonic()
            due = min([next_line, *(r.started + study.cell_deadline_s for r in running.values() if not r.timed_out)])
            try:
                over, code = ended.get(timeout=max(0.0, due - now))
            except queue.Empty:
                _end_overdue(running, study.cell_deadline_s)
                if time.monotonic() >= next_line:
                    say(f"  running: {'; '.join(_how_far(r) for r in running.values())}")
                    next_line = time.monotonic() + PROGRESS_S
                continue
            cell = running.pop(over)
            cell.code = code
            num_done += 1
            failure = _failure(cell, study.cell_deadline_s)
            took = _minutes(time.monotonic() - cell.started)
            say(f"  [{num_done}/{num_missing}] {cell.folder.cell}: {'FAILED' if failure else 'finished'} after {took}")
            if failure:
                failures.append(failure)
    finally:
        for cell in running.values():
            cell.process.end()
    if failures:
        raise CellsFailed(
            f"{len(failures)} of {num_missing} cells failed; the others are finished and will be reused\n"
            + "\n".join(failures)
        )


def _start(
    folder: CellFolder, running: dict[Cell, _Running], ended: "queue.SimpleQueue[tuple[Cell, int]]", launch: Launch
) -> None:
    # The code may have changed since the first cells started: each runs with what stands there when it starts.
    folder = replace(folder, code=code_digest(folder.place, Tree(folder.place.root)))
    process = launch(folder)
    running[folder.cell] = _Running(folder=folder, process=process, started=time.monotonic())

    def wait() -> None:
        ended.put((folder.cell, process.wait()))

    threading.Thread(target=wait, name=f"cell {folder.cell}", daemon=True).start()


def _end_overdue(running: Mapping[Cell, _Running], deadline_s: float) -> None:
    for cell in running.values():
        if time.monotonic() >= cell.started + deadline_s and not cell.timed_out:
            cell.timed_out = True
            cell.process.end()


def _failure(cell: _Running, deadline_s: float) -> str | None:
    """What went wrong with an ended cell, with the tail of its log; None where it is finished."""
    if cell.folder.result() is not None:
        return None
    if cell.timed_out:
        reason = f"did not end within {_minutes(deadline_s)}"
    elif cell.code < 0:
        reason = f"was killed by signal {-cell.code}"
    else:
        reason = f"ended with exit code {cell.code} and no result"
    tail = "\n".join(f"    | {line}" for line in cell.folder.log_tail(TAIL_LINES)) or "    | (it printed nothing)"
    return f"  {cell.folder.cell} {reason}; its log {cell.folder.log_path}:\n{tail}"


def _how_far(cell: _Running) -> str:
    tail = cell.folder.log_tail(1)
    since = _minutes(time.monotonic() - cell.started)
    return f"{cell.folder.cell} ({since}{', ' + tail[0][:120] if tail else ''})"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
