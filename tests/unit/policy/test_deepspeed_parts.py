"""What of the DeepSpeed backend needs no DeepSpeed: dealing, remembering, checking state, the critic, and being absent."""

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from coharness.config.load import config_from
from coharness.config.schema import PolicySection, TrainingSection
from coharness.loop.build import build_training_backend
from coharness.loop.preflight import Level, preflight
from coharness.policy.training import deepspeed_extra
from coharness.policy.training.deepspeed_critic import Critic
from coharness.policy.training.deepspeed_group import TrainerGroup
from coharness.policy.training.deepspeed_members import Kept, Snapshots
from coharness.policy.training.deepspeed_ranks import Ranks, loopback_interface
from coharness.policy.training.deepspeed_state import Snapshot, check_moments
from coharness.policy.training.deepspeed_update import deal
from coharness.policy.training.member_state import fresh_critic, make_member, set_hyperparameters
from coharness.records.errors import Boundary, BoundaryError, ConfigError, PreflightError, WeightsError
from coharness.records.ids import PolicyId

ALONE = Ranks(0, 1, deadline_s=1.0)


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 7))
def test_every_piece_is_dealt_once_and_hands_are_as_even_as_they_can_be(sizes: list[int], num_ranks: int) -> None:
    hands = deal(sizes, num_ranks)
    assert sorted(number for hand in hands for number in hand) == list(range(len(sizes)))
    assert max(map(len, hands)) - min(map(len, hands)) <= 1
    assert len(hands) == num_ranks


def test_the_larger_piece_goes_to_the_rank_with_less_to_do() -> None:
    assert deal([9, 4, 3, 2], 2) == [[0, 3], [1, 2]]


def kept(value: float) -> Kept:
    return Kept(engine=Snapshot(masters=(torch.tensor([value]),), states=({},)), critic={})


def test_a_member_is_remembered_for_its_own_weights_alone() -> None:
    snapshots = Snapshots(max_bytes=100, member_bytes=10)
    snapshots.put(PolicyId("p0"), "a", kept(1.0))
    assert snapshots.take(PolicyId("p0"), "b") is None
    assert snapshots.take(PolicyId("p0"), "a") is None, "one of other weights is forgotten"
    snapshots.put(PolicyId("p0"), "a", kept(2.0))
    found = snapshots.take(PolicyId("p0"), "a")
    assert found is not None
    assert found.engine.masters[0].item() == 2.0
    assert len(snapshots) == 0


def test_the_least_recently_used_leave_first_and_a_member_too_large_is_not_kept() -> None:
    snapshots = Snapshots(max_bytes=20, member_bytes=10)
    for number in range(3):
        snapshots.put(PolicyId(f"p{number}"), "d", kept(number))
    assert snapshots.take(PolicyId("p0"), "d") is None
    assert snapshots.take(PolicyId("p2"), "d") is not None
    tight = Snapshots(max_bytes=9, member_bytes=10)
    tight.put(PolicyId("p0"), "d", kept(0.0))
    assert len(tight) == 0


WEIGHTS = {"a": torch.zeros(2, 3), "b": torch.zeros(4)}


def moments(step: float = 3.0) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, weight in WEIGHTS.items():
        found |= {f"exp_avg.{name}": torch.ones_like(weight), f"exp_avg_sq.{name}": torch.ones_like(weight)}
        found[f"step.{name}"] = torch.tensor(step)
    return found


def test_optimizer_state_that_fits_is_accepted_also_where_a_parameter_never_had_a_gradient() -> None:
    check_moments(moments(), WEIGHTS, "v1")
    check_moments({key: value for key, value in moments().items() if not key.endswith(".b")}, WEIGHTS, "v1")
    check_moments({}, WEIGHTS, "v1")


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"exp_avg.c": torch.zeros(1)}, "v1: optimizer state holds 'exp_avg.c', which belongs to no parameter"),
        ({"exp_avg.a": torch.zeros(3, 2)}, "v1: optimizer state does not fit parameter 'a'; missing: nothing"),
        ({"step.a": None}, "does not fit parameter 'a'; missing: step.a"),
        ({"step.a": torch.tensor(5.0)}, "have taken 3, 5 steps, expected one number for all"),
    ],
)
def test_optimizer_state_that_does_not_fit_is_refused_by_name(changed: dict[str, Tensor | None], match: str) -> None:
    state = {key: value for key, value in {**moments(), **changed}.items() if value is not None}
    with pytest.raises(WeightsError, match=match):
        check_moments(state, WEIGHTS, "v1")


