"""How a trainer's merge job calls the rules, and how the loop chooses among them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from coharness.config.merging import AUTO_RULES, MERGE_RULE_NAMES, MergeRuleName, merge_rules_of
from coharness.config.schema import EvolutionSection, PolicySection, RunConfig
from coharness.evolution.merging import RULES, Statistics, map_digest
from coharness.loop.jobs import JobRunner
from coharness.loop.journal import read_frames
from coharness.loop.replay import replay_run
from coharness.policy.weights import DiskWeightStore
from coharness.records import events as ev
from coharness.records.ids import JobId, PolicyId
from coharness.records.policy import PolicyVersion, VersionRef, WeightsKind
from coharness.records.proposals import ProposalKind
from coharness.records.training import JobResult, JobStatus, MergeJob
from coharness.testing.runs import simulated_run

Map = dict[str, torch.Tensor]


class Backend:
    """Keeps what it was given to publish."""

    def __init__(self, base: Map) -> None:
        self._base, self.published = base, {}

    def train(self, job: Any, own: Any, borrowed: Any) -> JobResult:
        raise NotImplementedError

    def publish_merged(self, job: MergeJob, tensors: Mapping[str, Any]) -> JobResult:
        self.published = dict(tensors)
        return JobResult(job=job.id, status=JobStatus.DONE, metrics={"own": 1.0})

    def base_tensors(self) -> Map:
        return self._base

    def close(self) -> None:
        pass


def drawn(names: Mapping[str, tuple[int, ...]], seed: int) -> Map:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in names.items()}


FULL = {"model.layers.0.w": (8, 6), "model.layers.1.w": (8, 6)}
LORA = {"m.q_proj.lora_A.weight": (2, 6), "m.q_proj.lora_B.weight": (5, 2)}


def merged(
    tmp_path: Path, rule: str, *, names: Mapping[str, tuple[int, ...]] = FULL, job: int = 3, optimizer: bool = True
) -> tuple[JobResult, Map]:
    is_lora = names is LORA
    store, parents = DiskWeightStore(tmp_path), []
    for i in range(2):
        tensors = drawn(names, i)
        moments = {f"exp_avg_sq.{name}": tensor.square() for name, tensor in tensors.items()} if optimizer else None
        ref = VersionRef(PolicyId(f"p{i}"), 1)
        kind = WeightsKind.LORA if is_lora else WeightsKind.FULL
        weights = store.publish(ref, tensors, kind, moments, -1.0, {})
        parents.append(PolicyVersion(ref=ref, weights=weights, parents=(), operator="train"))
    policy = PolicySection.model_validate(
        {"weights": "lora", "lora": {"rank": 2, "target_modules": ["q_proj"]}} if is_lora else {}
    )
    backend = Backend(drawn(names, 9))
    runner = JobRunner(tmp_path, policy, backend, None)  # type: ignore[arg-type]
    made = MergeJob(id=JobId(job), child=PolicyId("p7"), rule=rule, parents=tuple(parents), weights=(0.5, 0.5))
    return runner.run(made), backend.published


@pytest.mark.parametrize("rule", MERGE_RULE_NAMES)
def test_every_rule_a_run_may_name_merges_members(rule: str, tmp_path: Path) -> None:
    result, tensors = merged(tmp_path, rule)
    assert result.status is JobStatus.DONE, result.message
    assert {name: tuple(t.shape) for name, t in tensors.items()} == FULL
    if rule in ("linear", "task_arithmetic"):
        mean = {name: (drawn(FULL, 0)[name] + drawn(FULL, 1)[name]) / 2 for name in FULL}
        assert all(torch.allclose(tensors[name], mean[name], atol=1e-6) for name in FULL)


@pytest.mark.parametrize("rule", [name for name in MERGE_RULE_NAMES if name != "fisher"])
def test_every_rule_merges_adapters_and_says_what_was_cut_off(rule: str, tmp_path: Path) -> None:
    result, tensors = merged(tmp_path, rule, names=LORA)
    assert result.status is JobStatus.DONE, result.message
    assert {name: tuple(t.shape) for name, t in tensors.items()} == LORA
    assert 0.0 <= result.metrics["merge/tail_energy"] < 1.0
    assert result.metrics["own"] == 1.0


@pytest.mark.parametrize("rule", ["dare", "layer_swap"])
def test_a_job_draws_by_its_own_name(rule: str, tmp_path: Path) -> None:
    first, again = (merged(tmp_path, rule, job=3)[1] for _ in range(2))
    others = [merged(tmp_path, rule, job=job)[1] for job in range(4, 10)]
    assert map_digest(first) == map_digest(again)
    assert any(map_digest(other) != map_digest(first) for other in others)


def test_fisher_asks_for_parents_that_were_trained(tmp_path: Path) -> None:
    result, _ = merged(tmp_path, "fisher", optimizer=False)
    assert result.status is JobStatus.FAILED
    assert "p0@1 has no optimizer state" in result.message


def test_the_names_a_run_may_use_are_those_of_the_table_whose_needs_it_can_meet() -> None:
    met = (Statistics.NONE, Statistics.FISHER)
    assert set(MERGE_RULE_NAMES) == {name for name, rule in RULES.items() if rule.statistics in met}
    assert set(AUTO_RULES) <= set(get_args(MergeRuleName))
    assert all(RULES[name].statistics is Statistics.NONE for name in AUTO_RULES)


def test_a_run_names_one_rule_several_or_leaves_it_to_the_loop() -> None:
    assert EvolutionSection().merge_rule == "task_arithmetic"
    several = EvolutionSection.model_validate({"merge_rule": ["ties", "linear"]}).merge_rule
    assert merge_rules_of(several) == ("ties", "linear")
    assert merge_rules_of("auto") == AUTO_RULES
    assert merge_rules_of("dare") == ("dare",)
    for wrong in ([], ["ties", "ties"]):
        with pytest.raises(ValueError, match="at least one rule and none twice"):
            RunConfig.model_validate({"run_dir": "x", "evolution": {"merge_rule": wrong}})
    with pytest.raises(ValueError, match="merge_rule"):
        EvolutionSection.model_validate({"merge_rule": "regmean"})


def test_a_run_that_chooses_is_replayed_to_the_same_choices_and_races_carry_the_rule(tmp_path: Path) -> None:
    run, evolution = simulated_run(
        tmp_path / "run", budget={"rollouts": 3_000}, evolution={"merge_rule": "auto", "merge_every": 3}
    )
    directives = [e.directive for f in read_frames(run.journal_dir) for e in f.events if isinstance(e, ev.Issued)]
    merges = {d.job.child: d.job.rule for d in directives if isinstance(d, ev.Merge)}
    races = [d.proposal for d in directives if isinstance(d, ev.Open) and d.proposal.kind is ProposalKind.MERGE]
    assert len(set(merges.values())) > 1
    assert races
    assert all(race.operator == f"merge.{merges[race.challenger.version.policy]}" for race in races)
    for rule in set(merges.values()):
        assert evolution.state.operator_counts[f"merge.{rule}"][0] == list(merges.values()).count(rule)
    report = replay_run(run.path)
    assert report.state_digest == report.recorded_digest
