"""The archive of behaviour: against a plain dictionary and against pyribs; and members that go on from its elites."""

import numpy as np
import pytest

from coharness.evolution.selection.archive import Grid, Insertion, coverage, qd_score
from coharness.evolution.selection.contract import Genes, Individual, Population
from coharness.evolution.selection.map_elites import MapElites
from tests.unit.selection.people import person, rng

GRID = Grid(lows=(0.0, -1.0), highs=(1.0, 1.0), bins=(4, 3))


def filled(num: int, seed: int) -> list[tuple[Individual, Insertion]]:
    generator, elites, found = rng(seed), (), []
    for i in range(num):
        descriptor = tuple(map(float, generator.uniform([-0.2, -1.2], [1.2, 1.2])))
        newcomer = person(f"p{i}", float(generator.normal()), descriptor=descriptor)
        elites, status = GRID.insert(elites, newcomer, 0.5)
        found.append((newcomer, status))
    cells: dict[tuple[int, ...], Individual] = {}
    for newcomer, _ in found:
        cell = GRID.cell(newcomer.descriptor)
        if cell not in cells or newcomer.fitness.mean > cells[cell].fitness.mean:
            cells[cell] = newcomer
    assert {e.name for e in elites} == {e.name for e in cells.values()}
    assert coverage(GRID, elites) == len(cells) / 12
    assert qd_score(elites, -5.0) == pytest.approx(sum(e.fitness.mean + 5 for e in cells.values()))
    return found


def test_the_archive_holds_the_best_of_each_cell() -> None:
    found = filled(300, 0)
    assert {status for _, status in found} == set(Insertion)


def test_the_archive_does_what_pyribs_does_one_by_one() -> None:
    archives = pytest.importorskip("ribs.archives", reason="pyribs is not installed")
    theirs = archives.GridArchive(solution_dim=1, dims=[4, 3], ranges=[(0, 1), (-1, 1)], qd_score_offset=-5.0)
    elites: tuple[Individual, ...] = ()
    generator = rng(7)
    numbers = {Insertion.REJECTED: 0, Insertion.IMPROVED: 1, Insertion.NEW: 2}
    for i in range(400):
        descriptor = generator.uniform([-0.2, -1.2], [1.2, 1.2])
        score = float(generator.normal())
        elites, status = GRID.insert(elites, person(f"p{i}", score, descriptor=tuple(map(float, descriptor))), 0.5)
        info = theirs.add_single(np.asarray([i]), score, descriptor)
        assert int(np.asarray(info["status"]).item()) == numbers[status]
    assert qd_score(elites, -5.0) == pytest.approx(float(theirs.stats.qd_score))
    assert coverage(GRID, elites) == pytest.approx(float(theirs.stats.coverage))


def test_a_noisy_newcomer_must_be_surely_better() -> None:
    elites, _ = GRID.insert((), person("p0", 0.50, 0.1, descriptor=(0.1, 0.0)), 0.8)
    same, status = GRID.insert(elites, person("p1", 0.55, 0.1, descriptor=(0.1, 0.0)), 0.8)
    assert (same, status) == (elites, Insertion.REJECTED)
    assert GRID.insert(elites, person("p1", 0.75, 0.1, descriptor=(0.1, 0.0)), 0.8)[1] is Insertion.IMPROVED


def elite(
    name: str, of: str, mean: float, work: float, descriptor: tuple[float, float], retests: str = ""
) -> Individual:
    return person(name, mean, descriptor=descriptor, of=of, work=work, retests=retests)


def test_a_member_that_holds_its_cell_goes_on_and_any_other_goes_on_from_an_elite() -> None:
    rule = MapElites(grid=GRID, retest=0.3)
    elites: tuple[Individual, ...] = ()
    for newcomer in (elite("p0@1", "p0", 0.5, 10, (0.1, 0.0)), elite("p1@1", "p1", 0.4, 10, (0.9, 0.0))):
        elites = rule.remember(elites, newcomer)
    members = (person("p0", 0.5, work=10), person("p1", 0.4, work=20), person("p2", 0.1, work=10))
    population = Population(members=members, elites=elites)
    assert all(rule.choose(population, "p0", rng(s)) is None for s in range(20))
    changes = [rule.choose(population, "p1", rng(s)) for s in range(300)]
    assert {c.parents[0] for c in changes if c is not None} == {"p0@1", "p1@1"}
    assert sum(c is not None and c.genes is Genes.KEEP for c in changes) == pytest.approx(90, abs=30)
    assert rule.choose(Population(members=members), "p2", rng()) is None


def test_a_lucky_elite_is_withdrawn_by_its_own_retest() -> None:
    rule = MapElites(grid=GRID)
    elites = rule.remember((), elite("p0@1", "p0", 0.9, 10, (0.1, 0.0)))
    assert rule.remember(elites, elite("p1@1", "p1", 0.5, 10, (0.1, 0.0))) == elites
    fresh = elite("p1@2", "p1", 0.5, 20, (0.1, 0.0), retests="p0@1")
    assert rule.remember(elites, fresh) == (fresh,)
    elsewhere = elite("p1@3", "p1", 0.5, 20, (0.9, 0.0), retests="p0@1")
    assert rule.remember(elites, elsewhere) == (*elites, elsewhere)


@pytest.mark.parametrize("bad", [(0.1,), (0.1, float("nan"))])
def test_a_descriptor_that_does_not_fit_is_refused(bad: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="expected 2 finite numbers"):
        GRID.cell(bad)


def test_a_grid_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="low < high"):
        Grid(lows=(1.0,), highs=(1.0,), bins=(2,))
    with pytest.raises(ValueError, match="one each"):
        Grid(lows=(1.0,), highs=(2.0, 3.0), bins=(2,))
