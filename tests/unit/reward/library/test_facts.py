"""Input -> expected facts of the published system's formats and metrics, held against our own code."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coharness.records.errors import TaskError
from coharness.reward.library.files import entry_of
from coharness.reward.library.library import Library
from coharness.reward.library.preferences import (
    Label,
    Preference,
    agrees,
    chance,
    group_accuracy,
    label_of_ranking,
    label_of_vote,
    mean_of,
    published_gate,
    with_swaps,
)
from coharness.reward.library.router import RouteUnreadable, read_route
from coharness.reward.library.scores import viescore

T, F = True, False


def groups(*rows: list[bool | None]) -> dict[str, list[bool | None]]:
    return {f"g{index}": row for index, row in enumerate(rows)}


@pytest.mark.parametrize(
    ("rows", "k", "correct"),
    [
        ([[T], [T], [T]], 2, 3),
        ([[T], [F]], 2, 1),
        ([[T], [F], [T], [T]], 2, 3),
        ([[T, T, T]], 3, 1),
        ([[T, T, F]], 3, 0),
        ([[T, T, T], [T, F, T]], 3, 1),
        ([[T] * 6], 4, 1),
        ([[T] * 5 + [F]], 4, 0),
        ([[T] * 6, [T] * 5 + [F]], 4, 1),
    ],
)
def test_a_group_counts_where_all_of_its_pairs_are_right(rows: list[list[bool | None]], k: int, correct: int) -> None:
    found = group_accuracy(groups(*rows), k)
    assert (found.correct, found.groups, found.share) == (correct, len(rows), Fraction(correct, len(rows)))


def test_no_group_is_zero_of_zero_and_five_candidates_are_refused() -> None:
    assert group_accuracy({}, 4).share == 0
    with pytest.raises(ValueError, match="got 5, expected 2, 3 or 4"):
        group_accuracy({}, 5)


def test_a_failed_pair_stays_in_its_group_and_spoils_it() -> None:
    found = group_accuracy(groups([T, T, None], [T, T, T]), 3)
    assert (found.correct, found.groups, found.failed) == (1, 2, 1)


@pytest.mark.parametrize(("k", "size"), [(2, 2), (3, 2), (4, 1), (4, 7)])
def test_a_group_of_another_size_is_an_error_that_names_it(k: int, size: int) -> None:
    with pytest.raises(ValueError, match=rf"'g0'.*got {size} pairs"):
        group_accuracy(groups([T] * size), k)


@pytest.mark.parametrize(
    ("said", "truth", "right"),
    [(" A ", "A", T), ("a", "A", T), ("TIE", "tie", T), ("tie", "A", F), ("A", "B", F)],
)
def test_labels_agree_whatever_their_case_and_the_space_around_them(said: str, truth: str, right: bool) -> None:
    assert agrees(said, truth) is right


@pytest.mark.parametrize(
    ("ranking", "comparison", "label"),
    [("B>A", "AvsB", "B"), ("A>C", "AvsC", "A"), ("C>A", "AvsC", "B"), ("D>B", "BvsD", "B"), ("A=B", "AvsB", "tie")],
)
def test_a_ranking_of_two_gives_the_label_of_its_comparison(ranking: str, comparison: str, label: str) -> None:
    assert label_of_ranking(ranking, comparison) == label


def test_a_ranking_of_others_than_the_comparison_is_an_error() -> None:
    with pytest.raises(TaskError, match="'A>C' for the comparison 'AvsB'"):
        label_of_ranking("A>C", "AvsB")


@pytest.mark.parametrize(("vote", "label"), [("leftvote", "A"), ("RIGHTVOTE", "B"), ("whatever", "tie")])
def test_votes_give_labels(vote: str, label: str) -> None:
    assert label_of_vote(vote) == label


@given(st.lists(st.sampled_from(list(Label)), min_size=1, max_size=40))
def test_a_judge_of_position_is_half_right_on_strict_pairs_and_never_on_ties_once_swapped(labels: list[Label]) -> None:
    rows = [Preference(name=f"{i}", group="g", first="x", second="y", label=label) for i, label in enumerate(labels)]
    swapped = with_swaps(rows)
    strict = sum(label is not Label.TIE for label in labels)
    assert len(swapped) == 2 * len(rows)
    assert sum(row.label is Label.A for row in swapped) == strict
    assert [row.swapped.label for row in rows] == [row.label.swapped for row in rows]
    assert all(twin.name == f"{row.name}_swap" for row, twin in zip(swapped[::2], swapped[1::2], strict=True))


def test_the_published_gate_is_exact_at_its_margin() -> None:
    assert published_gate(24, 21, 40)  # .60 and .525
    assert not published_gate(24, 20, 40)  # .60 and .50
    assert published_gate(22, 19, 40)
    # In floats the last one falls on the other side, as do eight more of the 38 cases at exactly three of 40.
    by_float = [best for best in range(3, 41) if not (best - 3) / 40 >= best / 40 - 0.075]
    assert by_float == [4, 9, 22, 26, 27, 31, 32, 36, 37]
    assert all(published_gate(best, best - 3, 40) for best in range(3, 41))


@pytest.mark.parametrize(
    ("row", "mean"),
    [
        ((57.9, 46.7, 10.8, 67.5), "45.725"),
        ((66.2, 45.3, 13.5, 64.4), "47.35"),
        ((57.53, 38.51, 12.84, 59.61), "42.1225"),
        ((52.69, 24.67, 3.38, 40.48), "30.305"),
        ((56.45, 42.67, 11.49, 65.72), "44.0825"),
    ],
)
def test_the_headline_is_the_plain_mean_of_four(row: tuple[float, ...], mean: str) -> None:
    assert mean_of(row) == Fraction(mean)


@pytest.mark.parametrize(
    ("correct", "total", "percent"),
    [(16, 148, 10.81), (20, 148, 13.51), (19, 148, 12.84), (70, 150, 46.67), (214, 372, 57.53), (210, 372, 56.45)],
)
def test_published_percentages_are_counts_of_groups(correct: int, total: int, percent: float) -> None:
    found = group_accuracy(groups(*([[T]] * correct + [[F]] * (total - correct))), 2)
    assert round(float(100 * found.share), 2) == percent


def test_chance_is_exact() -> None:
    assert [chance(k, "coin") for k in (2, 3, 4)] == [Fraction(1, 2), Fraction(1, 8), Fraction(1, 64)]
    assert [chance(k, "order") for k in (2, 3, 4)] == [Fraction(1, 2), Fraction(1, 6), Fraction(1, 24)]
    assert [round(float(100 * chance(k, "label")), 3) for k in (2, 3, 4)] == [33.333, 3.704, 0.137]


@pytest.mark.parametrize("text", ["[5, 7, 2, 9]", "[0, 10, 3.5, 1]"])
def test_four_numbers_from_0_to_10_are_scores_and_their_mean_is_the_aggregate(text: str) -> None:
    found = viescore(text)
    assert found is not None
    assert found.mean == sum(found.values) / 4


@pytest.mark.parametrize(
    "text", ["[5, 7, 2]", "[5, 7, 2, 11]", "[true, 1, 1, 1]", '{"a": 1}', "[1, 2, 3, NaN]", "5 7 2 9", ""]
)
def test_anything_else_is_no_score(text: str) -> None:
    assert viescore(text) is None


def library(*names: str) -> Library:
    skills = [entry_of(f"---\nname: {n}\nkind: skill\ndescription: about {n}\n---\nbody", n) for n in names if n < "m"]
    tools = [
        entry_of(
            f"---\nname: {n}\nkind: tool\ndescription: about {n}\nsystem_prompt: look\noutput_schema: {{x: str}}\n---\n",
            n,
        )
        for n in names
        if n >= "m"
    ]
    return Library.of("some", [*skills, *tools])


@pytest.mark.parametrize("text", ["[]", '{"skills": "x"}', '{"skills": [1]}', "{}", "nonsense", '"skills"'])
def test_what_is_no_route_is_a_failure_and_neither_all_nor_nothing(text: str) -> None:
    with pytest.raises(RouteUnreadable):
        read_route(text, library("a", "t"))


def test_a_route_has_each_name_once_and_none_that_is_unknown() -> None:
    route = read_route('{"skills": ["a", "a", "z"], "tools": ["t", "t"]}', library("a", "t"))
    assert (route.skills, route.tools, route.unknown) == (("a",), ("t",), ("z",))
