"""A run's folder: made once, written by one."""

import json
import os
import subprocess
import sys

import pytest

from coharness.loop.run_dir import RunDir
from coharness.records.errors import ConfigError, PreflightError
from coharness.testing.runs import simulated_config


def make(tmp_path):
    return RunDir.create(simulated_config(tmp_path / "run"))


def test_a_folder_that_exists_is_refused_with_the_fix(tmp_path):
    make(tmp_path)
    with pytest.raises(ConfigError, match=r"exists already.*coharness resume"):
        make(tmp_path)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="not a run's folder"):
        RunDir.open(tmp_path)


def test_the_config_comes_back_as_it_was(tmp_path):
    run = make(tmp_path)
    assert run.load_config() == simulated_config(tmp_path / "run")


def test_each_lease_raises_the_epoch_and_ends_the_older_ones_right(tmp_path):
    run = make(tmp_path)
    assert run.acquire_lease() == 1
    run.check_epoch(1)
    assert run.acquire_lease() == 2
    with pytest.raises(PreflightError, match="taken over"):
        run.check_epoch(1)


def test_a_live_process_keeps_its_lease_and_a_dead_one_does_not(tmp_path):
    run = make(tmp_path)
    run.acquire_lease()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        lease = json.loads(run.lease_path.read_text())
        from coharness.loop.run_dir import _start_time

        lease |= {"pid": other.pid, "start": _start_time(other.pid)}
        run.lease_path.write_text(json.dumps(lease))
        with pytest.raises(PreflightError, match=f"process {other.pid}"):
            run.acquire_lease()
        other.communicate(b"\n", timeout=30)
    assert run.acquire_lease() == 2


def test_a_pid_that_was_reused_does_not_hold_the_lease(tmp_path):
    run = make(tmp_path)
    run.acquire_lease()
    lease = json.loads(run.lease_path.read_text())
    lease |= {"pid": os.getppid(), "start": "1"}
    run.lease_path.write_text(json.dumps(lease))
    assert run.acquire_lease() == 2
