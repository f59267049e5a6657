"""Results against bars, or the reason why they cannot be compared.

A check speaks of one commit: it refuses results of a smoke, results of other code or other configs than those that stand here,
and a checkout with changes. Each refusal says what to do about it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from coharness.studies.bars import BarVerdict, hold, read_bars
from coharness.studies.cells import shown
from coharness.studies.contract import StudyError
from coharness.studies.place import StudyPlace, load_study
from coharness.studies.results import Results, config_digest, dirty_sources, read_results
from coharness.studies.runner import RunRequest
from coharness.studies.sources import Tree


class Staleness(StrEnum):
    """Why results no longer speak of the code that stands here."""

    CODE = "code"
    "Files that cells depend on do something else now, or are gone."
    CONFIG = "config"
    "The study's cells have changed: arms, configs, or files that they read."
    SUMMARY = "summary"
    "Files that make figures of the cells do something else now; the cells still hold."


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """One reason why results no longer hold."""

    kind: Staleness
    files: tuple[str, ...] = ()
    "Those that changed."

    def __str__(self) -> str:
        match self.kind:
            case Staleness.CODE:
                return f"{shown(self.files)} changed since its cells ran; run the study again, cells without it will be reused"
            case Staleness.CONFIG:
                return "its cells are not those that the study names now; run the study again"
            case Staleness.SUMMARY:
                return (
                    f"{shown(self.files)} changed since it was summed up; run the study again, its cells will be reused"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A study's figures held against its bars."""

    results: Results
    verdicts: tuple[BarVerdict, ...]
    notes: tuple[str, ...]

    @property
    def is_met(self) -> bool:
        """Whether every bar is met."""
        return all(verdict.is_met for verdict in self.verdicts)


def check_study(place: StudyPlace) -> Checked:
    """Hold a study's results against its bars.

    Raises:
        StudyError: the results cannot be compared: none, a smoke's, stale, or the checkout has changes.
        ConfigError: there is no such study, or its bars.json is wrong.
    """
    bars = read_bars(place.bars_path)
    results = full_results(place)
    _refuse_dirty(place)
    stale = staleness(place, results)
    if stale:
        reasons = "\n  ".join(map(str, stale))
        raise StudyError(f"results.json of {place} is stale: {reasons}\n  {results.command}")
    return Checked(results=results, verdicts=tuple(hold(bar, results) for bar in bars), notes=_notes(place, results))


def full_results(place: StudyPlace) -> Results:
    """The results of a full run.

    Raises:
        StudyError: there are none, or they are a smoke's.
    """
    path = place.results_path(quick=False)
    if not path.is_file():
        only = "only those of a smoke (--quick), which no bar is held against" if _has_quick(place) else "none"
        raise StudyError(f"{place} has no results.json: {only}; run `{RunRequest(place=place).command}`")
    results = read_results(path)
    if results.quick:
        raise StudyError(
            f"{path} holds the results of a smoke (--quick), which no bar is held against; "
            f"run `{RunRequest(place=place).command}`"
        )
    return results


def _has_quick(place: StudyPlace) -> bool:
    return place.results_path(quick=True).is_file()


def staleness(place: StudyPlace, results: Results) -> Sequence[Stale]:
    """What has changed since the results were made, the costliest first."""
    study = load_study(place)
    cells = study.cells(results.seeds, quick=results.quick, rollouts=results.rollouts)
    tree = Tree(place.root)
    found = []
    if files := tree.changed(results.sources):
        found.append(Stale(kind=Staleness.CODE, files=files))
    if config_digest(cells) != results.config_digest:
        found.append(Stale(kind=Staleness.CONFIG))
    if files := tree.changed(results.summary_sources):
        found.append(Stale(kind=Staleness.SUMMARY, files=files))
    return found


def _refuse_dirty(place: StudyPlace) -> None:
    dirty = dirty_sources(place.root)
    if dirty is None:
        raise StudyError(
            f"{place.root} is no git checkout, so the results cannot be tied to a commit; check from a clone of the repository"
        )
    if dirty:
        raise StudyError(
            f"the checkout has uncommitted sources: {shown(dirty)}; commit or set them aside, then check again"
        )


def _notes(place: StudyPlace, results: Results) -> tuple[str, ...]:
    """What a reader should know before the verdicts: a budget or a number of seeds that is not the study's own."""
    study, notes = load_study(place), []
    own = study.budget(quick=False, rollouts=None)
    if dict(own) != dict(results.budget):
        notes.append(f"the budget of these results is {_budget(results.budget)}, the study's own is {_budget(own)}")
    if len(results.seeds) < study.num_seeds:
        notes.append(f"these results have {len(results.seeds)} seeds, the study's own number is {study.num_seeds}")
    return tuple(notes)


def _budget(budget: object) -> str:
    return ", ".join(f"{value:,.0f} {name}" for name, value in dict(budget).items())  # type: ignore[call-overload]
