"""Reading image files that anyone may have made: a header check before anything is decoded, few formats, a bound on pixels."""

import io
import warnings
from pathlib import Path

import numpy as np
from PIL import Image as Pillow

from coharness.records.errors import TaskError
from coharness.reward.images.pixels import Image

FORMATS = ("PNG", "JPEG", "WEBP")
MAX_PIXELS = 16_000_000
MAX_BYTES = 32 * 2**20
MIN_SIDE = 16


class MediaRejected(TaskError):
    """An image that is not opened; the message says why and quotes nothing of it."""


def read_image(path: Path) -> Image:
    """An image file as uint8 sRGB [H, W, 3]; transparency is laid over white, of an animation the first frame is taken.

    Raises:
        MediaRejected: it is missing, too large, of another format, or damaged.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise MediaRejected(f"{path.name} has more than {MAX_BYTES} bytes")
        data = path.read_bytes()
    except OSError as error:
        raise MediaRejected(f"{path.name} cannot be read: {error.strerror}") from error
    return decode_image(data, path.name)


def decode_image(data: bytes, name: str) -> Image:
    """As `read_image`, of bytes; `name` stands in errors."""
    try:
        with warnings.catch_warnings():
            # The library warns of large images and opens them; here the header decides first.
            warnings.simplefilter("error", Pillow.DecompressionBombWarning)
            with Pillow.open(io.BytesIO(data), formats=FORMATS) as opened:
                width, height = opened.size
                if width * height > MAX_PIXELS or min(width, height) < MIN_SIDE:
                    raise MediaRejected(
                        f"{name} has {width}x{height} pixels, expected {MIN_SIDE} a side to {MAX_PIXELS} in all"
                    )
                whole = opened.convert("RGBA")
    except MediaRejected:
        raise
    except (Pillow.DecompressionBombError, Pillow.DecompressionBombWarning) as error:
        raise MediaRejected(f"{name} claims more than {MAX_PIXELS} pixels") from error
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise MediaRejected(f"{name} is no whole image of the formats {', '.join(FORMATS)}") from error
    paper = Pillow.new("RGBA", whole.size, (255, 255, 255, 255))
    return np.asarray(Pillow.alpha_composite(paper, whole).convert("RGB"), dtype=np.uint8)
