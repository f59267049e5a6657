"""Export: a folder that loads elsewhere as it is, with the harness beside it; nothing is written that is damaged."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from coharness.config.yaml_text import read_mapping
from coharness.loop.build import fold_run
from coharness.loop.export import export
from coharness.loop.journal import JournalWriter
from coharness.loop.run_dir import RunDir
from coharness.policy.bases import resolve_base
from coharness.policy.weights import DiskWeightStore
from coharness.records import events as ev
from coharness.records.errors import ConfigError, WeightsError
from coharness.records.harness import harness_from_json
from coharness.records.ids import JobId, PolicyId
from coharness.records.policy import PolicyVersion, VersionRef, WeightsKind
from coharness.records.training import JobResult, JobStatus, TrainJob
from coharness.testing.runs import simulated_config
from coharness.testing.simulated import SIMULATED_BASE


def started(tmp_path: Path) -> RunDir:
    """A run whose champion is the base in the initial harness."""
    run = RunDir.create(simulated_config(tmp_path / "run"))
    context = fold_run(run).context
    append(
        run,
        ev.Started(run_id="run", seed=0, config={}, base=SIMULATED_BASE, code_digest=""),
        ev.Issued(directive=ev.Spawn(harness=context.h0, slot=0, operator="start", parents=())),
    )
    return run


def append(run: RunDir, *events: ev.Event) -> None:
    writer = JournalWriter(run.journal_dir, run.acquire_lease())
    writer.append(list(events))
    writer.close()


def trained(run: RunDir, policy: str = "p1", kind: WeightsKind = WeightsKind.FULL) -> PolicyVersion:
    """Publish a version of a member and note it in the journal."""
    member = fold_run(run).state.member(PolicyId(policy))
    assert member is not None
    ref = VersionRef(PolicyId(policy), member.head.ref.step + 1)
    tensors = {"weight": torch.arange(6.0).reshape(2, 3) + ref.step}
    texts = {"adapter_config.json": "{}"} if kind is WeightsKind.LORA else None
    stored = DiskWeightStore(run.path).publish(ref, tensors, kind, {"m": torch.zeros(2)}, 0.0, {}, texts)
    version = PolicyVersion(ref=ref, weights=stored, parents=(member.head.ref,), operator="train")
    number = JobId(fold_run(run).state.next_job)
    job = TrainJob(id=number, start=member.head, step=ref.step, hyperparameters={}, items=(), borrowed=(), seed=0)
    append(
        run,
        ev.Issued(directive=ev.Train(job=job)),
        ev.JobDone(result=JobResult(job=number, status=JobStatus.DONE, version=version)),
    )
    return version


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def facts_of(dest: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((dest / "coharness.json").read_text())
    return data


def test_the_untouched_base_is_exported_as_it_lies(tmp_path: Path) -> None:
    run = started(tmp_path)
    facts = export(run.path, "champion", tmp_path / "deep" / "out")
    base = resolve_base("tiny")
    out = files(tmp_path / "deep" / "out")
    assert {name: out[name] for name in files(base.path)} == files(base.path)
    assert facts == facts_of(tmp_path / "deep" / "out")
    assert (facts["run"], facts["kind"], facts["base"], facts["base_digest"]) == ("run", "base", "tiny", base.digest)


def test_the_harness_beside_the_weights_is_the_one_it_serves_in(tmp_path: Path) -> None:
    run = started(tmp_path)
    export(run.path, "champion", tmp_path / "out")
    champion = fold_run(run).state.champion
    assert champion is not None
    text = (tmp_path / "out" / "harness.yaml").read_text()
    assert harness_from_json(read_mapping(text, "harness.yaml")).id == champion.harness


def test_a_trained_member_has_the_bases_tokenizer_and_its_own_weights_without_training_state(tmp_path: Path) -> None:
    run = started(tmp_path)
    version = trained(run)
    facts = export(run.path, "p1", tmp_path / "out")
    out, base = files(tmp_path / "out"), files(resolve_base("tiny").path)
    assert out["model.safetensors"] == (run.path / version.weights.uri / "model.safetensors").read_bytes()
    assert out["model.safetensors"] != base["model.safetensors"]
    assert out["tokenizer.json"] == base["tokenizer.json"]
    assert not {"optimizer.safetensors", "manifest.json"} & out.keys()
    assert facts["weights_digest"] == version.weights.digest
    assert facts["serving"].startswith("p1@1×h-")


def test_an_adapter_is_exported_alone(tmp_path: Path) -> None:
    run = started(tmp_path)
    trained(run, kind=WeightsKind.LORA)
    export(run.path, "p1", tmp_path / "out")
    assert files(tmp_path / "out").keys() == {
        "adapter_model.safetensors",
        "adapter_config.json",
        "harness.yaml",
        "coharness.json",
    }


def test_a_policy_is_its_head_and_a_version_is_named_by_its_step(tmp_path: Path) -> None:
    run = started(tmp_path)
    first, second = trained(run), trained(run)
    assert export(run.path, "p1", tmp_path / "head")["weights_digest"] == second.weights.digest
    assert export(run.path, "p1@1", tmp_path / "first")["weights_digest"] == first.weights.digest


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    run = started(tmp_path)
    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match="exists already; export into a new folder"):
        export(run.path, "champion", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_an_unknown_member_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    run = started(tmp_path)
    with pytest.raises(ConfigError, match="there is no member 'p9'; members are p0, p1, p2, or say champion"):
        export(run.path, "p9", tmp_path / "out")
    with pytest.raises(ConfigError, match="p1@7"):
        export(run.path, "p1@7", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_damaged_weights_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    run = started(tmp_path)
    version = trained(run)
    path = run.path / version.weights.uri / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(WeightsError):
        export(run.path, "p1", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_that_has_not_begun_has_nothing_to_export(tmp_path: Path) -> None:
    run = RunDir.create(simulated_config(tmp_path / "run"))
    with pytest.raises(ConfigError, match="has not begun"):
        export(run.path, "champion", tmp_path / "out")
