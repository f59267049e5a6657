"""The Python that guests run: this interpreter's own, with its standard library and nothing else.

A guest drops to an unprivileged uid, which often cannot reach an interpreter below someone's home. Where a layer has mounts of
its own that does not matter; for the others a copy is kept beside the temporary files, made of hard links where possible.
"""

import hashlib
import os
import shutil
import stat
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

GUEST_DIR = Path(__file__).with_name("guest")
_LEFT_OUT = (
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "lib2to3",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Where an interpreter and the guest's program lie."""

    prefix: Path
    "Holds `bin/` and `lib/`."
    guest_parent: Path
    "Holds the package `guest`."

    @property
    def executable(self) -> Path:
        """The interpreter."""
        return self.prefix / "bin" / _name()


def own_runtime() -> Runtime:
    """The interpreter that runs this, where it lies."""
    return Runtime(prefix=Path(sys.base_prefix), guest_parent=GUEST_DIR.parent)


@cache
def reachable_runtime() -> Runtime:
    """One that any uid can reach; made on the first call where this process is root and its own is out of others' reach.

    Raises:
        OSError: it could not be made.
    """
    own = own_runtime()
    if os.geteuid() != 0 or all(_others_may_enter(path) for path in (own.prefix, GUEST_DIR)):
        return own
    folder = Path(tempfile.gettempdir()) / f"coharness-python-{_digest(own)}"
    if not folder.exists():
        made = Path(tempfile.mkdtemp(prefix="coharness-python-", dir=tempfile.gettempdir()))
        _fill(made, own)
        made.chmod(0o755)
        try:
            made.rename(folder)
        except OSError:
            # Another process was faster.
            shutil.rmtree(made)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise OSError(f"{folder} is not a folder that this user alone can write; remove it")
    return Runtime(prefix=folder, guest_parent=folder)


def _name() -> str:
    return f"python{sysconfig.get_python_version()}"


def _others_may_enter(path: Path) -> bool:
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents))


def _digest(own: Runtime) -> str:
    digest = hashlib.sha256(f"{sys.version}\0{own.prefix}\0{own.executable.stat().st_mtime_ns}".encode())
    for path in sorted(GUEST_DIR.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _fill(folder: Path, own: Runtime) -> None:
    (folder / "bin").mkdir()
    (folder / "lib").mkdir()
    copy = _link_or_copy
    copy(str(own.executable.resolve()), str(folder / "bin" / _name()))
    for library in (own.prefix / "lib").glob("libpython*.so*"):
        copy(str(library.resolve()), str(folder / "lib" / library.name))
    libraries = Path("lib") / _name()
    ignore: Callable[..., set[str]] = shutil.ignore_patterns(*_LEFT_OUT, "config-*")
    shutil.copytree(own.prefix / libraries, folder / libraries, copy_function=copy, ignore=ignore)
    shutil.copytree(GUEST_DIR, folder / "guest", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)


def _link_or_copy(source: str, target: str) -> None:
    mode = os.stat(source).st_mode
    try:
        if not mode & stat.S_IROTH:
            raise OSError("others may not read the original")
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        os.chmod(target, 0o755 if mode & stat.S_IXUSR else 0o644)
