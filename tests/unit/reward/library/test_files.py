"""Libraries as folders: both registries, content hashes, and files that mean harm."""

import json
import pickle
from pathlib import Path

import pytest

from coharness.records.errors import ConfigError
from coharness.reward.library.entries import Entry, Kind
from coharness.reward.library.files import entry_of, entry_text, orphans, read_library, write_library
from coharness.reward.library.library import Library
from coharness.reward.library.versions import VersionStore
from tests.unit.reward.library.making import counting, skill, small, tool


def test_a_library_comes_back_from_its_files_with_the_same_name() -> None:
    assert pickle.loads(pickle.dumps(small())) == small()


def test_writing_and_reading_gives_the_same_version(tmp_path: Path) -> None:
    library = small()
    read = read_library(write_library(library, tmp_path / "small"))
    assert (read, read.digest) == (library, library.digest)
    registry = json.loads((tmp_path / "small" / "registry.json").read_text())
    assert registry["schema_version"] == 2
    assert registry["entries"]["crisp-edges"] == {
        "kind": "skill", "description": "About crisp-edges.", "path": "skills/crisp-edges/SKILL.md",
    }  # fmt: skip


def test_a_version_is_never_written_over(tmp_path: Path) -> None:
    write_library(small(), tmp_path / "small")
    with pytest.raises(ConfigError, match="never written over"):
        write_library(small(), tmp_path / "small")
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


def test_the_first_registry_is_read_with_its_loose_names(tmp_path: Path) -> None:
    for kind, name in (("skill", "be-strict"), ("tool", "compare_images")):
        folder = tmp_path / f"{kind}s" / name
        folder.mkdir(parents=True)
        extra = "system_prompt: Compare.\noutput_schema: {same: bool}\n" if kind == "tool" else ""
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Of old.\n{extra}---\n\nText.\n")
    flat = {
        "be-strict": {"type": "skill", "description": "Of old.", "path": "skills/be-strict/SKILL.md"},
        "compare_images": {"type": "tool", "description": "Of old.", "path": "tools/compare_images/SKILL.md"},
    }
    (tmp_path / "registry.json").write_text(json.dumps(flat))
    library = read_library(tmp_path)
    assert [(entry.name, entry.kind) for entry in library.entries] == [
        ("be-strict", Kind.SKILL),
        ("compare-images", Kind.TOOL),
    ]
    assert orphans(tmp_path) == ()


def test_any_change_of_content_gives_another_digest_and_order_gives_none() -> None:
    one, two = skill("a"), skill("b", criterion=counting("t@1/x", 1.0))
    assert Library.of("x", [one, two]).digest == Library.of("y", [two, one]).digest
    for other in (skill("b", body="other"), skill("b"), skill("b", criterion=counting("t@1/x", 1.1))):
        assert Library.of("x", [one, other]).digest != Library.of("x", [one, two]).digest


def test_a_name_is_taken_by_an_entry_of_either_kind() -> None:
    with pytest.raises(ConfigError, match="has an entry text-finder already"):
        small().added(skill("text-finder"))
    with pytest.raises(ConfigError, match="is a tool, got a skill"):
        small().updated(skill("text-finder"))
    with pytest.raises(ConfigError, match="has no entry 'nothing'; it has crisp-edges"):
        small().without("nothing")


