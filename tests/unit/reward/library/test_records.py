"""Rows of published data sets, K-way orders, and an asynchronous population."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.records.errors import ConfigError, TaskError
from coharness.reward.library.aggregate import kemeny
from coharness.reward.library.executor import score
from coharness.reward.library.gate import GateRule, compare
from coharness.reward.library.library import Library
from coharness.reward.library.population import LibraryPopulation, LibraryTrial
from coharness.reward.library.preferences import Label
from coharness.reward.library.proposals import Action, Proposal
from coharness.reward.library.records import RecordKind, overlap, read_records
from tests.unit.reward.library.making import counting, drawn, skill


def jsonl(folder: Path, *rows: dict[str, Any]) -> Path:
    for name in ("s.png", "l.png", "r.png"):
        (folder / name).write_bytes(name.encode())
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


DATA = {
    "dev_id": 7, "instruction": "make it blue", "source_image": "s.png", "left_image": "l.png", "right_image": "r.png",
    "left_model": "m1", "right_model": "m2", "vote_type": "leftvote", "left_overall_score": 7, "right_overall_score": 4,
}  # fmt: skip


def test_demonstrations_keep_the_strength_that_they_carry(tmp_path: Path) -> None:
    (one, two) = read_records(
        jsonl(tmp_path, DATA, {**DATA, "dev_id": 8, "vote_type": "tie"}), RecordKind.EDITREWARD_DATA
    )
    assert (one.preference.label, one.preference.strength, one.instruction) == (Label.A, 3, "make it blue")
    assert (one.source, one.first, one.second) == ("s.png", "l.png", "r.png")
    assert two.preference.label is Label.TIE


def bench(pair: str, ranking: str, *, of: str = "3pair", group: str = "12") -> dict[str, Any]:
    return {
        "id": f"{group}_{pair}", "dataset": of, "instruction": "x", "source_image": "s.png", "candidate_1": "l.png",
        "candidate_2": "r.png", "comparison_type": pair, "ranking": ranking,
    }  # fmt: skip


def test_groups_of_the_benchmark_are_whole_or_an_error(tmp_path: Path) -> None:
    rows = [bench("AvsB", "A>B"), bench("AvsC", "C>A"), bench("BvsC", "C>B")]
    found = read_records(jsonl(tmp_path, *rows), RecordKind.EDITREWARD_BENCH)
    assert [record.preference.label for record in found] == [Label.A, Label.B, Label.B]
    assert {(record.preference.group, record.k) for record in found} == {("3:12", 3)}
    for broken in (rows[:2], [*rows, rows[0]], [rows[0], rows[0], rows[1]]):
        with pytest.raises(TaskError, match=r"group 3:12: got \d rows .* expected 3 for 3 candidates"):
            read_records(jsonl(tmp_path, *broken), RecordKind.EDITREWARD_BENCH)


def test_four_votes_of_genai_bench_are_three_labels(tmp_path: Path) -> None:
    row = {"instruct_prompt": "x", "source_image": "s.png", "left_output_image": "l.png", "right_output_image": "r.png"}
    votes = ("leftvote", "rightvote", "tievote", "bothbad_vote")
    found = read_records(jsonl(tmp_path, *({**row, "vote_type": vote} for vote in votes)), RecordKind.GENAI_BENCH)
    assert [record.preference.label.value for record in found] == ["A", "B", "tie", "tie"]
    with pytest.raises(TaskError, match="row 1: vote_type is 'maybe'"):
        read_records(jsonl(tmp_path, {**row, "vote_type": "maybe"}), RecordKind.GENAI_BENCH)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"instruction": " "}, "instruction is ' '"),
        ({"source_image": "../s.png"}, "leads out of the folder"),
        ({"source_image": "gone.png"}, "is not there"),
        ({"source_image": 5}, "expected a path or bytes"),
        ({"vote_type": None}, "vote_type is None"),
    ],
)
def test_a_wrong_row_is_an_error_that_names_it(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    with pytest.raises(TaskError, match=f"row 2: .*{why}"):
        read_records(jsonl(tmp_path, DATA, {**DATA, **change}), RecordKind.EDITREWARD_DATA)
    missing = {key: value for key, value in DATA.items() if key != "left_image"}
    with pytest.raises(TaskError, match="has no field 'left_image'"):
        read_records(jsonl(tmp_path, missing), RecordKind.EDITREWARD_DATA)


def test_parquet_with_images_in_it_is_read_like_files(tmp_path: Path) -> None:
    images = {name: {"bytes": name.encode(), "path": None} for name in ("source_image", "left_image", "right_image")}
    pq.write_table(pa.Table.from_pylist([{**DATA, **images}] * 2), tmp_path / "rows.parquet")
    one, two = read_records(tmp_path / "rows.parquet", RecordKind.EDITREWARD_DATA)
    assert (tmp_path / one.source).read_bytes() == b"source_image"
    assert one.source == two.source
    assert len(list((tmp_path / "images").iterdir())) == 3


def test_training_pairs_of_a_benchmark_are_found_by_content(tmp_path: Path) -> None:
    train, bench_folder = tmp_path / "train", tmp_path / "bench"
    train.mkdir()
    bench_folder.mkdir()
    mine = read_records(jsonl(train, DATA, {**DATA, "dev_id": 9, "instruction": "other"}), RecordKind.EDITREWARD_DATA)
    theirs = read_records(
        jsonl(bench_folder, {**DATA, "dev_id": 1, "instruction": "Make  it BLUE"}), RecordKind.EDITREWARD_DATA
    )
    assert overlap(mine, theirs, train, bench_folder) == ("7",)


# Orders of K --------------------------------------------------------------------------------------------------------


@given(
    st.dictionaries(st.sampled_from(list(itertools.combinations("abcd", 2))), st.sampled_from(list(Label)), min_size=1)
)
@settings(max_examples=60, deadline=None)
def test_no_order_breaks_less_than_kemenys(verdicts: dict[tuple[str, str], Label]) -> None:
    found = kemeny(verdicts)

    def broken(order: Sequence[str]) -> float:
        total = 0.0
        for (a, b), label in verdicts.items():
            a_first = order.index(a) < order.index(b)
            total += 0.5 if label is Label.TIE else float((label is Label.A) != a_first)
        return total

    assert found.broken == broken(found.best_first)
    assert found.broken == min(broken(order) for order in itertools.permutations(found.best_first))


def test_a_cycle_is_said_to_be_one_and_weights_break_it() -> None:
    circle = {("a", "b"): Label.A, ("b", "c"): Label.A, ("a", "c"): Label.B}
    found = kemeny(circle)
    assert (found.cyclic, found.unique, found.broken) == (True, False, 1.0)
    assert kemeny(circle, {("a", "c"): 0.5}).best_first == ("a", "b", "c")
    with pytest.raises(ValueError, match="stands twice"):
        kemeny({("a", "b"): Label.A, ("b", "a"): Label.A})


# Population ---------------------------------------------------------------------------------------------------------

IDEAS = [skill(name, criterion=counting(f, w)) for name, f, w in (
    ("a-high", "a@1/x", 1.5), ("noise", "noise@1/n0", 1.0), ("b-low", "b@1/x", -1.0), ("c-move", "c@1/x", 0.8))]  # fmt: skip


def propose(library: Library, seed: int) -> list[Proposal]:
    order = np.random.default_rng(seed).permutation(len(IDEAS))
    new = [IDEAS[i] for i in order if library.get(IDEAS[i].name) is None]
    return [Proposal(action=Action.ADD, name=entry.name, entry=entry) for entry in new]


def judged(trial: LibraryTrial) -> Any:
    table, _, pairs = drawn(11)
    margins = [score(table, version).margin(pairs.first, pairs.second) for version in (trial.parent, trial.challenger)]
    return compare(pairs, np.nan_to_num(margins[0]), margins[1])


def run(order_seed: int, workers: int) -> LibraryPopulation:
    """Results come back in a random order, several trials out at once."""
    rng = np.random.default_rng(order_seed)
    state = LibraryPopulation.of([Library.of("a"), Library.of("b")], GateRule(level=0.9), migrate=0.3, seed=1)
    for _ in range(200):
        while len(state.out) < workers:
            state, trial = state.ask(propose)
            if trial is None:
                break
        if not state.out:
            return state
        number = int(rng.choice(sorted(state.out)))
        state = state.tell(number, judged(state.out[number]))
    raise AssertionError("the population never came to rest")


@pytest.mark.parametrize("workers", [1, 3])
def test_a_population_finds_what_matters_whatever_the_order_of_answers(workers: int) -> None:
    for seed in range(3):
        state = run(seed, workers)
        assert {e.name for e in state.best.library.entries} >= {"a-high", "b-low"}
        assert "noise" not in {e.name for e in state.best.library.entries}
        assert run(seed, workers) == state


def test_a_result_for_a_version_that_is_gone_is_stale_and_a_failure_says_nothing() -> None:
    state = LibraryPopulation.of([Library.of("a")], GateRule())
    out: list[LibraryTrial] = []
    for _ in IDEAS:
        state, trial = state.ask(propose)
        assert trial is not None
        out.append(trial)
    assert len({trial.proposal.digest for trial in out}) == len(IDEAS)
    assert state.ask(propose) == (state, None)
    good, other = (next(t for t in out if t.proposal.name == name) for name in ("a-high", "b-low"))
    failed = state.tell(good.number, None)
    assert (failed.islands[0].refused, failed.islands[0].accepted) == ((), 0)
    moved = state.tell(good.number, judged(good))
    assert moved.islands[0].accepted == 1
    late = moved.tell(other.number, judged(other))
    assert (late.stale, late.islands) == (1, moved.islands)
    with pytest.raises(ConfigError, match="at least one"):
        LibraryPopulation.of([], GateRule())