def gradient_of(head: torch.nn.Linear, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in head.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def stepped_critic() -> Critic:
    critic = Critic(6, rate_scale=2.0, ranks=ALONE)
    critic.set_hyperparameters(learning_rate=0.05, weight_decay=0.01)
    for seed in range(3):
        gradient_of(critic.head, seed)
        critic.step(max_grad_norm=1.0)
    return critic


def test_the_critic_steps_and_is_published_as_the_torch_trainers_is() -> None:
    member = make_member(
        {"w": torch.zeros(1)}, None, digest="", device=torch.device("cpu"), critic=fresh_critic(6), critic_rate=2.0
    )
    set_hyperparameters(member.optimizer, learning_rate=0.05, weight_decay=0.01)
    assert member.critic is not None
    for seed in range(3):
        gradient_of(member.critic, seed)
        torch.nn.utils.clip_grad_norm_(member.critic.parameters(), 1.0)
        member.optimizer.step()
    expected, got = member.optimizer_state(), stepped_critic().state()
    assert expected is not None
    assert {key: value.tolist() for key, value in got.items()} == {k: v.tolist() for k, v in expected.items()}


def test_a_critic_goes_on_from_its_published_state_and_takes_it_out_of_the_members() -> None:
    critic, other = stepped_critic(), Critic(6, rate_scale=2.0, ranks=ALONE)
    other.set_hyperparameters(learning_rate=0.05, weight_decay=0.01)
    state = {**moments(), **critic.state()}
    other.write(other.split(state, "v1"))
    assert state.keys() == moments().keys()
    for one in (critic, other):
        gradient_of(one.head, 9)
        one.step(max_grad_norm=1.0)
    assert all(torch.equal(value, other.state()[key]) for key, value in critic.state().items())


def test_a_critic_without_gradient_stays_and_one_without_state_begins_anew() -> None:
    critic = stepped_critic()
    before = critic.state()
    critic.step(max_grad_norm=1.0)
    assert all(torch.equal(value, critic.state()[key]) for key, value in before.items())
    critic.write({})
    assert critic.state() == {}
    assert not any(parameter.any() for parameter in critic.head.parameters())


def test_a_critic_of_another_base_is_refused() -> None:
    with pytest.raises(
        WeightsError, match=r"v1: .*'value' of the critic's 'weight' is of shape \[1, 6\], expected \[1, 7\]"
    ):
        Critic(7, rate_scale=1.0, ranks=ALONE).split(stepped_critic().state(), "v1")


def test_a_failure_in_company_is_raised_with_its_boundary() -> None:
    with pytest.raises(BoundaryError, match="ValueError: no") as caught, ALONE.together(Boundary.WEIGHTS):
        raise ValueError("no")
    assert caught.value.boundary is Boundary.WEIGHTS


def test_the_loopback_interface_reaches_this_machine() -> None:
    assert loopback_interface().startswith("lo")


def found_version(monkeypatch: pytest.MonkeyPatch, found: str | None) -> None:
    def version(name: str) -> str:
        assert name == "deepspeed"
        if found is None:
            raise PackageNotFoundError(name)
        return found

    monkeypatch.setattr(deepspeed_extra, "version", version)


def test_without_the_package_a_group_is_refused_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found_version(monkeypatch, None)
    expected = r"needs the package deepspeed, which is not installed; pip install 'coharness-evolution\[deepspeed\]'"
    with pytest.raises(PreflightError, match=expected):
        TrainerGroup(PolicySection(), TrainingSection())


def test_a_series_that_was_not_tested_is_refused_and_the_one_that_was_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    found_version(monkeypatch, "0.20.0")
    assert "tested with deepspeed 0.19.*, found 0.20.0" in str(deepspeed_extra.deepspeed_problem())
    found_version(monkeypatch, "0.19.8")
    assert deepspeed_extra.deepspeed_problem() is None


def test_the_whole_run_is_refused_where_the_package_is_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found_version(monkeypatch, None)
    config = config_from({"run_dir": str(tmp_path / "run")}, ["training.backend=deepspeed"])
    with pytest.raises(PreflightError, match="not installed"):
        build_training_backend(config, tmp_path)
    told = [f for f in preflight(config).findings if f.what == "training.backend"]
    assert [finding.level for finding in told] == [Level.ERROR]
    assert "pip install 'coharness-evolution[deepspeed]'" in told[0].message


def test_stage_0_has_no_masters_for_bfloat16() -> None:
    words = ["training.backend=deepspeed", "training.deepspeed.stage=0", "policy.dtype=bfloat16"]
    with pytest.raises(ConfigError, match=r"training\.deepspeed\.stage=0 .*policy\.dtype=bfloat16 needs"):
        config_from({"run_dir": "x"}, words)
    assert config_from({"run_dir": "x"}, ["training.deepspeed.stage=2", *words[::2]]).training.deepspeed.stage == 2


@pytest.mark.parametrize("word", ["training.deepspeed.stage=4", "training.deepspeed.world_size=0"])
def test_shapes_that_do_not_exist_are_refused(word: str) -> None:
    with pytest.raises(ConfigError, match=r"training\.deepspeed"):
        config_from({"run_dir": "x"}, [word])
