"""Whether the packages of the extra `images` are here, and what to do where they are not."""

from importlib.util import find_spec

from coharness.records.errors import PreflightError

INSTALL = 'pip install "coharness-evolution[images]"'
"""What installs them."""
_PACKAGES = {"cv2": "opencv-python-headless", "skimage": "scikit-image"}


def missing() -> tuple[str, ...]:
    """Packages that the image tools need and that are not installed."""
    return tuple(package for module, package in _PACKAGES.items() if find_spec(module) is None)


def require_images() -> None:
    """Check that the image tools can run.

    Raises:
        PreflightError: a package is missing; the message says how to install it.
    """
    absent = missing()
    if absent:
        raise PreflightError(f"judging images needs {', '.join(absent)}, not installed here; {INSTALL} installs it")


def has_ocr() -> bool:
    """Whether text in images can be read; without it, the tools of text abstain."""
    return find_spec("rapidocr") is not None
