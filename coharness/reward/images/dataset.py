"""A file of preferences with its images, measured: what a library is evolved from or tested on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from coharness.records.errors import TaskError
from coharness.reward.images.measure import Measured, Task, measure_tasks
from coharness.reward.images.media import read_image
from coharness.reward.images.pixels import Image
from coharness.reward.library.records import Record, RecordKind, read_records
from coharness.reward.library.table import FeatureTable, Ints, PairTable

MAX_SIDE = 512
"""Images are scaled down to this before they are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrations:
    """Measurements and preferences of one file."""

    table: FeatureTable
    pairs: PairTable
    names: tuple[str, ...]
    "Name of each pair, in the order of `pairs`."
    unread: tuple[str, ...]
    "Pairs that were left out, since their instruction is not understood."


def load(path: Path, kind: RecordKind = RecordKind.EDITREWARD_DATA, *, use_strength: bool = False) -> Demonstrations:
    """Read and measure a file of preferences.

    Args:
        path: JSONL or Parquet, images beside it.
        kind: whose rows they are.
        use_strength: whether a pair counts by how much better the preferred candidate is.

    Raises:
        TaskError: the file, a row or an image is wrong, or no instruction is understood.
    """
    records = read_records(path, kind)
    tasks = _tasks(records, path.parent)
    measured = measure_tasks(tasks.values())
    return _joined(path, records, tasks, measured, use_strength=use_strength)


def _tasks(records: Sequence[Record], folder: Path) -> dict[str, Task]:
    """One task a group; a candidate is known by its file, so that one that stands in several pairs is measured once."""
    files: dict[str, list[str]] = {}
    about: dict[str, Record] = {}
    for record in records:
        group = record.preference.group
        first = about.setdefault(group, record)
        if (first.source, first.instruction) != (record.source, record.instruction):
            raise TaskError(f"group {group}: its pairs have different sources or instructions")
        known = files.setdefault(group, [])
        known += [file for file in (record.first, record.second) if file not in known]
    tasks = {}
    for group, known in files.items():
        source = scaled(read_image(folder / about[group].source))
        candidates = tuple(fitted(read_image(folder / file), source) for file in known)
        tasks[group] = Task(name=group, source=source, instruction=about[group].instruction, candidates=candidates)
    return tasks


def scaled(image: Image) -> Image:
    """An image with no side above `MAX_SIDE`."""
    height, width = image.shape[:2]
    factor = MAX_SIDE / max(height, width)
    if factor >= 1.0:
        return image
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)


def fitted(image: Image, source: Image) -> Image:
    """A candidate in the size of its source: models give back other sizes than they were given."""
    if image.shape == source.shape:
        return image
    size = (source.shape[1], source.shape[0])
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)


def _joined(
    path: Path, records: Sequence[Record], tasks: Mapping[str, Task], measured: Measured, *, use_strength: bool
) -> Demonstrations:
    places: dict[tuple[str, str], int] = {}
    for record in records:
        for file in (record.first, record.second):
            group = record.preference.group
            places.setdefault((group, file), sum(1 for known, _ in places if known == group))
    groups = {name: index for index, name in enumerate(measured.table.names)}
    kept = [record for record in records if record.preference.group in groups]
    if not kept:
        raise TaskError(
            f"{path}: none of its {len(records)} instructions is understood; see coharness/reward/images/spec.py for the grammar"
        )

    def rows(files: Sequence[str]) -> Ints:
        return np.array(
            [
                measured.rows[r.preference.group, places[r.preference.group, f]]
                for r, f in zip(kept, files, strict=True)
            ],
            dtype=np.int64,
        )

    strengths = np.array([r.preference.strength or 0.0 for r in kept])
    weight = np.ones(len(kept))
    if use_strength and strengths.any():
        # Scaled to a mean of one, so that the ridge means the same with and without.
        weight = (strengths + 0.5 * strengths.mean()) / (1.5 * strengths.mean())
    pairs = PairTable(
        first=rows([r.first for r in kept]), second=rows([r.second for r in kept]),
        target=np.array([r.preference.label.target for r in kept]), weight=weight,
        group=np.array([groups[r.preference.group] for r in kept], dtype=np.int64),
    )  # fmt: skip
    unread = tuple(r.preference.name for r in records if r.preference.group not in groups)
    return Demonstrations(
        table=measured.table, pairs=pairs, names=tuple(r.preference.name for r in kept), unread=unread
    )
