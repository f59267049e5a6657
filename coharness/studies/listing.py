"""All studies of a project with their state, from their files alone; nothing is run."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from coharness.records.errors import CoharnessError
from coharness.studies.bars import hold, read_bars
from coharness.studies.cells import shown
from coharness.studies.check import full_results, staleness
from coharness.studies.contract import Table
from coharness.studies.place import StudyPlace, all_studies, load_study
from coharness.studies.runner import cell_folders


class StudyState(StrEnum):
    """Where a study stands."""

    NEVER_RUN = "never run"
    "It has no results; some of its cells may be finished."
    QUICK_ONLY = "quick only"
    "Its smoke was run, no full run."
    STALE = "stale"
    "Files that its results depend on, or its cells, have changed."
    MET = "bars met"
    "Its results hold, and every figure lies in its accepted range."
    MISSED = "bars missed"
    "Its results hold, and at least one figure does not reach its bar."
    BROKEN = "broken"
    "It cannot be loaded or read here."


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One study as the list shows it."""

    name: str
    state: StudyState
    detail: str
    "What the state means in this case."
    question: str


def list_studies(root: Path) -> tuple[Listed, ...]:
    """All studies of a project, by name; one that cannot be loaded is listed as broken, with the reason."""
    return tuple(_listed(place) for place in all_studies(root))


def _listed(place: StudyPlace) -> Listed:
    question = ""
    try:
        question = load_study(place).question
        state, detail = _state(place)
    except (CoharnessError, ImportError) as error:
        # One broken study must not hide the others.
        state, detail = StudyState.BROKEN, str(error).splitlines()[0]
    return Listed(name=place.name, state=state, detail=detail, question=question)


def _state(place: StudyPlace) -> tuple[StudyState, str]:
    if not place.results_path(quick=False).is_file():
        study = load_study(place)
        folders = cell_folders(place, study.cells(range(study.num_seeds), quick=False, rollouts=None))
        num_done = sum(folder.result() is not None for folder in folders.values())
        state = StudyState.QUICK_ONLY if place.results_path(quick=True).is_file() else StudyState.NEVER_RUN
        return state, f"{num_done} of {len(folders)} cells finished"
    results = full_results(place)
    stale = staleness(place, results)
    if stale:
        return StudyState.STALE, "changed since: " + "; ".join(shown(reason.files) or "its cells" for reason in stale)
    verdicts = [hold(bar, results) for bar in read_bars(place.bars_path)]
    missed = [verdict for verdict in verdicts if not verdict.is_met]
    if missed:
        return StudyState.MISSED, f"{len(missed)} of {len(verdicts)}: {missed[0].bar.figure}" + (
            ", ..." if len(missed) > 1 else ""
        )
    return StudyState.MET, f"{len(verdicts)} of {len(verdicts)}"


def listing_table(listed: tuple[Listed, ...]) -> Table:
    """The list as a table."""
    return Table(
        title="Studies",
        columns=("study", "state", "detail", "question"),
        rows=tuple((entry.name, entry.state.value, entry.detail, entry.question) for entry in listed),
    )
