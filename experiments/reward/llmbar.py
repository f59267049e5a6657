"""Recorded verdicts of 65 judge configurations on the 419 pairs of LLMBar (Zeng et al., 2024; MIT), each in both orders."""

import gzip
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coharness.studies.contract import StudyError

FILE = Path("shared") / "data" / "llmbar" / "judge_verdicts.json.gz"
PANEL = ("GPT-4", "PaLM2", "LLaMA2", "ChatGPT", "ChatGPT-0301", "Falcon")
"""Six families; the panel of the study is each of them with the plain prompt."""
PROMPT = "Vanilla"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The verdicts, +1 for the first output, -1 for the second, 0 where none could be read."""

    orders: dict[str, npt.NDArray[np.float64]]
    "Configuration -> [2, I]: as given, and with the outputs swapped, both in the frame of the first."
    truth: npt.NDArray[np.float64]
    "+1 or -1 [I]."
    longer: npt.NDArray[np.float64]
    "+1 where the first output is the longer one, else -1 [I]."


def data_file() -> Path:
    """Where the verdicts lie: `shared` in the project or beside it.

    Raises:
        StudyError: in neither place.
    """
    root = Path(__file__).resolve().parents[2]
    for folder in (root, root.parent):
        if (folder / FILE).is_file():
            return folder / FILE
    raise StudyError(
        f"{FILE} is neither in {root} nor beside it; this study needs the recorded verdicts of LLMBar's judges"
    )


def data_digest() -> str:
    """SHA-256 of the file."""
    return hashlib.sha256(data_file().read_bytes()).hexdigest()


def load() -> Recorded:
    """Read the verdicts."""
    data = json.loads(gzip.decompress(data_file().read_bytes()))
    orders = {name: np.asarray([[_sign(v) for v in pair] for pair in rows]).T for name, rows in data["V"].items()}
    return Recorded(
        orders=orders,
        truth=np.asarray([_sign(label) for label in data["Y"]]),
        longer=np.where(np.asarray(data["LEN"], dtype=np.float64) > 0, 1.0, -1.0),
    )


def _sign(label: Any) -> float:
    return 0.0 if label is None else {1: 1.0, 2: -1.0}[int(label)]
