"""A store of library versions: one folder each under its digest, never written again, with the line of descent beside them.

<root>/versions/l-3d0a10be67ea/     a library as files
<root>/lineage.jsonl                one line a version: digest, parents, why, when it was accepted in the order of lines
<root>/champion                     the digest of the version in use; replaced atomically
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from coharness.records.errors import ConfigError
from coharness.reward.library.files import read_library, write_library
from coharness.reward.library.library import Library


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """Where a version comes from."""

    digest: str
    parents: tuple[str, ...]
    why: str


class VersionStore:
    """Versions under one root; one process writes at a time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        (root / "versions").mkdir(parents=True, exist_ok=True)

    def add(self, library: Library, *, parents: tuple[str, ...] = (), why: str = "") -> str:
        """Keep a version and return its digest; one that is there already stays as it is.

        Raises:
            ConfigError: a parent is not in the store.
        """
        for parent in parents:
            if not self._folder(parent).is_dir():
                raise ConfigError(f"{library.digest}: its parent {parent} is not in {self._root}; add that first")
        folder = self._folder(library.digest)
        if not folder.is_dir():
            write_library(library, folder)
            line = json.dumps({"digest": library.digest, "parents": list(parents), "why": why}, ensure_ascii=False)
            with (self._root / "lineage.jsonl").open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        return library.digest

    def get(self, digest: str) -> Library:
        """A version.

        Raises:
            ConfigError: it is not there, or its files are not what its name says.
        """
        folder = self._folder(digest)
        if not folder.is_dir():
            raise ConfigError(f"{self._root} has no version {digest!r:.40}")
        library = read_library(folder)
        if library.digest != digest:
            raise ConfigError(
                f"{folder} holds {library.digest}: someone changed a version; restore it, or delete the folder"
            )
        return library

    def lineage(self) -> list[Descent]:
        """All versions in the order in which they came."""
        path = self._root / "lineage.jsonl"
        if not path.is_file():
            return []
        lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line)
        return [Descent(digest=row["digest"], parents=tuple(row["parents"]), why=row["why"]) for row in lines]

    @property
    def champion(self) -> str | None:
        """Digest of the version in use, None before there is one."""
        path = self._root / "champion"
        return path.read_text(encoding="utf-8").strip() if path.is_file() else None

    def crown(self, digest: str) -> None:
        """Put a version into use.

        Raises:
            ConfigError: it is not in the store, or its files were changed.
        """
        self.get(digest)
        new = self._root / ".champion.new"
        new.write_text(digest + "\n", encoding="utf-8")
        os.replace(new, self._root / "champion")

    def _folder(self, digest: str) -> Path:
        if not digest.startswith("l-") or not digest[2:].isalnum():
            raise ConfigError(f"got {digest!r:.40}, expected the digest of a library such as l-3d0a10be67ea")
        return self._root / "versions" / digest
