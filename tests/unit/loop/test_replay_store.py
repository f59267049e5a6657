"""The replay store: what is appended can be fetched, once, whatever dies in between."""

import io
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.loop.replay_store import ArrowReplayStore, read_episodes
from coharness.records.episode import EPISODE_SCHEMA, Episode, Score, StopReason, episodes_from_table, episodes_to_table
from coharness.records.errors import Boundary, BoundaryError
from coharness.records.ids import ItemId

FullDisk = Callable[[int], AbstractContextManager[None]]


def episode(item: int, sample: int = 0, *, length: int = 5, answer: str | None = "ab") -> Episode:
    return Episode(
        item=ItemId(item), sample=sample, policy="p0", step=1, harness="h-1", task=f"t{item}", family="reverse", level=2,
        task_seed=item * 7, format="plain", purpose="train", temperature=0.5, token_ids=list(range(item, item + length)),
        loss_mask=[n > 1 for n in range(length)], logprobs=[-0.5] * length, prompt_length=2, reference_ids=[1, 2, item],
        answer=answer, stop_reason=StopReason.EOS,
        score=Score(value=0.5, exact=1.0, partial=0.0, format=1.0, length=0.25, feedback="é" * (item % 3)),
    )  # fmt: skip


def group(item: int, size: int = 1, length: int = 5) -> list[Episode]:
    return [episode(item, sample, length=length) for sample in range(size)]


def table_of(items: Sequence[int], size: int = 1, length: int = 5) -> pa.Table:
    return episodes_to_table([e for item in items for e in group(item, size, length=length)])


def ids(numbers: Sequence[int]) -> list[ItemId]:
    return [ItemId(n) for n in numbers]


def open_segment(folder: Path) -> Path:
    (path,) = folder.glob("*.open")
    return path


def test_episodes_come_back_as_they_went_in(tmp_path: Path) -> None:
    episodes = [episode(1), episode(2, answer=None), episode(3, length=0)]
    store = ArrowReplayStore(tmp_path, 1)
    store.append(episodes_to_table(episodes))
    assert episodes_from_table(store.fetch(ids([1, 2, 3]))) == episodes
    assert store.fetch(ids([1])).schema == EPISODE_SCHEMA


def test_rows_come_in_the_order_of_the_request_whatever_batch_they_lie_in(tmp_path: Path) -> None:
    store = ArrowReplayStore(tmp_path, 1, roll_bytes=6_000)
    for start in range(0, 60, 12):
        store.append(table_of(range(start, start + 12), size=2))
    request = [59, 0, 13, 12, 14, 15, 16, 17, 1, 2, 3, 4, 5, 40]
    fetched = store.fetch(ids(request))
    expected = [row for item in request for row in ((item, 0), (item, 1))]
    assert list(zip(fetched["item"].to_pylist(), fetched["sample"].to_pylist(), strict=True)) == expected


def test_an_item_asked_for_twice_comes_once(tmp_path: Path) -> None:
    store = ArrowReplayStore(tmp_path, 1)
    store.append(table_of([1, 2]))
    assert store.fetch(ids([2, 1, 2]))["item"].to_pylist() == [2, 1]


def test_nothing_asked_for_is_an_empty_table_with_the_schema(tmp_path: Path) -> None:
    assert ArrowReplayStore(tmp_path, 1).fetch([]).schema == EPISODE_SCHEMA


def test_a_repeated_delivery_is_ignored_and_the_first_one_stays(tmp_path: Path) -> None:
    store = ArrowReplayStore(tmp_path, 1)
    store.append(table_of([1, 2], size=2))
    store.append(table_of([2, 3], size=2, length=9))
    assert store.fetch(ids([2])).num_rows == 2
    assert store.fetch(ids([2]))["token_ids"].to_pylist()[0] == list(range(2, 7))
    assert len(store) == 3
    assert read_episodes(tmp_path).num_rows == 6


def test_rows_of_a_group_that_arrive_apart_in_a_table_stay_in_order(tmp_path: Path) -> None:
    store = ArrowReplayStore(tmp_path, 1)
    store.append(episodes_to_table([episode(5, 0), episode(4, 0), episode(5, 1), episode(4, 1)]))
    assert store.fetch(ids([5]))["sample"].to_pylist() == [0, 1]


