"""Judgments under the hash of everything they depend on, so that none is paid for twice and every one can be had again offline.

The key is the full SHA-256 of tenant, model, settings, protocol, rubric, mode, question and the candidates' *raw* text: two texts
that look alike are two keys. Only judgments that were read are kept; a failure may not repeat itself for ever. One SQLite file,
safe between threads and processes. There is no search by similarity: a policy could steer into a neighbour's score.
"""

import hashlib
import json
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coharness.records.ids import JSON


def cache_key(
    *,
    tenant: str,
    model: str,
    rubric: str,
    protocol: int,
    mode: str,
    question: str,
    candidates: Sequence[str],
    settings: JSON = None,
) -> str:
    """The key of one judgment, 64 hex digits. Lone surrogates are kept apart from what replaces them."""
    fields = [tenant, model, rubric, str(protocol), mode, question, json.dumps(settings, sort_keys=True), *candidates]
    digest = hashlib.sha256()
    for text in fields:
        data = text.encode("utf-8", "surrogatepass")
        # Lengths first: no field can borrow from its neighbour.
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


class JudgmentCache:
    """Key -> JSON value."""

    def __init__(self, path: Path | None) -> None:
        """`path` is the file, None for memory alone."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._database = sqlite3.connect(":memory:" if path is None else path, timeout=30.0, check_same_thread=False)
        with self._lock, self._database:
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS judgments (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
            )

    def get(self, key: str) -> Any:
        """The value, None where there is none."""
        with self._lock:
            row = self._database.execute("SELECT value FROM judgments WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def put(self, key: str, value: JSON) -> None:
        """Keep a value; the first one under a key stays, so that a replay reads what the run read."""
        text = json.dumps(value, ensure_ascii=True, allow_nan=False)
        with self._lock, self._database:
            self._database.execute("INSERT OR IGNORE INTO judgments VALUES (?, ?)", (key, text))

    def __len__(self) -> int:
        with self._lock:
            return int(self._database.execute("SELECT COUNT(*) FROM judgments").fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()
