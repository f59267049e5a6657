import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coharness.records.errors import ConfigError
from coharness.report.sealed_view import BASE, CHAMPION, NOT_CLAIMED, SealedError, parse_sealed, read_sealed
from tests.unit.report.synthetic import sealed_json


def means(data: dict[str, Any], arm: str) -> float:
    """Success as the mean over (family, level) of the share solved, computed the long way round."""
    cells: dict[tuple[str, int], list[int]] = {}
    for family, level, _, correct, _ in data["arms"][arm]["rows"]:
        cells.setdefault((family, level), []).append(correct)
    return float(np.mean([np.mean(hits) for hits in cells.values()]))


def uneven(data: dict[str, Any]) -> dict[str, Any]:
    """The same readings with one cell cut down to three tasks, so that cells and tasks weigh differently."""
    for arm in [*data["arms"].values(), *(m["arm"] for m in data["milestones"])]:
        arm["rows"] = arm["rows"][:3] + arm["rows"][12:]
        if "oracle_correct" in arm:
            arm["oracle_correct"] = arm["oracle_correct"][:3] + arm["oracle_correct"][12:]
    return data


def test_success_is_the_mean_over_families_and_levels() -> None:
    data = uneven(sealed_json())
    sealed = parse_sealed(data)
    for name, arm in sealed.arms.items():
        assert sealed.success(arm).value == pytest.approx(means(data, name))


def test_the_difference_is_paired_and_tighter_than_two_separate_intervals() -> None:
    data = sealed_json()
    sealed = parse_sealed(data)
    gain = sealed.difference(CHAMPION, BASE)
    assert gain.value == pytest.approx(means(data, CHAMPION) - means(data, BASE))
    apart = sealed.success(sealed.arms[CHAMPION]), sealed.success(sealed.arms[BASE])
    assert gain.high - gain.low < sum(i.high - i.low for i in apart)


def test_the_interaction_is_the_double_difference_of_the_cells() -> None:
    data = sealed_json()
    cells = [means(data, name) for name in ("theta0_h0", "theta_h0", "theta0_h", "theta_h")]
    assert parse_sealed(data).interaction().value == pytest.approx(cells[3] - cells[1] - cells[2] + cells[0])


def test_the_same_file_always_prints_the_same_intervals() -> None:
    assert parse_sealed(sealed_json()).difference(CHAMPION, BASE) == parse_sealed(sealed_json()).difference(
        CHAMPION, BASE
    )


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ((0.2, 0.5, 0.3, 0.8), "The champion is better than the untouched base"),
        ((0.8, 0.5, 0.3, 0.2), "The champion is worse than the untouched base"),
        ((0.5, 0.5, 0.5, 0.5), "does not show that the champion differs"),
    ],
)
def test_the_words_follow_the_interval(rates: tuple[float, ...], expected: str) -> None:
    assert expected in " ".join(parse_sealed(sealed_json(rates=rates)).claims())


@pytest.mark.parametrize(("rate", "expected"), [(0.9, "lies above"), (0.37, "does not exceed")])
def test_the_vote_row_is_held_against_the_champions_lower_bound(rate: float, expected: str) -> None:
    words = parse_sealed(sealed_json(rates=(0.2, 0.3, 0.3, rate))).claims()
    assert sum(expected in sentence for sentence in words) == 2


def test_a_missing_vote_is_said() -> None:
    assert "No majority vote of the base was measured" in parse_sealed(sealed_json(votes=False)).claims()[-1]


def test_a_single_run_never_claims_that_co_evolution_wins() -> None:
    sealed = parse_sealed(sealed_json(rates=(0.0, 0.1, 0.1, 1.0)))
    words = " ".join([*sealed.claims(), *NOT_CLAIMED]).lower()
    assert "wins" not in words
    assert "needs the control schedules of a study" in words


def test_a_cell_of_one_task_is_pooled_by_family() -> None:
    sealed = parse_sealed(sealed_json(per_cell=1, num_milestones=0, votes=False))
    assert set(sealed.strata) == {(family, 0) for family in sealed.families}
    assert sealed.success(sealed.arms[BASE]).level == 0.95


def test_arms_over_other_tasks_are_refused_by_name() -> None:
    data = sealed_json()
    rows = data["arms"]["theta_h"]["rows"]
    rows[0], rows[1] = rows[1], rows[0]
    with pytest.raises(SealedError, match=r"arm theta_h .* other tasks than theta0_h0"):
        parse_sealed(data)


@pytest.mark.parametrize("damage", ["schema", "arm", "rows", "oracle"])
def test_what_cannot_be_read_is_an_error(damage: str) -> None:
    data = copy.deepcopy(sealed_json())
    match damage:
        case "schema":
            data["schema"] = 2
        case "arm":
            del data["arms"]["theta_h0"]
        case "rows":
            for arm in data["arms"].values():
                arm["rows"] = arm["rows"][:1]
        case _:
            data["arms"]["vote_equal_tokens"]["oracle_correct"].pop()
    with pytest.raises(SealedError):
        parse_sealed(data)


def test_a_file_that_is_absent_is_no_reading_and_one_that_is_no_json_an_error(tmp_path: Path) -> None:
    path = tmp_path / "sealed.json"
    assert read_sealed(path) is None
    path.write_text("{")
    with pytest.raises(ConfigError, match="not JSON"):
        read_sealed(path)
    path.write_text(json.dumps(sealed_json()))
    assert read_sealed(path) is not None
