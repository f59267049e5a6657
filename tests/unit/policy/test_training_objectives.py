"""Rules of updates by objective: critics stay out of what is served, phases and genes are the job's, packing changes nothing."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from torch import Tensor

from coharness.config.schema import PolicySection, TrainingSection
from coharness.policy.bases import LoadedBase, base_weights_ref
from coharness.policy.training.torch_trainer import TorchTrainer
from coharness.policy.weights import DiskWeightStore, read_optimizer, read_weights
from coharness.records.ids import PolicyId
from coharness.records.policy import PolicyVersion, VersionRef
from coharness.records.training import JobResult, JobStatus
from coharness.testing.toy_training import base_version, random_base, toy_episodes, toy_job

ALL = ("sft", "dpo", "ipo", "kto", "grpo", "dr_grpo", "dapo", "gspo", "cispo", "ppo")


@pytest.fixture(scope="module")
def base() -> LoadedBase:
    return random_base()


def trainer(base: LoadedBase, run_dir: Path, **config: Any) -> TorchTrainer:
    section = TrainingSection.model_validate({"group_size": 4, **config})
    return TorchTrainer(base, DiskWeightStore(run_dir), run_dir, section, PolicySection())


def start(base: LoadedBase, policy: str = "p0") -> PolicyVersion:
    return base_version(base_weights_ref(base), policy)


def episodes(base: LoadedBase, step: int) -> pa.Table:
    parts = [
        toy_episodes(
            base.codec, range(100 * step + 10 * n, 100 * step + 10 * n + 10), group_size=4, word_length=2 + 3 * n
        )
        for n in range(2)
    ]
    return pa.concat_tables(parts)


def update(made: TorchTrainer, begin: PolicyVersion, own: pa.Table, *, step: int = 1, **values: float) -> JobResult:
    job = toy_job(begin, range(0), step=step)
    items = tuple(sorted(set(own["item"].to_pylist())))
    return made.train(
        replace(job, items=items, hyperparameters={**job.hyperparameters, **values}), own, own.slice(0, 0)
    )


def done(result: JobResult) -> PolicyVersion:
    assert result.status is JobStatus.DONE, result
    assert result.version is not None
    return result.version


def distance(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> float:
    return max((left[name] - right[name]).abs().max().item() for name in left)


@pytest.mark.parametrize("objective", ALL)
def test_padded_and_packed_rows_and_small_and_large_batches_train_alike(
    base: LoadedBase, tmp_path: Path, objective: str
) -> None:
    weights = []
    for name, settings in (
        ("padded", {"packing": "never"}),
        ("small", {"row_tokens": 64}),
        ("packed", {"packing": "always", "row_tokens": 256}),
    ):
        made = trainer(base, tmp_path / name, objective=objective, **settings)
        weights.append(read_weights(tmp_path / name, done(update(made, start(base), episodes(base, 1))).weights))
    assert distance(weights[0], read_weights_of_base(base)) > 1e-5  # it moved
    # AdamW's first steps have the size of the rate wherever the gradient is not 0: rounding decides the sign of a few.
    for other in weights[1:]:
        moved = torch.cat([(weights[0][n] - other[n]).abs().flatten() for n in other])
        assert (moved < 1e-5).double().mean() > 0.99


def read_weights_of_base(base: LoadedBase) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in base.model.named_parameters()}


@pytest.mark.parametrize("objective", ["dpo", "ipo", "kto"])
def test_preferences_move_right_answers_above_wrong_ones(base: LoadedBase, tmp_path: Path, objective: str) -> None:
    made, version = trainer(base, tmp_path, objective=objective), start(base)
    own = episodes(base, 1)
    results = []
    for step in range(1, 13):
        results.append(update(made, version, own, step=step, learning_rate=1e-2))
        version = done(results[-1])
    first, last = results[0].metrics, results[-1].metrics
    if objective == "kto":
        assert last["preference/right"] - last["preference/wrong"] > 1
    else:
        assert last["preference/accuracy"] > 0.7
        assert last["preference/margin"] > first["preference/margin"]
    loss = "loss/contrast" if objective == "kto" else "loss/preference"
    assert last[loss] < first[loss]


def test_the_critic_learns_and_is_never_published_with_the_weights(base: LoadedBase, tmp_path: Path) -> None:
    made, version = trainer(base, tmp_path, objective="ppo"), start(base)
    losses = []
    for step in range(1, 9):
        result = update(made, version, episodes(base, step), step=step, learning_rate=1e-3)
        version = done(result)
        losses.append(result.metrics["loss/critic"])
    assert losses[-1] < losses[0]
    assert not [name for name in read_weights(tmp_path, version.weights) if "critic" in name]
    state = read_optimizer(tmp_path, version.weights)
    assert state["value.critic.weight"].any()
    assert {f"{key}.critic.bias" for key in ("value", "exp_avg", "exp_avg_sq", "step")} <= set(state)


def test_a_clone_takes_the_critic_along_and_a_merge_begins_a_fresh_one(base: LoadedBase, tmp_path: Path) -> None:
    made = trainer(base, tmp_path, objective="ppo")
    donor = done(update(made, start(base), episodes(base, 1), learning_rate=1e-3))
    next_groups = episodes(base, 2)
    own = done(update(trainer(base, tmp_path, objective="ppo"), donor, next_groups, step=2))
    clone = replace(donor, ref=VersionRef(PolicyId("p7"), 0))
    child = done(update(trainer(base, tmp_path, objective="ppo"), clone, next_groups, step=1))
    left, right = (read_optimizer(tmp_path, v.weights) for v in (own, child))
    assert torch.equal(left["value.critic.weight"], right["value.critic.weight"])
    bare = replace(donor, ref=VersionRef(PolicyId("p8"), 0), weights=replace(donor.weights, has_optimizer=False))
    fresh = update(trainer(base, tmp_path, objective="ppo"), bare, next_groups, step=1)
    assert fresh.metrics["critic/value"] == 0 or abs(fresh.metrics["critic/value"]) < 0.1


def test_the_head_has_the_rate_of_its_own(base: LoadedBase, tmp_path: Path) -> None:
    moved = []
    for scale in (1.0, 10.0):
        made = trainer(base, tmp_path / str(scale), objective="ppo", critic={"rate_scale": scale})
        version = done(update(made, start(base), episodes(base, 1), learning_rate=1e-4))
        moved.append(read_optimizer(tmp_path / str(scale), version.weights)["value.critic.weight"].abs().max().item())
    assert moved[1] == pytest.approx(10 * moved[0], rel=0.2)


def test_a_job_trains_in_its_phase_at_the_phases_rate(base: LoadedBase, tmp_path: Path) -> None:
    schedule = [{"objective": "sft", "updates": 5, "rate_scale": 2.0}]
    made = trainer(base, tmp_path / "phases", objective="grpo", schedule=schedule)
    own = episodes(base, 1)
    supervised = update(made, start(base), own, phase=0.0)
    assert "loss/sft" in supervised.metrics
    assert "loss/policy" not in supervised.metrics
    assert supervised.metrics["hyperparameter/learning_rate"] == 2e-3
    plain = trainer(base, tmp_path / "sft", objective="sft", ema_decay=0.0)
    expected = done(update(plain, start(base), own, learning_rate=2e-3))
    assert done(supervised).weights.digest == expected.weights.digest
    final = update(made, done(supervised), episodes(base, 2), step=2, phase=1.0)
    assert "loss/policy" in final.metrics
    assert final.metrics["hyperparameter/learning_rate"] == 1e-3


def test_genes_are_the_members_own(base: LoadedBase, tmp_path: Path) -> None:
    own = episodes(base, 1)
    ways = {
        "configured": ({"kl_coefficient": 0.5, "mix": {"sft": 0.2}}, {}),
        "gene": ({"mix": {"sft": 0.1}}, {"kl_coefficient": 0.5, "mix": 2.0}),
        "neither": ({"mix": {"sft": 0.1}}, {}),
    }
    digests = {}
    for name, (settings, genes) in ways.items():
        made = trainer(base, tmp_path / name, objective="grpo", **settings)
        first = update(made, start(base), own, **genes)
        digests[name] = done(update(made, done(first), episodes(base, 2), step=2, **genes)).weights.digest
        assert all(first.metrics[f"hyperparameter/{gene}"] == value for gene, value in genes.items())
    assert digests["gene"] == digests["configured"] != digests["neither"]


def test_several_objectives_share_an_update(base: LoadedBase, tmp_path: Path) -> None:
    made = trainer(base, tmp_path, objective="dpo", mix={"sft": 0.3, "kto": 0.1})
    metrics = update(made, start(base), episodes(base, 1)).metrics
    assert {"loss/sft", "loss/preference", "loss/contrast", "preference/margin", "preference/right"} <= set(metrics)


def test_own_successes_may_be_what_supervision_imitates(base: LoadedBase, tmp_path: Path) -> None:
    made = trainer(base, tmp_path, objective="sft", sft_targets="successes", keep_solved=1.0)
    result = update(made, start(base), episodes(base, 1))
    assert result.num_rows == 20
    assert result.metrics["rows/reference"] == 0  # every toy group has a success


def test_borrowed_groups_give_pairs_but_no_gradient(base: LoadedBase, tmp_path: Path) -> None:
    own, lent = episodes(base, 1), episodes(base, 5)
    counts = {}
    for objective in ("dpo", "kto", "ppo"):
        made = trainer(base, tmp_path / objective, objective=objective)
        job = replace(
            toy_job(start(base), range(0), step=1),
            items=tuple(sorted(set(own["item"].to_pylist()))),
            borrowed=tuple(sorted(set(lent["item"].to_pylist()))),
        )
        counts[objective] = made.train(job, own, lent).num_rows
    assert counts == {"dpo": 2 * 40, "kto": 2 * 80, "ppo": 80}