def test_a_missing_item_is_named(tmp_path: Path) -> None:
    store = ArrowReplayStore(tmp_path, 1)
    store.append(table_of([1]))
    with pytest.raises(KeyError, match="1 of 2 items are not in the replay store, the first is 7"):
        store.fetch(ids([1, 7]))


def test_another_schema_is_refused_with_the_columns_it_had(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"got \['item'\]"):
        ArrowReplayStore(tmp_path, 1).append(pa.table({"item": [1]}))


def test_segments_roll_and_only_the_last_is_open(tmp_path: Path) -> None:
    store = ArrowReplayStore(tmp_path, 1, roll_bytes=4_000)
    for item in range(12):
        store.append(table_of([item], size=8))
    sealed = sorted(tmp_path.glob("*.arrows"))
    assert len(sealed) >= 3
    assert len(list(tmp_path.glob("*.open"))) <= 1
    # A sealed segment is an ordinary Arrow stream with a proper end.
    assert pa.ipc.open_stream(io.BytesIO(sealed[0].read_bytes())).read_all().num_rows >= 8


def test_few_segments_stay_mapped_and_old_ones_are_still_served(tmp_path: Path) -> None:
    store = ArrowReplayStore(tmp_path, 1, roll_bytes=1, max_mapped=2)
    for item in range(9):
        store.append(table_of([item]))
    assert store.fetch(ids(range(9)))["item"].to_pylist() == list(range(9))
    assert len(store._mapped) == 2


def test_reopening_finds_sealed_and_open_segments_and_goes_on(tmp_path: Path) -> None:
    store = ArrowReplayStore(tmp_path, 1, roll_bytes=5_500)
    for item in range(9):
        store.append(table_of([item], size=4))
    again = ArrowReplayStore(tmp_path, 1, roll_bytes=5_500)
    again.append(table_of([99]))
    assert again.fetch(ids([99, *range(9)]))["item"].to_pylist() == [99, *(i for i in range(9) for _ in range(4))]
    assert len(list(tmp_path.glob("*.open"))) == 1


def test_closing_seals_and_the_store_can_be_appended_to_again(tmp_path: Path) -> None:
    store = ArrowReplayStore(tmp_path, 1)
    store.append(table_of([1]))
    store.close()
    store.close()
    assert not list(tmp_path.glob("*.open"))
    store.append(table_of([2]))
    assert store.fetch(ids([1, 2])).num_rows == 2


