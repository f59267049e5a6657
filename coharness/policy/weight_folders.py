"""The folders of published weights: deleting what the core retires, finding what a crash left. Loads no torch.

    weights/<policy>/v<step>/   one version (see `weights`)      .tmp-..., .gone-...   half written, half deleted

Invariant: a folder is renamed out of sight before it is deleted, so a reader finds all of it or nothing. Driven by the owner of
the replay store, a process that needs no tensors.
"""

import re
import shutil
import uuid
from collections.abc import Collection, Sequence
from pathlib import Path

from coharness.records.errors import WeightsError

_FOLDER = re.compile(r"weights/[A-Za-z0-9][A-Za-z0-9_.-]*/\.?[A-Za-z0-9][A-Za-z0-9_.-]*")


class WeightFolders:
    """Owns the lifetime of the folders under `weights` of a run directory; implements `records.protocols.WeightStore`."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    def retire(self, uris: Sequence[str]) -> None:
        """Delete these folders; one that is gone already is no error.

        Raises:
            WeightsError: a name is not a folder of this store; checked for all before any is deleted.
        """
        for uri in uris:
            if not _FOLDER.fullmatch(uri):
                raise WeightsError(f"cannot retire {uri!r}; expected a folder of the store, weights/<policy>/v<step>")
        for uri in uris:
            folder = self._run_dir / uri
            # A reader finds the whole folder or none; deleting in place would show it a part.
            hidden = folder.with_name(f".gone-{uuid.uuid4().hex}")
            try:
                folder.rename(hidden)
            except FileNotFoundError:
                continue
            shutil.rmtree(hidden)

    def unlisted(self, known: Collection[str]) -> list[str]:
        """Folders on disk that are not in `known`, sorted: what a crash left half written, half deleted or unjournaled.

        A resumed run hands them to `retire` before it publishes anything.
        """
        found = (path.relative_to(self._run_dir).as_posix() for path in self._run_dir.glob("weights/*/*"))
        return sorted(set(found) - set(known))
