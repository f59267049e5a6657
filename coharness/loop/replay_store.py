"""The replay store: episodes as Arrow IPC segments of the run directory, and an index from item to rows.

Files of `replay/`: `seg-000007.arrows` is sealed (an Arrow IPC stream any tool reads), `seg-000008.arrows.open` is being
written (see `replay_segments`), `fence.json` says who may write. Invariants:

- `append` returns when the rows are on disk, so an outcome that is journaled afterwards never lacks its episodes;
- an item is in the store once: a repeated delivery is ignored, the first one stays;
- opening cuts the open segment of a dead writer at its first batch that is torn or damaged, seals it, and goes on in a
  new one; a sealed segment is never written to again;
- one writer: opening takes the fence, and a writer that lost it (an older epoch, a process thought dead) is refused.

Driven by the replay actor on Ray and by the in-process fleet; the report reads through `read_episodes`.
"""

import json
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coharness.loop.replay_segments import OpenSegment, recover, scan, sealed_path, segments
from coharness.records.episode import EPISODE_SCHEMA
from coharness.records.errors import Boundary, BoundaryError
from coharness.records.ids import ItemId

ROLL_BYTES = 32 << 20
"""A segment is sealed once it is this large."""
MAX_MAPPED = 8
"""Sealed segments kept mapped; an older one is mapped again when it is asked for."""

_FENCE = "fence.json"


