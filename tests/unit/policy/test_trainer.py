"""Rules of the torch trainer: exact gradients, a base that never changes, and members that learn."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from coharness.config.schema import PolicySection, TrainingSection
from coharness.policy.bases import LoadedBase, base_weights_ref
from coharness.policy.rows import pad, sft_rows
from coharness.policy.tiny import build_tokenizer, save_base
from coharness.policy.training.forward import CausalModel, all_logprobs
from coharness.policy.training.member_state import Residents, full_skeleton, make_member
from coharness.policy.training.torch_trainer import TorchTrainer
from coharness.policy.weights import DiskWeightStore, read_weights, tensor_digest
from coharness.records.episode import Episode, Score, StopReason, episodes_to_table
from coharness.records.ids import ItemId, PolicyId
from coharness.records.policy import PolicyVersion, VersionRef
from coharness.records.training import JobResult, JobStatus
from coharness.testing.toy_training import base_version, random_base, toy_episodes, toy_job


@pytest.fixture(scope="module")
def base() -> LoadedBase:
    return random_base()


def trainer(base: LoadedBase, run_dir: Path, policy: PolicySection | None = None, **config: Any) -> TorchTrainer:
    if "grpo" in config.get("objective", ""):
        config.setdefault("group_size", 4)
    section = TrainingSection.model_validate(config)
    return TorchTrainer(base, DiskWeightStore(run_dir), run_dir, section, policy or PolicySection())


def start(base: LoadedBase, policy: str = "p0") -> PolicyVersion:
    return base_version(base_weights_ref(base), policy)


def update(
    made: TorchTrainer,
    begin: PolicyVersion,
    own: pa.Table,
    *,
    step: int = 1,
    borrowed: pa.Table | None = None,
    **job: Any,
) -> JobResult:
    lent = own.slice(0, 0) if borrowed is None else borrowed
    items = tuple(map(ItemId, sorted(set(own["item"].to_pylist()))))
    asked = replace(
        toy_job(begin, range(0), step=step, **job), items=items, borrowed=tuple(sorted(set(lent["item"].to_pylist())))
    )
    return made.train(asked, own, lent)


def done(result: JobResult) -> PolicyVersion:
    assert result.status is JobStatus.DONE, result
    assert result.version is not None
    return result.version


def distance(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> float:
    return max((left[name] - right[name]).abs().max().item() for name in left)


def test_padding_and_selection_do_not_change_log_probabilities(base: LoadedBase) -> None:
    tables = [toy_episodes(base.codec, range(i, i + 1), word_length=length) for i, length in ((1, 2), (3, 9), (5, 5))]
    rows = sft_rows(pa.concat_tables(tables), tables[0].slice(0, 0), keep_solved=1.0, seed=0)
    indices = np.array([2, 0, 1])
    padded = pad(rows, indices)
    with torch.no_grad():
        got = CausalModel(base.model)(rows, padded, indices).logprobs
        for place, row in enumerate(indices):
            ids = torch.from_numpy(rows.token_ids[rows.offsets[row] : rows.offsets[row + 1]])
            scores = base.model(input_ids=ids[None]).logits[0].double().log_softmax(-1)
            expected = scores[:-1].gather(-1, ids[1:, None])[:, 0]
            learned = torch.from_numpy(padded.mask[place, 1 : len(ids)])
            torch.testing.assert_close(
                got[place, : len(ids) - 1].double()[learned], expected[learned], atol=1e-5, rtol=0
            )
            assert not got[place, : len(ids) - 1][~learned].any()
    flat = all_logprobs(CausalModel(base.model), rows, 32)
    np.testing.assert_allclose(flat[padded.flat[:, 1:]][padded.mask[:, 1:]], got.numpy()[padded.mask[:, 1:]], atol=1e-5)


@pytest.mark.parametrize("objective", ["sft", "sft+grpo"])
def test_how_rows_are_cut_into_micro_batches_changes_nothing(base: LoadedBase, tmp_path: Path, objective: str) -> None:
    own = pa.concat_tables(
        [toy_episodes(base.codec, range(10 * n, 10 * n + 8), group_size=4, word_length=2 + 3 * n) for n in range(3)]
    )
    weights = []
    for row_tokens in (64, 4096):
        run_dir = tmp_path / str(row_tokens)
        result = update(trainer(base, run_dir, objective=objective, row_tokens=row_tokens), start(base), own)
        weights.append(read_weights(run_dir, done(result).weights))
    assert distance(*weights) < 1e-6


def test_a_step_of_sft_is_a_step_of_plain_adamw(base: LoadedBase, tmp_path: Path) -> None:
    own = toy_episodes(base.codec, range(1, 20, 2))  # odd items are failed, so all are kept
    version = done(update(trainer(base, tmp_path, ema_decay=0), start(base), own, learning_rate=3e-4))
    model = random_base().model.requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.0)
    losses = []
    for row in own.to_pylist():
        prompt = row["token_ids"][: row["prompt_length"]]
        ids = torch.tensor([prompt + row["reference_ids"]])
        labels = torch.tensor([[-100] * len(prompt) + row["reference_ids"]])
        logits = model(input_ids=ids).logits
        losses.append(torch.nn.functional.cross_entropy(logits[0, :-1], labels[0, 1:], reduction="none"))
    (torch.cat(losses).sum() / sum((x != 0).sum() for x in losses)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    expected = {name: parameter.detach() for name, parameter in model.named_parameters()}
    # AdamW's first step has size lr wherever the gradient is not 0, so signs of rounding-sized gradients are left out.
    got = read_weights(tmp_path, version.weights)
    moved = torch.cat([(got[n] - expected[n]).abs().flatten() for n in expected])
    assert (moved < 1e-6).double().mean() > 0.999


def test_what_is_published_is_the_running_mean_of_what_would_have_been(base: LoadedBase, tmp_path: Path) -> None:
    decay, steps = 0.3, 4
    path: dict[float, list[dict[str, torch.Tensor]]] = {}
    for ema_decay in (0.0, decay):
        made, version, path[ema_decay] = trainer(base, tmp_path / str(ema_decay), ema_decay=ema_decay), start(base), []
        for step in range(1, steps + 1):
            own = toy_episodes(base.codec, range(20 * step + 1, 20 * step + 20, 2))
            version = done(update(made, version, own, step=step, learning_rate=1e-3))
            path[ema_decay].append(read_weights(tmp_path / str(ema_decay), version.weights))
    mean = {name: p.detach().double() for name, p in base.model.named_parameters()}
    for number, (iterate, published) in enumerate(zip(path[0.0], path[decay], strict=True), start=1):
        keep = min(decay, (1 + number) / (10 + number))
        mean = {name: keep * mean[name] + (1 - keep) * iterate[name].double() for name in mean}
        assert all(torch.allclose(published[name].double(), mean[name], atol=1e-6) for name in mean)


def test_the_base_is_never_changed(base: LoadedBase, tmp_path: Path) -> None:
    before = tensor_digest(dict(base.model.named_parameters()))
    own = toy_episodes(base.codec, range(8), group_size=4)
    for weights in ("full", "lora"):
        policy = PolicySection.model_validate({"weights": weights})
        done(update(trainer(base, tmp_path / weights, policy, objective="sft+grpo"), start(base), own))
    assert tensor_digest(dict(base.model.named_parameters())) == before
    assert not any(p.requires_grad for p in base.model.parameters())
    assert not any("lora" in name for name, _ in base.model.named_modules())


def test_members_of_one_trainer_do_not_see_each_other(base: LoadedBase, tmp_path: Path) -> None:
    own = [toy_episodes(base.codec, range(20 * i, 20 * i + 8), seed=i) for i in range(4)]
    together, alone = trainer(base, tmp_path / "together"), [trainer(base, tmp_path / f"alone{i}") for i in range(2)]
    mixed = [start(base, "p0"), start(base, "p1")]
    apart = list(mixed)
    for step in (1, 2):
        for i in range(2):
            mixed[i] = done(update(together, mixed[i], own[2 * i + step - 1], step=step))
            apart[i] = done(update(alone[i], apart[i], own[2 * i + step - 1], step=step))
    assert [v.weights.digest for v in mixed] == [v.weights.digest for v in apart]
    assert mixed[0].weights.digest != mixed[1].weights.digest


def test_an_update_without_rows_publishes_the_weights_unchanged(base: LoadedBase, tmp_path: Path) -> None:
    made = trainer(base, tmp_path, objective="grpo")
    first = done(update(made, start(base), toy_episodes(base.codec, range(8), group_size=4)))
    flat = toy_episodes(base.codec, range(50, 58), group_size=1)  # one episode a group: no spread
    result = update(made, first, flat, step=2)
    assert done(result).weights.digest == first.weights.digest
    assert done(result).weights.uri != first.weights.uri
    assert result.num_rows == 0
    assert result.metrics["groups/zero_spread"] == 8
    assert "steps/taken" not in result.metrics


def test_borrowed_groups_are_for_supervision_alone(base: LoadedBase, tmp_path: Path) -> None:
    own = toy_episodes(base.codec, range(8), group_size=4)
    lent = toy_episodes(base.codec, range(100, 108), group_size=4, seed=5)
    rows = {}
    for objective in ("sft", "grpo"):
        for name, table in (("own", None), ("both", lent)):
            made = trainer(base, tmp_path / objective / name, objective=objective)
            result = update(made, start(base), own, borrowed=table)
            rows[objective, name] = (done(result).weights.digest, result.num_rows)
    assert rows["sft", "both"] == (rows["sft", "both"][0], 2 * rows["sft", "own"][1])
    assert rows["grpo", "both"] == rows["grpo", "own"]


def test_a_large_update_takes_steps_of_about_64_rows(base: LoadedBase, tmp_path: Path) -> None:
    made = trainer(base, tmp_path)
    steps = {}
    for step, num in enumerate((10, 64, 95, 97, 200), start=1):
        own = toy_episodes(base.codec, range(1, 2 * num, 2), seed=step)
        result = update(made, start(base, f"p{step}"), own, step=step)
        steps[num] = result.metrics["steps/taken"]
    assert steps == {10: 1, 64: 1, 95: 1, 97: 2, 200: 3}


def test_metrics_tell_how_far_the_policy_is_from_the_one_that_wrote(base: LoadedBase, tmp_path: Path) -> None:
    own = toy_episodes(base.codec, range(8), group_size=4)
    result = update(trainer(base, tmp_path, objective="sft+grpo"), start(base), own)
    done(result)
    assert {
        "loss/sft", "loss/policy", "kl/base", "mismatch_kl/mean", "ratio/mean", "ratio/max", "ratio/outside", "ratio/capped",
        "clip/fraction", "entropy/mean", "grad_norm", "rows/kept", "groups/zero_spread", "tokens/trained", "score/mean",
    } <= set(result.metrics)  # fmt: skip
    assert result.metrics["kl/base"] == pytest.approx(0, abs=1e-6)  # the first step starts at the base
    assert result.metrics["ratio/outside"] > 0.9  # the toy's behaviour is not this model's
    assert result.metrics["score/mean"] == 0.5


def test_unknown_hyperparameters_are_refused(base: LoadedBase, tmp_path: Path) -> None:
    own = toy_episodes(base.codec, range(2))
    job = replace(toy_job(start(base), range(2), step=1), hyperparameters={"learning_rat": 1e-3})
    result = trainer(base, tmp_path).train(job, own, own.slice(0, 0))
    assert result.status is JobStatus.FAILED
    assert "learning_rat" in result.message


def test_another_base_is_noticed_by_the_canary(base: LoadedBase, tmp_path: Path) -> None:
    lora = PolicySection(weights="lora")
    own = toy_episodes(base.codec, range(8))
    first = done(update(trainer(base, tmp_path, lora), start(base), own))
    result = update(trainer(random_base(seed=1), tmp_path, lora), first, own, step=2)
    assert result.status is JobStatus.FAILED
    assert "the base is another one" in result.message


def test_full_weights_are_published_under_the_names_of_the_base(base: LoadedBase, tmp_path: Path) -> None:
    save_base(base.model, build_tokenizer(), tmp_path / "base", {})
    version = done(update(trainer(base, tmp_path), start(base), toy_episodes(base.codec, range(4))))
    names = []
    for folder in (tmp_path / "base", tmp_path / version.weights.uri):
        with safe_open(folder / "model.safetensors", framework="pt") as opened:
            names.append(sorted(opened.keys()))
    assert names[0] == names[1]


def test_memory_for_members_is_bounded_and_the_least_recent_leaves(base: LoadedBase) -> None:
    skeleton = full_skeleton(base.model)
    device = torch.device("cpu")
    members = [make_member(skeleton.shapes, None, digest=str(i), device=device) for i in range(3)]
    residents = Residents(2 * members[0].num_bytes)
    for i, member in enumerate(members):
        residents.put(PolicyId(f"p{i}"), member)
    assert len(residents) == 2
    assert residents.take(PolicyId("p0"), "0") is None
    assert residents.take(PolicyId("p2"), "stale") is None
    assert residents.take(PolicyId("p2"), "2") is None  # a mismatch forgets the member
    assert residents.take(PolicyId("p1"), "1") is members[1]
    assert len(residents) == 0


def test_sft_lowers_the_loss_on_rows_it_has_not_seen(tmp_path: Path) -> None:
    base = random_base(width=32)
    made, version = trainer(base, tmp_path), start(base)
    held_out = toy_episodes(base.codec, range(1, 65, 2), seed=999, word_length=2)
    rows = sft_rows(held_out, held_out.slice(0, 0), keep_solved=1.0, seed=0)

    def loss(model: torch.nn.Module) -> float:
        return -float(all_logprobs(CausalModel(model), rows, 4096).sum() / rows.trained_lengths.sum())

    before = loss(base.model)
    for step in range(1, 31):
        own = toy_episodes(base.codec, range(1, 129, 2), seed=step, word_length=2)
        version = done(update(made, version, own, step=step, learning_rate=3e-3))
    base.model.load_state_dict(read_weights(tmp_path, version.weights), strict=False)
    assert before > 3.5
    assert loss(base.model) < 2.0  # knowing the alphabet and the word length alone gives 1.2


def test_grpo_raises_the_reward(tmp_path: Path) -> None:
    base = random_base(width=32)
    made, version, codec = trainer(base, tmp_path, objective="grpo", group_size=8), start(base), base.codec
    prompts = [codec.encode_prompt(f"copy {c}=") for c in "abcdef"]
    wanted = set(codec.encode_prompt("0123456789"))
    model, means = random_base(width=32).model, []
    for step in range(1, 17):
        rng = np.random.default_rng(step)
        episodes = []
        for group in range(12):
            prompt = prompts[group % len(prompts)]
            with torch.no_grad():
                scores = model(input_ids=torch.tensor([prompt])).logits[0, -1].double().log_softmax(-1).numpy()
            for sample in range(8):
                token = int(rng.choice(len(scores), p=np.exp(scores) / np.exp(scores).sum()))
                reward = float(token in wanted)
                episodes.append(
                    Episode(
                        item=ItemId(1000 * step + group), sample=sample, policy="p0", step=step, harness="h", task="t",
                        family="f", level=1, task_seed=0, format="plain", purpose="train", temperature=1.0,
                        token_ids=[*prompt, token],
                        loss_mask=[False] * len(prompt) + [True], logprobs=[0.0] * len(prompt) + [float(scores[token])],
                        prompt_length=len(prompt), reference_ids=[token], answer=None, stop_reason=StopReason.LENGTH,
                        score=Score(value=reward, exact=reward, partial=0.0, format=0.0, length=0.0),
                    )
                )  # fmt: skip
        means.append(sum(e.score.value for e in episodes) / len(episodes))
        result = update(made, version, episodes_to_table(episodes), step=step, learning_rate=4e-3)
        version = done(result)
        if result.num_rows and step == 1:
            assert result.metrics["mismatch_kl/mean"] == pytest.approx(0, abs=1e-9)
        model.load_state_dict(read_weights(tmp_path, version.weights), strict=False)
    assert np.mean(means[:3]) < 0.4
    assert np.mean(means[-3:]) > 0.8


def test_versions_are_named_by_policy_and_step(base: LoadedBase, tmp_path: Path) -> None:
    version = done(update(trainer(base, tmp_path), start(base, "p3"), toy_episodes(base.codec, range(4)), step=7))
    assert version.ref == VersionRef(PolicyId("p3"), 7)
    assert version.weights.uri == "weights/p3/v7"
