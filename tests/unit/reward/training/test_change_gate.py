"""The gate of a judge's changes: what is spent, who may veto, how often noise passes, and that no policy has a say."""

import dataclasses
import inspect
from pathlib import Path

import numpy as np
import pytest

from coharness.records.errors import ConfigError, PreflightError
from coharness.reward.students.promotion import decide_replacement
from coharness.reward.training.gate import (
    Ledger,
    Sample,
    decide_change,
    read_ledger,
    write_ledger,
)
from coharness.stats.sequential import GateVerdict, mcnemar_log_evalue


def samples(wins: int, losses: int, ties: int, name: str = "f") -> list[Sample]:
    rows = [(0.0, 1.0)] * wins + [(1.0, 0.0)] * losses + [(1.0, 1.0)] * ties
    return [Sample(id=f"{name}{n:05d}", champion=a, challenger=b) for n, (a, b) in enumerate(rows)]


ALIKE = samples(0, 0, 20, "a")


def test_a_better_judge_is_promoted_at_the_first_look_that_shows_it_and_the_rest_stays_fresh_to_the_rule() -> None:
    found = decide_change(Ledger(), fresh=samples(16, 0, 84), anchors=ALIKE)
    assert found.promoted
    assert found.decision.num_pairs == 16
    assert found.level == pytest.approx(0.1 * 6 / np.pi**2)
    assert found.decision.log_evalue == pytest.approx(mcnemar_log_evalue(16, 0))
    assert (found.ledger.num_tests, found.ledger.num_accepted, len(found.ledger.spent)) == (1, 1, 16)


def test_what_is_undecided_stays_with_the_champion_and_costs_a_number() -> None:
    found = decide_change(Ledger(), fresh=samples(3, 2, 20), anchors=ALIKE)
    assert found.decision.verdict is GateVerdict.REJECT_CAP
    assert len(found.ledger.spent) == 25
    again = decide_change(found.ledger, fresh=samples(16, 0, 0, "g"), anchors=ALIKE)
    assert again.level == pytest.approx(0.1 * 6 / np.pi**2 / 4), "the second test of the ledger"


def test_anchors_veto_and_never_promote() -> None:
    harmed = decide_change(Ledger(), fresh=samples(32, 0, 0), anchors=samples(0, 30, 0, "a"))
    assert harmed.decision.verdict is GateVerdict.VETO
    helped = decide_change(Ledger(), fresh=samples(0, 0, 64), anchors=samples(60, 0, 0, "a"))
    assert not helped.promoted


def test_a_sample_is_used_once() -> None:
    fresh = samples(16, 0, 0)
    spent = decide_change(Ledger(), fresh=fresh, anchors=ALIKE).ledger
    with pytest.raises(ConfigError, match="16 of 16 fresh samples decided about an earlier change"):
        decide_change(spent, fresh=fresh, anchors=ALIKE)
    with pytest.raises(ConfigError, match="were trained on"):
        decide_change(Ledger(), fresh=fresh, anchors=ALIKE, trained_on=frozenset({"f00003"}))
    with pytest.raises(ConfigError, match="stand twice"):
        decide_change(Ledger(), fresh=fresh, anchors=fresh[:3])
    with pytest.raises(ConfigError, match="0 anchors"):
        decide_change(Ledger(), fresh=fresh, anchors=[])
    with pytest.raises(ValueError, match="1/2 undecided"):
        Sample(id="x", champion=0.3, challenger=1.0)


def test_noise_passes_no_more_often_than_the_budget_allows() -> None:
    rng = np.random.default_rng(0)
    passed = 0
    for _ in range(1_000):
        flips = rng.random((96, 2)) < 0.3
        fresh = [Sample(id=f"f{n}", champion=float(a), challenger=float(b)) for n, (a, b) in enumerate(flips)]
        passed += decide_change(Ledger(), fresh=fresh, anchors=ALIKE).promoted
    assert passed / 1_000 <= 0.0608 + 2 * (0.0608 * 0.9392 / 1_000) ** 0.5


def test_a_policys_score_has_no_way_in() -> None:
    taken = {*inspect.signature(decide_change).parameters, *inspect.signature(decide_replacement).parameters}
    assert taken == {"ledger", "fresh", "anchors", "trained_on", "budget", "min_effect", "delta"}
    assert {f.name for f in dataclasses.fields(Sample)} == {"id", "champion", "challenger"}


def test_the_ledger_survives_a_round_trip_and_damage_is_no_clean_slate(tmp_path: Path) -> None:
    assert read_ledger(tmp_path) == Ledger()
    ledger = Ledger(num_tests=3, num_accepted=1, spent=frozenset({"b", "a"}))
    write_ledger(tmp_path, ledger)
    assert read_ledger(tmp_path) == ledger
    (tmp_path / "ledger.json").write_text("{}")
    with pytest.raises(PreflightError, match="no fresh sample can be told"):
        read_ledger(tmp_path)


def test_a_cheaper_judge_is_promoted_where_it_is_shown_to_be_no_worse() -> None:
    same = decide_replacement(Ledger(), fresh=samples(0, 0, 110), anchors=ALIKE)
    assert same.promoted
    assert not decide_replacement(Ledger(), fresh=samples(0, 0, 90), anchors=ALIKE).promoted, "silence is no proof"
    assert not decide_replacement(Ledger(), fresh=samples(2, 12, 100), anchors=ALIKE).promoted
    vetoed = decide_replacement(Ledger(), fresh=samples(0, 0, 110), anchors=samples(0, 30, 0, "a"))
    assert vetoed.reason == "the anchors show harm"
    assert len(vetoed.ledger.spent) == 110


def test_a_worse_student_passes_no_more_often_than_the_budget_allows() -> None:
    rng = np.random.default_rng(1)
    passed = 0
    for _ in range(600):
        lost = rng.random(150) < 0.05
        fresh = [Sample(id=f"f{n}", champion=1.0, challenger=float(not x)) for n, x in enumerate(lost)]
        passed += decide_replacement(Ledger(), fresh=fresh, anchors=ALIKE).promoted
    assert passed / 600 <= 0.0608 + 2 * (0.0608 * 0.9392 / 600) ** 0.5
