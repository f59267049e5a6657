"""A library as a folder: `registry.json` and one `SKILL.md` an entry, as RewardHarness keeps them; registry v1 and v2 are read.

    registry.json             v2: {"schema_version": 2, "library": {id, status}, "entries": {name: {kind, description, path}}}
    skills/<name>/SKILL.md    v1: {name: {type, description, path}}
    tools/<name>/SKILL.md

Files come from outside: names and paths are checked before anything is opened, texts and their number are bounded, YAML is plain
(no tags, no anchors), and nothing in a file is ever executed.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from coharness.config.yaml_text import read_mapping, write_mapping
from coharness.records.errors import ConfigError
from coharness.reward.library.criterion import Criterion
from coharness.reward.library.entries import NAME, Entry, Kind, schema_pairs
from coharness.reward.library.library import MAX_ENTRIES, Library

REGISTRY = "registry.json"
SCHEMA_VERSION = 2
MAX_FILE_BYTES = 64 * 1024
MAX_REGISTRY_BYTES = 256 * 1024
_FENCE = "---"


def read_library(folder: Path) -> Library:
    """Read a folder.

    Raises:
        ConfigError: the registry or a file is missing, damaged or not allowed; the message names it.
    """
    registry = _registry(folder)
    if len(registry) > MAX_ENTRIES:
        raise ConfigError(f"{folder / REGISTRY} has {len(registry)} entries, expected {MAX_ENTRIES} at most")
    entries = [_entry(folder, name, record) for name, record in registry.items()]
    identity, status = _identity(folder)
    return Library.of(identity, entries, status)


def write_library(library: Library, folder: Path) -> Path:
    """Write a library into a folder that does not exist yet; all of it or nothing.

    Raises:
        ConfigError: the folder exists.
    """
    if folder.exists():
        raise ConfigError(f"{folder} exists; a version is never written over, choose another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for entry in library.entries:
            path = made / entry.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(entry_text(entry), encoding="utf-8")
        records = {
            entry.name: {"kind": entry.kind.value, "description": entry.description, "path": entry.path}
            for entry in library.entries
        }
        about = {"id": library.name, "status": library.status}
        document = {"schema_version": SCHEMA_VERSION, "library": about, "entries": records}
        (made / REGISTRY).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        made.chmod(0o755)
        os.rename(made, folder)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return folder


def orphans(folder: Path) -> tuple[str, ...]:
    """Files of entries that no registry line leads to, as paths in the folder."""
    known = {_path_in(folder, str(record.get("path", "")), name) for name, record in _registry(folder).items()}
    found = [path for kind in Kind for path in sorted((folder / f"{kind}s").glob("*/SKILL.md"))]
    return tuple(path.relative_to(folder).as_posix() for path in found if path not in known)


def entry_text(entry: Entry) -> str:
    """An entry's file."""
    front: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION, "name": entry.name, "kind": entry.kind.value, "description": entry.description,
    }  # fmt: skip
    if entry.criterion is not None:
        front["criterion"] = entry.criterion.to_json()
    if entry.kind is Kind.TOOL:
        front |= {
            "system_prompt": entry.system_prompt,
            "input_schema": dict(entry.inputs),
            "output_schema": dict(entry.outputs),
        }
    return f"{_FENCE}\n{write_mapping(front)}{_FENCE}\n\n{entry.body.strip()}\n"


def entry_of(text: str, where: str, *, kind: str = "", name: str = "", description: str = "") -> Entry:
    """Read an entry's file; what its front matter leaves out, older files among them, is taken from the registry.

    Raises:
        ConfigError: the file is none of an entry, or contradicts the registry.
    """
    front, body = _split(text, where)
    said_name, said_kind = front.get("name", name), front.get("kind", front.get("type", kind))
    if name and said_name != name and _kebab(said_name) == name:
        said_name = name
    if name and said_name != name:
        raise ConfigError(f"{where}: its name is {said_name!r:.80}, the registry calls it {name!r}")
    if said_kind not in list(Kind) or (kind and said_kind != kind):
        expected = kind or "skill or tool"
        raise ConfigError(f"{where}: its kind is {said_kind!r:.40}, expected {expected}")
    texts = {"description": front.get("description", description), "system_prompt": front.get("system_prompt", "")}
    for field, value in (*texts.items(), ("name", said_name)):
        if not isinstance(value, str):
            raise ConfigError(f"{where}: {field} must be a text, got {type(value).__name__}")
    criterion = None
    if "criterion" in front:
        criterion = Criterion.from_json(front["criterion"], f"{where}, criterion")
    return Entry(
        kind=Kind(said_kind), name=said_name, description=texts["description"].strip(), body=body, criterion=criterion,
        system_prompt=texts["system_prompt"],
        inputs=schema_pairs(_flat(front.get("input_schema", {})), f"{where}, input_schema"),
        outputs=schema_pairs(_flat(front.get("output_schema", {})), f"{where}, output_schema"),
    )  # fmt: skip


