import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from coharness.config.load import config_from, dump_config, load_config
from tests.arch.source import ROOT

ENVIRONMENTS = ROOT / "clusters" / "environments"
CONFIGS = sorted(path for path in (ROOT / "experiments").rglob("*.yaml") if path.name.startswith("config"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def entries(path: Path) -> list[Requirement]:
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("-")]


PINS = {canonicalize_name(entry.name): entry for entry in entries(ENVIRONMENTS / "cpu.txt")}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_config_loads_and_survives_its_own_dump(path: Path) -> None:
    config = load_config(path)
    assert config_from(yaml.safe_load(dump_config(config))) == config


def test_the_quickstart_is_among_them() -> None:
    assert ROOT / "experiments" / "quickstart" / "config.yaml" in CONFIGS


def test_every_pin_is_exact_and_without_a_local_tag() -> None:
    assert [str(entry) for entry in PINS.values() if not re.fullmatch(r"==[0-9][\w.]*", str(entry.specifier))] == []


def test_every_range_of_the_project_holds_its_pin() -> None:
    project = PROJECT["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values(), PROJECT["build-system"]["requires"]]
    engines = [*entries(ENVIRONMENTS / "cpu-engines.txt"), *entries(ENVIRONMENTS / "gpu.txt")]
    pins = {**{canonicalize_name(entry.name): entry for entry in engines}, **PINS}
    for requirement in map(Requirement, (text for group in groups for text in group)):
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin is not None, f"{requirement} of pyproject.toml has no pin in clusters/environments"
        assert requirement.specifier.contains(str(pin.specifier)[2:]), f"{pin} is outside {requirement}"


def test_the_pinned_set_is_complete() -> None:
    missing = []
    for name in PINS:
        try:
            needs = requires(name) or []
        except PackageNotFoundError:
            continue
        for need in map(Requirement, needs):
            wanted = need.marker is None or need.marker.evaluate({"extra": ""})
            if wanted and canonicalize_name(need.name) not in PINS:
                missing.append(f"{name} needs {need.name}")
    assert missing == []


def test_the_tests_run_in_the_pinned_environment() -> None:
    for name in ("ray", "torch", "transformers", "numpy", "pyarrow"):
        assert version(name).partition("+")[0] == str(PINS[canonicalize_name(name)].specifier)[2:]


def test_the_development_tools_alone_are_part_of_the_pinned_set() -> None:
    assert {canonicalize_name(entry.name) for entry in entries(ENVIRONMENTS / "dev.txt")} <= set(PINS)


def test_no_file_that_builds_or_installs_names_a_host() -> None:
    files = [ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / "pyproject.toml", *ENVIRONMENTS.iterdir()]
    named = [
        path.name
        for path in files
        if re.search(r"https?://|--index-url|--find-links", path.read_text(encoding="utf-8"))
    ]
    assert named == []


def test_every_folder_of_tests_is_run_by_some_target() -> None:
    listed = {Path(path).name for path in PROJECT["tool"]["pytest"]["ini_options"]["testpaths"]}
    there = {
        path.name for path in (ROOT / "tests").iterdir() if any(path.glob("test_*.py")) or any(path.glob("*/test_*.py"))
    }
    assert there - listed == {"engines", "gpu"}, "tiers with an environment of their own; name any other in testpaths"


def test_the_engines_are_pinned_on_top_of_the_common_set() -> None:
    engines = entries(ENVIRONMENTS / "cpu-engines.txt")
    assert {canonicalize_name(entry.name) for entry in engines} & set(PINS) == set(), "pinned twice"
    assert [str(entry) for entry in engines if not re.fullmatch(r"==[0-9][\w.]*", str(entry.specifier))] == []