@given(kept=st.floats(min_value=0, max_value=1))
@settings(max_examples=20, deadline=None)
def test_a_torn_tail_costs_only_the_batches_it_tore(kept: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("torn")
    store = ArrowReplayStore(folder, 1)
    ends = []
    for item in range(4):
        store.append(table_of([item], size=3))
        ends.append(open_segment(folder).stat().st_size)
    cut = round(kept * ends[-1])
    with open_segment(folder).open("r+b") as file:
        file.truncate(cut)
    whole = [item for item, end in enumerate(ends) if end <= cut]
    assert sorted(set(read_episodes(folder)["item"].to_pylist())) == whole
    again = ArrowReplayStore(folder, 2)
    assert [item for item in range(5) if item in again] == whole
    again.append(table_of(range(4), size=3))
    assert again.fetch(ids(range(4))).num_rows == 12
    shutil.rmtree(folder)


@dataclass(frozen=True, repr=False)
class Written:
    data: bytes
    truth: dict[int, pa.Table]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Bytes of an open segment of three items, and what it holds."""
    folder = tmp_path_factory.mktemp("written")
    store = ArrowReplayStore(folder, 1)
    for item in range(3):
        store.append(table_of([item], size=2))
    return Written(open_segment(folder).read_bytes(), {item: store.fetch(ids([item])) for item in range(3)})


@given(at=st.floats(min_value=0, max_value=1, exclude_max=True), flip=st.integers(1, 255))
@settings(max_examples=150, deadline=None)
def test_a_damaged_byte_in_an_open_segment_never_reaches_a_reader(
    at: float, flip: int, written: Written, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    data, truth = bytearray(written.data), written.truth
    data[int(at * len(data))] ^= flip
    (folder / "seg-000000.arrows.open").write_bytes(data)
    try:
        rows = read_episodes(folder)
    except BoundaryError:
        return  # The schema itself was hit, and said so.
    for item in set(rows["item"].to_pylist()):
        assert rows.filter(pc.equal(rows["item"], item)).equals(truth[item])


def test_a_segment_of_another_schema_version_is_refused_and_kept(tmp_path: Path) -> None:
    later = EPISODE_SCHEMA.with_metadata({"coharness.schema": "episode/99"})
    path = tmp_path / "seg-000000.arrows.open"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, later) as writer:
        writer.write_table(table_of([1]).cast(later))
    for opener in (lambda: ArrowReplayStore(tmp_path, 1), lambda: read_episodes(tmp_path)):
        with pytest.raises(BoundaryError, match="holds episode/99, this code reads episode/2"):
            opener()
    assert path.exists()


def test_a_tail_of_zeros_as_a_power_failure_leaves_is_cut(tmp_path: Path) -> None:
    ArrowReplayStore(tmp_path, 1).append(table_of([1, 2]))
    with open_segment(tmp_path).open("ab") as file:
        file.write(bytes(4096))
    again = ArrowReplayStore(tmp_path, 1)
    assert again.fetch(ids([1, 2])).num_rows == 2
    assert pa.ipc.open_stream(io.BytesIO(next(tmp_path.glob("*.arrows")).read_bytes())).read_all().num_rows == 2


def test_an_older_epoch_is_refused_when_it_opens(tmp_path: Path) -> None:
    ArrowReplayStore(tmp_path, 3)
    with pytest.raises(BoundaryError, match="belongs to epoch 3, this process has the older epoch 2") as caught:
        ArrowReplayStore(tmp_path, 2)
    assert caught.value.boundary is Boundary.REPLAY


@pytest.mark.parametrize("later", [1, 2])
def test_a_writer_that_was_taken_over_is_refused_even_in_its_own_epoch(tmp_path: Path, later: int) -> None:
    old = ArrowReplayStore(tmp_path, 1)
    old.append(table_of([1]))
    new = ArrowReplayStore(tmp_path, later)
    with pytest.raises(BoundaryError, match="no longer owns"):
        old.append(table_of([2]))
    with pytest.raises(BoundaryError, match="no longer owns"):
        old.close()
    assert ItemId(2) not in new


def test_a_reader_beside_the_writer_sees_what_was_appended_and_changes_nothing(tmp_path: Path) -> None:
    store = ArrowReplayStore(tmp_path, 1, roll_bytes=4_000)
    for item in range(9):
        store.append(table_of([item], size=4))
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert read_episodes(tmp_path)["item"].to_pylist() == [i for i in range(9) for _ in range(4)]
    assert read_episodes(tmp_path, ids([8, 2, 77]))["item"].to_pylist() == [2] * 4 + [8] * 4
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_run_without_episodes_reads_as_an_empty_table(tmp_path: Path) -> None:
    assert read_episodes(tmp_path / "replay").schema == EPISODE_SCHEMA


@pytest.mark.parametrize("num_kept", [0, 1])
def test_a_batch_the_disk_refuses_leaves_nothing_and_the_store_goes_on(
    tmp_path: Path, full_disk: FullDisk, num_kept: int
) -> None:
    store = ArrowReplayStore(tmp_path, 1)
    for item in range(num_kept):
        store.append(table_of([item]))
    room = sum(path.stat().st_size for path in tmp_path.glob("*.open"))
    with full_disk(room + 100), pytest.raises(BoundaryError, match="free space"):
        store.append(table_of([7]))
    assert 7 not in store
    store.append(table_of([8]))
    store.close()
    assert sorted(read_episodes(tmp_path)["item"].to_pylist()) == [*range(num_kept), 8]
    assert len(ArrowReplayStore(tmp_path, 2)) == num_kept + 1