def _flat(schema: Any) -> Any:
    # Older files write the type of a list as a list of one, or nest one level; the name of the type is what is kept.
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: value if isinstance(value, str) else json.dumps(value, sort_keys=True) for key, value in schema.items()
    }


def _entry(folder: Path, name: str, record: Any) -> Entry:
    if NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{folder / REGISTRY}: got the name {name!r:.80}, expected kebab case; rename the entry and its folder"
        )
    if not isinstance(record, Mapping):
        raise ConfigError(f"{folder / REGISTRY}, {name}: got {type(record).__name__}, expected a mapping")
    kind, description = record.get("kind", record.get("type", "")), record.get("description", "")
    if kind not in list(Kind) or not isinstance(description, str):
        raise ConfigError(
            f"{folder / REGISTRY}, {name}: got the kind {kind!r:.40}, expected skill or tool, with a description"
        )
    path = _path_in(folder, str(record.get("path") or f"{kind}s/{name}/SKILL.md"), name)
    return entry_of(_text(path, MAX_FILE_BYTES), str(path), kind=str(kind), name=name, description=description)


def _path_in(folder: Path, path: str, name: str) -> Path:
    """A registry's path as a file of the folder; links and `..` do not lead out of it."""
    full = folder / path
    if path.endswith("/") or not path.endswith(".md"):
        full = full / "SKILL.md"
    if Path(path).is_absolute() or not full.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"{folder / REGISTRY}, {name}: the path {path!r:.120} leads out of the library's folder")
    return full


def _registry(folder: Path) -> dict[str, Any]:
    document = _document(folder)
    version = document.get("schema_version")
    if version is None:
        # The first version had no rule for names; what it called compare_images is compare-images here.
        return {_kebab(name): record for name, record in document.items()}
    if version != SCHEMA_VERSION:
        raise ConfigError(
            f"{folder / REGISTRY} has the schema version {version!r:.20}, this code reads 1 (flat) and {SCHEMA_VERSION}"
        )
    entries = document.get("entries")
    if not isinstance(entries, dict):
        raise ConfigError(f"{folder / REGISTRY}: entries must be a mapping of names to records")
    return entries


def _identity(folder: Path) -> tuple[str, str]:
    about = _document(folder).get("library")
    about = about if isinstance(about, dict) else {}
    given, status = about.get("id", folder.name), about.get("status", "candidate")
    kebab = _kebab(given)
    return (kebab if NAME.fullmatch(kebab) else "library"), str(status)


def _kebab(name: Any) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in str(name).lower()).split())


def _document(folder: Path) -> dict[str, Any]:
    path = folder / REGISTRY
    try:
        document = json.loads(_text(path, MAX_REGISTRY_BYTES))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no JSON: {error!s:.120}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} holds a {type(document).__name__}, expected an object")
    return document


def _text(path: Path, limit: int) -> str:
    try:
        size = path.stat().st_size
        if size > limit:
            raise ConfigError(f"{path} has {size} bytes, expected {limit} at most")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8") from error


def _split(text: str, where: str) -> tuple[dict[str, Any], str]:
    lines = text.replace("\r\n", "\n").lstrip("\ufeff").split("\n")
    if lines[0].strip() != _FENCE:
        return {}, text.strip()
    end = next((i for i, line in enumerate(lines[1:], start=1) if line.strip() == _FENCE), None)
    if end is None:
        raise ConfigError(f"{where}: the front matter that begins with --- has no end")
    front = "\n".join(lines[1:end])
    _check_plain(front, where)
    return read_mapping(front, where), "\n".join(lines[end + 1 :]).strip()


def _check_plain(front: str, where: str) -> None:
    """Refuse tags and anchors: the first can name types, the second make a small file enormous."""
    try:
        for event in yaml.parse(front, Loader=yaml.SafeLoader):
            tag = getattr(event, "tag", None)
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) or (tag and tag != "!"):
                mark = event.start_mark
                line = mark.line + 2 if mark else 1
                raise ConfigError(f"{where}, line {line}: tags, anchors and aliases have no place in front matter")
    except yaml.YAMLError as error:
        raise ConfigError(
            f"{where}: its front matter is no YAML ({getattr(error, 'problem', None) or error!s:.80})"
        ) from error
