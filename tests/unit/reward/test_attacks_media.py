"""Attacks by images, addresses and paths: 8 to 11 of the list in test_attacks."""

import struct
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.reward.judges.addresses import AddressRefused, pin
from coharness.reward.judges.handles import UnknownHandle, file_of
from coharness.reward.judges.media import MAX_PIXELS, MediaRejected, inspect

# 8, 9: images -------------------------------------------------------------------------------------------------------


def png(
    width: int, height: int, *, depth: int = 8, colour: int = 2, extra: tuple[bytes, ...] = (), tail: bytes = b""
) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = b"".join(chunk(name, b"\x00" * 8) for name in extra)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IDAT", b"x") + chunk(b"IEND", b"") + tail


def jpeg(width: int, height: int, *, channels: int = 3, depth: int = 8, tail: bytes = b"") -> bytes:
    frame = struct.pack(">BHHB", depth, height, width, channels) + b"\x01\x11\x00" * channels
    scan = b"\x01\x01\x00\x00\x3f\x00"
    segments = (
        b"\xff\xc0" + struct.pack(">H", 2 + len(frame)) + frame + b"\xff\xda" + struct.pack(">H", 2 + len(scan)) + scan
    )
    return b"\xff\xd8" + segments + b"pixels" + b"\xff\xd9" + tail


def test_08_a_bomb_is_seen_in_its_header() -> None:
    assert (inspect(png(640, 480)).width, inspect(jpeg(640, 480)).height) == (640, 480)
    began = time.process_time()
    for bomb in (png(20_000, 20_000), jpeg(20_000, 20_000), png(2**31, 1), png(4001, 4001), png(0, 5)):
        with pytest.raises(MediaRejected):
            inspect(bomb)
    assert time.process_time() - began < 0.5, "headers alone are read"
    assert inspect(png(4000, 4000)).width ** 2 == MAX_PIXELS


@pytest.mark.parametrize(
    "data",
    [
        b"GIF89a" + b"\x00" * 20, b"II*\x00" + b"\x00" * 20, b"<svg xmlns='x'/>", b"BM" + b"\x00" * 60, b"",
        png(8, 8, depth=16), png(8, 8, extra=(b"acTL",)), png(8, 8, tail=b"PK\x03\x04zip"), png(8, 8)[:-6],
        jpeg(8, 8, channels=4), jpeg(8, 8, depth=12), jpeg(8, 8, tail=b"<script>"), jpeg(8, 8)[:-2], jpeg(8, 8)[:9],
        jpeg(8, 8) + jpeg(8, 8), b"\xff\xd8\xff\xe0\x00\x00", b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 2**31) + b"IHDR",
    ],
)  # fmt: skip
def test_09_what_is_no_plain_still_image_is_rejected(data: bytes) -> None:
    with pytest.raises(MediaRejected):
        inspect(data)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200), st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"]))
def test_09_no_bytes_break_the_inspection(data: bytes, head: bytes) -> None:
    try:
        media = inspect(head + data)
    except MediaRejected:
        return
    assert media.width * media.height <= MAX_PIXELS


# 10, 11: addresses and paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("file:///etc/passwd", []), ("http://images.example/x", ["93.184.216.34"]), ("data:image/png;base64,AAAA", []),
        ("https://127.0.0.1/x", ["127.0.0.1"]), ("https://2130706433/x", ["127.0.0.1"]), ("https://[::1]/x", ["::1"]),
        ("https://evil.example/x", ["93.184.216.34"]), ("https://images.example@evil.example/", ["93.184.216.34"]),
        ("https://images.example:8443/x", ["93.184.216.34"]), ("https://images.example\\@evil.example/", ["93.184.216.34"]),
        ("https://images.example/x", ["169.254.169.254"]), ("https://images.example/x", ["10.0.0.8"]),
        ("https://images.example/x", ["93.184.216.34", "127.0.0.1"]), ("https://images.example/x", ["::ffff:127.0.0.1"]),
        ("https://images.example/x", ["fe80::1%eth0"]), ("https://images.example/x", ["0.0.0.0"]),
        ("https://images.example/x", []), ("https://images.example/" + "a" * 3000, ["93.184.216.34"]),
    ],
)  # fmt: skip
def test_10_no_address_leads_inside_or_elsewhere(url: str, addresses: list[str]) -> None:
    with pytest.raises(AddressRefused):
        pin(url, ["images.example"], resolver=lambda host, port: addresses)


def test_10_a_name_is_resolved_once_and_the_answer_is_what_is_connected_to() -> None:
    answers = [["93.184.216.34"], ["127.0.0.1"]]
    pinned = pin("https://images.example/x", ["images.example"], resolver=lambda host, port: answers.pop(0))
    assert (pinned.host, pinned.address, pinned.port) == ("images.example", "93.184.216.34", 443)
    assert len(answers) == 1
    with pytest.raises(AddressRefused, match="not among those"):
        pin("https://images.example/x", [], resolver=lambda host, port: ["93.184.216.34"])


@pytest.mark.parametrize(
    "handle", ["../secret", "/etc/passwd", "a/b", "..", ".", "", "A", "a\x00b", "link", "folder", "x" * 65]
)
def test_11_a_handle_never_becomes_a_path(tmp_path: Path, handle: str) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (tmp_path / "secret").write_text("s")
    (store / "image1").write_text("i")
    (store / "folder").mkdir()
    (store / "link").symlink_to(tmp_path / "secret")
    assert file_of(store, "image1").read_text() == "i"
    with pytest.raises(UnknownHandle):
        file_of(store, handle)