class ArrowReplayStore:
    """The writing end of the store; see the module for what it promises.

    Args:
        replay_dir: its folder; created where missing.
        epoch: the run's epoch. Taking the fence ends the right of every writer opened before.
        roll_bytes: size at which a segment is sealed.
        max_mapped: sealed segments kept mapped.

    Raises:
        BoundaryError: REPLAY, where the folder belongs to a later epoch.
    """

    def __init__(
        self, replay_dir: Path, epoch: int, *, roll_bytes: int = ROLL_BYTES, max_mapped: int = MAX_MAPPED
    ) -> None:
        self._dir = Path(replay_dir)
        self._dir.mkdir(parents=True, exist_ok=True)
        self._roll_bytes = roll_bytes
        self._max_mapped = max_mapped
        self._fence = _take_fence(self._dir, epoch)
        self._rows: dict[int, tuple[int, int, int, int]] = {}
        self._mapped: OrderedDict[int, list[pa.RecordBatch]] = OrderedDict()
        self._open: OpenSegment | None = None
        last = -1
        for number, path in segments(self._dir):
            last = number
            if path.suffix == ".open":
                recover(path)
                path = sealed_path(self._dir, number)
            if path.exists():
                for position, batch in enumerate(self._map(number, path)):
                    self._index(number, position, batch)
        self._next = last + 1

    def __len__(self) -> int:
        """Items in the store."""
        return len(self._rows)

    def __contains__(self, item: object) -> bool:
        """Whether the store holds the episodes of this item."""
        return item in self._rows

    def append(self, table: pa.Table) -> None:
        """Keep episodes (`EPISODE_SCHEMA`) and return once they are on disk; items already there are ignored.

        Raises:
            ValueError: the table has another schema.
            BoundaryError: REPLAY, where a later writer has taken the store over.
        """
        if not table.schema.equals(EPISODE_SCHEMA):
            raise ValueError(
                f"the replay store keeps tables of EPISODE_SCHEMA ({len(EPISODE_SCHEMA)} columns), got "
                f"{table.schema.names}; build them with coharness.records.episode.episodes_to_table"
            )
        batch = _grouped(table, self._rows)
        if batch is None:
            return
        self._check_fence()
        if self._open is None:
            self._open = OpenSegment(self._dir, self._next)
            self._next += 1
        segment = self._open
        kept = segment.write(batch)
        self._index(segment.number, len(segment.batches) - 1, kept)
        if segment.num_bytes >= self._roll_bytes:
            self._seal()

    def fetch(self, items: Sequence[ItemId]) -> pa.Table:
        """All episodes of these items, in the order of `items`, each item once.

        Raises:
            KeyError: an item is not in the store.
        """
        wanted = list(dict.fromkeys(items))
        missing = [item for item in wanted if item not in self._rows]
        if missing:
            raise KeyError(
                f"{len(missing)} of {len(wanted)} items are not in the replay store, the first is {missing[0]}; "
                f"it holds {len(self)} items under {self._dir}"
            )
        if not wanted:
            return EPISODE_SCHEMA.empty_table()
        by_batch: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        for rank, item in enumerate(wanted):
            number, position, start, count = self._rows[item]
            by_batch.setdefault((number, position), []).append((rank, start, count))
        pieces: list[pa.RecordBatch] = []
        ranks: list[np.ndarray[Any, np.dtype[np.int64]]] = []
        # A slice costs 60 µs to concatenate, a `take` 250 µs [measured, 64 rows a batch]; most jobs want most of a batch.
        for (number, position), spans in sorted(by_batch.items()):
            batch = self._batches(number)[position]
            if len(spans) <= 4:
                pieces.extend(batch.slice(start, count) for _, start, count in spans)
            else:
                pieces.append(batch.take(pa.array(np.concatenate([np.arange(s, s + n) for _, s, n in spans]))))
            ranks.append(np.repeat([rank for rank, _, _ in spans], [n for _, _, n in spans]))
        found = pa.concat_batches(pieces)
        order = np.argsort(np.concatenate(ranks), kind="stable")
        if np.any(np.diff(order) < 0):
            found = found.take(pa.array(order))
        return pa.Table.from_batches([found], EPISODE_SCHEMA)

    def close(self) -> None:
        """Seal the open segment; the store can be appended to again and then opens a new one."""
        if self._open is not None:
            self._check_fence()
            self._seal()

    def _seal(self) -> None:
        segment, self._open = self._open, None
        if segment is not None:
            segment.seal()
            self._remember(segment.number, segment.batches)

    def _index(self, number: int, position: int, batch: pa.RecordBatch) -> None:
        items = batch.column("item").to_numpy()
        starts = np.flatnonzero(np.diff(items, prepend=items[0] - 1))
        counts = np.diff(starts, append=len(items))
        for item, start, count in zip(items[starts].tolist(), starts.tolist(), counts.tolist(), strict=True):
            self._rows.setdefault(item, (number, position, start, count))

    def _batches(self, number: int) -> list[pa.RecordBatch]:
        if self._open is not None and number == self._open.number:
            return self._open.batches
        if number in self._mapped:
            self._mapped.move_to_end(number)
            return self._mapped[number]
        return self._map(number, sealed_path(self._dir, number))

    def _map(self, number: int, path: Path) -> list[pa.RecordBatch]:
        return self._remember(number, scan(path, verify=False).batches)

    def _remember(self, number: int, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        self._mapped[number] = batches
        if len(self._mapped) > self._max_mapped:
            self._mapped.popitem(last=False)
        return batches

    def _check_fence(self) -> None:
        now = _read_fence(self._dir)
        if now != self._fence:
            raise BoundaryError(
                Boundary.REPLAY,
                f"this writer of epoch {self._fence['epoch']} no longer owns {self._dir}: it was taken over "
                f"under epoch {now.get('epoch')}; end this process",
            )


def read_episodes(replay_dir: Path, items: Sequence[ItemId] | None = None) -> pa.Table:
    """Episodes of a run (`EPISODE_SCHEMA`), in the order they were written, whether or not the run is still going.

    Reads alone: nothing is repaired, what is being written at this moment is left out. Items that are not there are no
    error.
    """
    wanted = None if items is None else pa.array(list(items), pa.int64())
    batches: list[pa.RecordBatch] = []
    for number, path in segments(Path(replay_dir)):
        sealed = sealed_path(Path(replay_dir), number)
        try:
            found = scan(path, verify=path != sealed).batches
        except FileNotFoundError:
            # It was sealed between listing and reading.
            found = scan(sealed, verify=False).batches
        if wanted is not None:
            found = [b.filter(pc.is_in(b.column("item"), wanted)) for b in found]
        batches.extend(found)
    return pa.Table.from_batches(batches, EPISODE_SCHEMA)


def _grouped(table: pa.Table, known: dict[int, Any]) -> pa.RecordBatch | None:
    """Rows of new items as one batch, the rows of an item side by side in their order; None where nothing is new."""
    items = table.column("item").to_numpy()
    fresh = np.fromiter((item not in known for item in items.tolist()), dtype=bool, count=len(items))
    if not fresh.any():
        return None
    if not fresh.all():
        table = table.filter(pa.array(fresh))
        items = items[fresh]
    if np.any(np.diff(items) < 0):
        table = table.take(pa.array(np.argsort(items, kind="stable")))
    columns = [table.column(name).combine_chunks() for name in EPISODE_SCHEMA.names]
    return pa.RecordBatch.from_arrays(columns, schema=EPISODE_SCHEMA)


def _take_fence(folder: Path, epoch: int) -> dict[str, Any]:
    current = _read_fence(folder)
    if current.get("epoch", epoch) > epoch:
        raise BoundaryError(
            Boundary.REPLAY,
            f"{folder} belongs to epoch {current['epoch']}, this process has the older epoch {epoch}; "
            f"the run was resumed elsewhere, end this process",
        )
    fence = {"epoch": epoch, "writer": uuid4().hex}
    temporary = folder / f"{_FENCE}.{fence['writer']}"
    temporary.write_text(json.dumps(fence))
    temporary.replace(folder / _FENCE)
    return fence


def _read_fence(folder: Path) -> dict[str, Any]:
    try:
        fence: dict[str, Any] = json.loads((folder / _FENCE).read_text())
    except FileNotFoundError:
        return {}
    return fence
