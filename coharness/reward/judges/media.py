"""Images by their headers alone: what is decoded later is bounded before a byte of it is.

A PNG of 48 kB may decode to 1.1 GB. So size, depth and frames are read from the header, kinds are an allow-list, and what follows
the image's end is refused: a file that is two things at once is read differently by each reader.
"""

import struct
from dataclasses import dataclass

MAX_PIXELS = 16_000_000
MAX_BYTES = 20 * 2**20
MAX_DECODED_BYTES = 64 * 2**20


class MediaRejected(Exception):
    """An image that is not looked at; the message may go to a client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """What a header says."""

    kind: str
    "`png` or `jpeg`."
    width: int
    height: int
    channels: int

    @property
    def decoded_bytes(self) -> int:
        """Memory of the decoded image at eight bits a channel."""
        return self.width * self.height * self.channels


def inspect(data: bytes) -> Media:
    """Read a header and hold it against the bounds; never decodes.

    Raises:
        MediaRejected: another kind, too large, animated, 16 bits, CMYK, truncated, or with something after its end.
    """
    if len(data) > MAX_BYTES:
        raise MediaRejected(f"the file has more than {MAX_BYTES} bytes")
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        media = _png(data)
    elif data.startswith(b"\xff\xd8\xff"):
        media = _jpeg(data)
    else:
        raise MediaRejected("only PNG and JPEG images are judged")
    if (
        media.width < 1
        or media.height < 1
        or media.width * media.height > MAX_PIXELS
        or media.decoded_bytes > MAX_DECODED_BYTES
    ):
        raise MediaRejected(f"the image has {media.width} x {media.height} pixels, expected 1 to {MAX_PIXELS} in all")
    return media


def _png(data: bytes) -> Media:
    position, media, ended = 8, None, False
    while position + 12 <= len(data):
        length, name = struct.unpack(">I4s", data[position : position + 8])
        end = position + 12 + length
        if length > MAX_BYTES or end > len(data):
            break
        if media is None:
            if name != b"IHDR" or length != 13:
                raise MediaRejected("the PNG does not begin with its header")
            width, height, depth, colour, _, _, _ = struct.unpack(">IIBBBBB", data[position + 8 : position + 21])
            if depth > 8:
                raise MediaRejected("images of more than 8 bits a channel are not judged")
            media = Media(
                kind="png", width=width, height=height, channels={0: 1, 2: 3, 3: 3, 4: 2, 6: 4}.get(colour, 4)
            )
        if name == b"acTL":
            raise MediaRejected("animated images are not judged")
        position = end
        if name == b"IEND":
            ended = True
            break
    if media is None or not ended:
        raise MediaRejected("the PNG is truncated")
    if position != len(data):
        raise MediaRejected("something follows the image's end")
    return media


def _jpeg(data: bytes) -> Media:
    position, media = 2, None
    while position + 4 <= len(data):
        if data[position] != 0xFF:
            raise MediaRejected("the JPEG is damaged")
        marker = data[position + 1]
        if marker == 0xFF:
            position += 1
            continue
        length = struct.unpack(">H", data[position + 2 : position + 4])[0]
        if length < 2:
            raise MediaRejected("the JPEG is damaged")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            if position + 10 > len(data):
                break
            depth, height, width, channels = struct.unpack(">BHHB", data[position + 4 : position + 10])
            if depth != 8 or channels not in (1, 3):
                raise MediaRejected("only JPEGs of 8 bits, grey or of three channels, are judged")
            media = Media(kind="jpeg", width=width, height=height, channels=channels)
        position += 2 + length
        if marker == 0xDA:
            break
    if media is None or not data.endswith(b"\xff\xd9"):
        raise MediaRejected("the JPEG is truncated, or something follows its end")
    if data.find(b"\xff\xd9", position) != len(data) - 2:
        raise MediaRejected("something follows the image's end")
    return media