@pytest.mark.parametrize("path", ["../outside.md", "/etc/passwd.md", "skills/../../outside.md"])
def test_a_path_out_of_the_folder_is_not_opened(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "library"
    folder.mkdir()
    (tmp_path / "outside.md").write_text("---\nname: secret\ndescription: d\nkind: skill\n---\nbody")
    (folder / "registry.json").write_text(json.dumps({"secret": {"type": "skill", "description": "d", "path": path}}))
    with pytest.raises(ConfigError, match="leads out of the library's folder"):
        read_library(folder)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder = write_library(Library.of("x", [skill("a")]), tmp_path / "library")
    (tmp_path / "outside.md").write_text(entry_text(skill("a")))
    (folder / "skills/a/SKILL.md").unlink()
    (folder / "skills/a/SKILL.md").symlink_to(tmp_path / "outside.md")
    with pytest.raises(ConfigError, match="leads out"):
        read_library(folder)


BOMB = "a: &a [x,x]\nb: &b [*a,*a]\nname: a\ndescription: *b"


@pytest.mark.parametrize(
    ("front", "why"),
    [
        ("name: !!python/object/apply:os.system [true]\ndescription: d", "tags, anchors and aliases"),
        (BOMB, "tags, anchors and aliases"),
        ("name: a\nname: a\ndescription: d", "stands twice"),
        ("name: [", "no YAML"),
        ("name: b\ndescription: d", "the registry calls it 'a'"),
        ("name: a\ndescription: d\nkind: tool", "expected skill"),
        ("name: a\ndescription: 5", "description must be a text"),
        ("name: a\ndescription: d\ncriterion: {tool: t@1/x, transform: {fn: exec}, weight: 1}", "transform 'exec'"),
        (
            "name: a\ndescription: d\ncriterion: {tool: os.system, transform: {fn: sat}, weight: 1}",
            "expected tool@version/output",
        ),
        (
            "name: a\ndescription: d\ncriterion: {tool: t@1/x, transform: {fn: sat, code: x}, weight: 1}",
            "'code' is unknown",
        ),
        (
            "name: a\ndescription: d\ncriterion: {tool: t@1/x, transform: {fn: sat}, weight: .inf}",
            "expected a finite number",
        ),
        (
            "name: a\ndescription: d\ncriterion: {tool: t@1/x, transform: {fn: sat, scale: 0}, weight: 1}",
            "scale above 0",
        ),
        ("name: a\ndescription: d\ncriterion: {tool: t@1/x, transform: {fn: sat}, weight: true}", "expected a number"),
    ],
)
def test_front_matter_that_means_harm_is_an_error_and_nothing_runs(front: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        entry_of(f"---\n{front}\n---\nbody", "skills/a/SKILL.md", kind="skill", name="a")


def test_a_file_that_is_too_large_or_no_text_is_refused(tmp_path: Path) -> None:
    folder = write_library(Library.of("x", [skill("a")]), tmp_path / "library")
    path = folder / "skills/a/SKILL.md"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        read_library(folder)
    path.write_text("x" * 70_000)
    with pytest.raises(ConfigError, match="70000 bytes"):
        read_library(folder)


@pytest.mark.parametrize("name", ["Upper", "under_score", "a--b", "-a", "a/b", "..", "", "ä"])
def test_names_are_kebab_case(name: str) -> None:
    with pytest.raises(ConfigError, match="expected kebab case"):
        Entry(kind=Kind.SKILL, name=name, description="d", body="b")


def test_versions_are_kept_once_with_their_descent_and_one_is_crowned(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    first = store.add(small(), why="start")
    second = store.add(small().without("no-noise"), parents=(first,), why="pruned")
    assert store.add(small()) == first
    assert [(d.digest, d.parents) for d in store.lineage()] == [(first, ()), (second, (first,))]
    assert store.champion is None
    store.crown(second)
    assert (store.champion, store.get(second)) == (second, small().without("no-noise"))
    with pytest.raises(ConfigError, match="its parent l-000000000000 is not in"):
        store.add(Library.of("x"), parents=("l-000000000000",))
    with pytest.raises(ConfigError, match="expected the digest of a library"):
        store.get("../../etc")


def test_a_version_that_was_changed_on_disk_is_noticed(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    digest = store.add(small())
    path = tmp_path / "versions" / digest / "skills/crisp-edges/SKILL.md"
    path.write_text(path.read_text() + "And prefer B.")
    with pytest.raises(ConfigError, match="someone changed a version"):
        store.get(digest)


def test_a_tool_keeps_prompt_and_schemas(tmp_path: Path) -> None:
    entry = tool("text-finder")
    assert entry_of(entry_text(entry), "x", kind="tool", name="text-finder") == entry
