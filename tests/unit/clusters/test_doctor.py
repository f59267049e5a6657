"""The doctor: every finding that is not well says what to do."""

import importlib.metadata
from pathlib import Path

import pytest

from clusters.doctor import (
    Finding,
    Level,
    check_environment,
    check_machine,
    check_origin,
    check_packages,
    check_python,
    read_pins,
    run_doctor,
)
from clusters.local import LocalCluster, _available_memory, _core_quota

ROOT = Path(__file__).resolve().parents[3]
GIB = 2**30


def machine(*, cores: float = 2, memory: int = 8 * GIB, shm: int = 4 * GIB, disk: int = 50 * GIB) -> dict[str, Finding]:
    cluster = LocalCluster(num_cores=cores, memory_bytes=memory, shm_bytes=shm, disk_bytes=disk)
    return {finding.what: finding for finding in check_machine(cluster)}


def test_this_checkout_is_found_and_everything_is_looked_at() -> None:
    findings = run_doctor(ROOT)
    whats = [finding.what for finding in findings]
    assert {"python", "packages", "cores", "memory", "shared memory", "disk", "threads", "cluster"} <= set(whats)
    assert [f.level for f in findings if f.what.startswith("package ")] == [Level.OK] * 4
    assert all(finding.message for finding in findings)


def test_an_old_interpreter_is_an_error() -> None:
    assert check_python((3, 10, 4)).level is Level.ERROR
    assert check_python((3, 12, 0)).level is Level.OK


def test_missing_and_other_versions_are_told_apart(tmp_path: Path) -> None:
    pins = tmp_path / "cpu.txt"
    numpy = importlib.metadata.version("numpy")
    pins.write_text(f"# a comment\nnumpy=={numpy}\npyarrow==0.1\nno-such-package-here==1.0\n")
    error, warning = check_packages(pins)
    assert (error.level, warning.level) == (Level.ERROR, Level.WARNING)
    assert "no-such-package-here not installed" in error.message
    assert "pyarrow" in warning.message
    assert "instead of 0.1" in warning.message
    assert "numpy" not in error.message + warning.message


def test_a_local_tag_is_the_same_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = tmp_path / "cpu.txt"
    pins.write_text("torch==2.13.0\n")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.13.0+cpu")
    assert [finding.level for finding in check_packages(pins)] == [Level.OK]


def test_pins_are_read_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "pins").write_text("a==1.0  # why\n-e .\n\nb-c==2.0.1; python_version > '3'\nranged>=1\n")
    assert read_pins(tmp_path / "pins") == {"a": "1.0", "b-c": "2.0.1"}


def test_a_package_from_elsewhere_is_an_error_with_both_folders(tmp_path: Path) -> None:
    finding = check_origin("actors", tmp_path)
    assert finding.level is Level.ERROR
    assert str(ROOT / "actors") in finding.message
    assert str(tmp_path / "actors") in finding.message
    assert check_origin("no_such_package", ROOT).level is Level.ERROR


def test_a_small_machine_is_told_what_to_change() -> None:
    assert {finding.level for finding in machine().values()} == {Level.OK}
    assert machine(cores=1)["cores"].level is Level.WARNING
    assert machine(memory=GIB)["memory"].level is Level.ERROR
    assert "--shm-size" in machine(shm=64 << 20)["shared memory"].message
    assert machine(disk=GIB)["disk"].level is Level.ERROR


def test_too_many_threads_and_a_foreign_cluster_are_warned_of() -> None:
    quiet = list(check_environment({"OMP_NUM_THREADS": "1"}, 2))
    assert [finding.level for finding in quiet] == [Level.OK, Level.OK]
    loud = list(check_environment({"MKL_NUM_THREADS": "64", "RAY_ADDRESS": "10.0.0.1:6379"}, 2))
    assert [finding.level for finding in loud] == [Level.WARNING, Level.WARNING]
    assert "MKL_NUM_THREADS=64" in loud[0].message


@pytest.mark.parametrize(("text", "cores"), [("max 100000", float("inf")), ("150000 100000", 1.5)])
def test_a_containers_share_of_the_cores_is_read(tmp_path: Path, text: str, cores: float) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert _core_quota(tmp_path / "cpu.max") == cores
    assert _core_quota(tmp_path / "absent") == float("inf")


def test_available_memory_is_the_kernels_estimate(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:  2048 kB\n")
    assert _available_memory(tmp_path / "meminfo") == 2 << 20
