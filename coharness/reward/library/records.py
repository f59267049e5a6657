"""Rows of preference data sets of image edits, as they are published, read into one record.

    editreward-data    one row a pair: instruction, source_image, left_image, right_image, vote_type, scores 1-4 and 2-8
    editreward-bench   one row a pair of a group: id, dataset (2pair, 3pair, 4pair), instruction, comparison_type, ranking
    genai-bench        one row a pair: instruct_prompt, source_image, left_output_image, right_output_image, vote_type

The data are not shipped (one is gated, one is not for commerce); a folder of placeholders has the same shape. A file is JSONL or
Parquet; an image is a path beside it, or bytes, which are written out under their digest.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from coharness.records.errors import TaskError
from coharness.reward.library.preferences import Label, Preference, label_of_ranking, label_of_vote, num_pairs_of

MAX_IMAGE_BYTES = 32 * 2**20


class RecordKind(StrEnum):
    """Whose rows they are."""

    EDITREWARD_DATA = "editreward-data"
    EDITREWARD_BENCH = "editreward-bench"
    GENAI_BENCH = "genai-bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One pair with the files that it speaks of."""

    preference: Preference
    instruction: str
    source: str
    "Path below the folder of the file."
    first: str
    second: str
    k: int = 2
    "Candidates of its group."


def read_records(path: Path, kind: RecordKind) -> list[Record]:
    """All rows of a file.

    Raises:
        TaskError: the file cannot be read, or a row is none of its kind; the message names the row.
    """
    read = {
        RecordKind.EDITREWARD_DATA: _editreward_data,
        RecordKind.EDITREWARD_BENCH: _editreward_bench,
        RecordKind.GENAI_BENCH: _genai_bench,
    }[kind]
    records = []
    for number, row in enumerate(_rows(path), start=1):
        try:
            records.append(read(row, path.parent, number))
        except (KeyError, ValueError, TypeError) as error:
            what = f"has no field {error}" if isinstance(error, KeyError) else str(error)
            raise TaskError(f"{path}, row {number}: {what}; expected a row of {kind}") from error
    if kind is RecordKind.EDITREWARD_BENCH:
        _check_groups(path, records)
    return records


def overlap(
    train: Iterable[Record], benchmark: Iterable[Record], folder: Path, benchmark_folder: Path
) -> tuple[str, ...]:
    """Names of training pairs whose source image and instruction are also in a benchmark, by content."""
    known = {_content_key(record, benchmark_folder) for record in benchmark}
    return tuple(record.preference.name for record in train if _content_key(record, folder) in known)


def _content_key(record: Record, folder: Path) -> tuple[str, str]:
    data = (folder / record.source).read_bytes()
    return hashlib.sha256(data).hexdigest(), " ".join(record.instruction.lower().split())


def _editreward_data(row: Mapping[str, Any], folder: Path, number: int) -> Record:
    name = str(row.get("dev_id", number))
    left, right = row.get("left_overall_score"), row.get("right_overall_score")
    strength = abs(left - right) if isinstance(left, int | float) and isinstance(right, int | float) else None
    source = _image(row["source_image"], folder)
    return Record(
        preference=Preference(
            name=name, group=str(row.get("group", "")) or source, first=str(row.get("left_model", "left")),
            second=str(row.get("right_model", "right")), label=label_of_vote(_text(row, "vote_type")), strength=strength,
            annotator=str(row.get("annotator", "")),
        ),
        instruction=_text(row, "instruction"), source=source,
        first=_image(row["left_image"], folder), second=_image(row["right_image"], folder),
    )  # fmt: skip


def _editreward_bench(row: Mapping[str, Any], folder: Path, number: int) -> Record:
    k = {"2pair": 2, "3pair": 3, "4pair": 4}.get(_text(row, "dataset"))
    if k is None:
        raise ValueError(f"dataset is {row['dataset']!r:.40}, expected 2pair, 3pair or 4pair")
    # What stands before the underscore names the group; what is behind it, the pair.
    group = f"{k}:{_text(row, 'id').partition('_')[0]}"
    comparison = _text(row, "comparison_type")
    left, _, right = comparison.partition("vs")
    return Record(
        preference=Preference(
            name=f"{group}:{comparison}", group=group, first=left, second=right,
            label=label_of_ranking(_text(row, "ranking"), comparison),
        ),
        instruction=_text(row, "instruction"), source=_image(row["source_image"], folder),
        first=_image(row["candidate_1"], folder), second=_image(row["candidate_2"], folder), k=k,
    )  # fmt: skip


def _genai_bench(row: Mapping[str, Any], folder: Path, number: int) -> Record:
    vote = _text(row, "vote_type")
    labels = {"leftvote": Label.A, "rightvote": Label.B, "tievote": Label.TIE, "bothbad_vote": Label.TIE}
    if vote not in labels:
        raise ValueError(f"vote_type is {vote!r:.40}, expected one of {', '.join(labels)}")
    source = _image(row["source_image"], folder)
    return Record(
        preference=Preference(
            name=str(row.get("id", number)), group=f"{number}", first=str(row.get("left_model", "left")),
            second=str(row.get("right_model", "right")), label=labels[vote],
        ),
        instruction=_text(row, "instruct_prompt"), source=source,
        first=_image(row["left_output_image"], folder), second=_image(row["right_output_image"], folder),
    )  # fmt: skip


def _check_groups(path: Path, records: Sequence[Record]) -> None:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.preference.group, []).append(record)
    for name, group in groups.items():
        pairs = {frozenset((r.preference.first, r.preference.second)) for r in group}
        expected = num_pairs_of(group[0].k)
        if len(group) != expected or len(pairs) != expected:
            raise TaskError(f"{path}, group {name}: got {len(group)} rows of {len(pairs)} different pairs, "
                            f"expected {expected} for "
                            f"{group[0].k} candidates; the published release holds ids twice, pin another revision")  # fmt: skip


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            for batch in pq.ParquetFile(path).iter_batches(batch_size=64):
                yield from batch.to_pylist()
            return
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise TaskError(f"{path}, line {number}: got {type(row).__name__}, expected an object")
                    yield row
    except OSError as error:
        raise TaskError(f"{path} cannot be read: {error.strerror or error}") from error
    except json.JSONDecodeError as error:
        raise TaskError(f"{path} is no JSONL: {error}") from error


def _text(row: Mapping[str, Any], field: str) -> str:
    value = row[field]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{field} is {value!r:.40}, expected a text")
    return value.strip()


def _image(value: Any, folder: Path) -> str:
    """A path below the folder; bytes are written there first."""
    if isinstance(value, Mapping):
        data = value.get("bytes")
        if data is None:
            return _image(value.get("path"), folder)
        if not isinstance(data, bytes) or len(data) > MAX_IMAGE_BYTES:
            raise ValueError(f"an image has no bytes, or more than {MAX_IMAGE_BYTES}")
        name = f"images/{hashlib.sha256(data).hexdigest()[:24]}"
        path = folder / name
        if not path.is_file():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        return name
    if not isinstance(value, str) or not value:
        raise ValueError(f"an image is {value!r:.40}, expected a path or bytes")
    full = (folder / value).resolve()
    if not full.is_relative_to(folder.resolve()):
        raise ValueError(f"the image {value!r:.120} leads out of the folder of the file")
    if not full.is_file():
        raise ValueError(f"the image {value!r:.120} is not there")
    return value
