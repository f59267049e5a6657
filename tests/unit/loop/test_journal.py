"""The journal: durable frames, a torn tail that is cut, and damage that is never skipped."""

import json

import pytest

from coharness.loop.journal import JournalWriter, follow, last_seq, read_frames, recover, segments
from coharness.records import events as ev
from coharness.records.errors import JournalError


def tick(n):
    return ev.Tick(elapsed_s=float(n), cpu_s=0.0)


def write(folder, count, epoch=1):
    writer = JournalWriter(folder, epoch)
    for n in range(count):
        writer.append([tick(n)])
    writer.close()
    return segments(folder)[-1]


def seconds(folder):
    return [e.elapsed_s for frame in read_frames(folder) for e in frame.events]


def test_frames_come_back_in_order_over_segments(tmp_path):
    write(tmp_path, 3)
    write(tmp_path, 2, epoch=2)
    frames = list(read_frames(tmp_path))
    assert [f.seq for f in frames] == [1, 2, 3, 4, 5]
    assert seconds(tmp_path) == [0, 1, 2, 0, 1]
    assert [f.seq for f in follow(tmp_path, 4)] == [4, 5]


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_torn_tail_is_cut_and_writing_goes_on(tmp_path, cut):
    path = write(tmp_path, 3)
    path.write_bytes(path.read_bytes()[:-cut])
    assert [f.seq for f in read_frames(tmp_path)] == [1, 2]
    assert recover(tmp_path) > 0
    write(tmp_path, 1, epoch=2)
    assert [f.seq for f in read_frames(tmp_path)] == [1, 2, 3]


def test_a_segment_without_a_header_is_dropped(tmp_path):
    write(tmp_path, 2)
    (tmp_path / "e0002-0001.jsonl").write_bytes(b'{"journal_sch')
    assert recover(tmp_path) > 0
    assert last_seq(tmp_path) == 2


def test_a_flipped_bit_in_the_middle_names_file_and_line(tmp_path):
    path = write(tmp_path, 4)
    data = bytearray(path.read_bytes())
    lines = bytes(data).split(b"\n")
    at = len(lines[0]) + len(lines[1]) + 30
    data[at] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(JournalError, match=rf"{path.name}, line 3"):
        list(read_frames(tmp_path))


def test_a_missing_frame_is_an_error(tmp_path):
    path = write(tmp_path, 4)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    with pytest.raises(JournalError, match="sequence 3, expected 2"):
        list(read_frames(tmp_path))


def test_an_older_schema_is_refused(tmp_path):
    path = write(tmp_path, 1)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(json.dumps({"journal_schema": 1, "epoch": 1}).encode() + b"\n" + b"".join(lines[1:]))
    with pytest.raises(JournalError, match="schema 1, older than"):
        list(read_frames(tmp_path))


def test_a_newer_schema_is_refused(tmp_path):
    path = write(tmp_path, 1)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(json.dumps({"journal_schema": 99, "epoch": 1}).encode() + b"\n" + b"".join(lines[1:]))
    with pytest.raises(JournalError, match="schema 99, newer than"):
        list(read_frames(tmp_path))


def test_an_unknown_record_names_its_line(tmp_path):
    path = write(tmp_path, 1)
    import zlib

    body = json.dumps([2, 0.0, [["Nonsense", []]]]).encode()
    with path.open("ab") as file:
        file.write(b"%08x %s\n" % (zlib.crc32(body), body))
    with pytest.raises(JournalError, match="line 3 cannot be read: unknown record 'Nonsense'"):
        list(read_frames(tmp_path))


def test_an_empty_journal_has_no_frames(tmp_path):
    assert list(read_frames(tmp_path)) == []
    assert last_seq(tmp_path) == 0


def test_a_frame_the_disk_refuses_leaves_nothing_and_says_how_to_go_on(tmp_path, full_disk):
    journal = tmp_path / "run" / "journal"
    journal.mkdir(parents=True)
    writer = JournalWriter(journal, 1)
    writer.append([tick(0)])
    path = segments(journal)[-1]
    whole = path.read_bytes()
    with full_disk(len(whole) + 10), pytest.raises(JournalError, match=r"coharness resume \S+run`$"):
        writer.append([tick(1)])
    assert path.read_bytes() == whole
    writer.append([tick(2)])
    writer.close()
    assert seconds(journal) == [0, 2]
