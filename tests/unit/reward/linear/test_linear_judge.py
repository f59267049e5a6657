"""The linear judge: its fit against an independent logistic regression, its names, its files, what it refuses."""

import json
import math
import pickle
from pathlib import Path
from random import Random

import numpy as np
import pytest
from scipy import optimize

from coharness.records.errors import ConfigError
from coharness.records.ids import JudgeId
from coharness.reward.linear.features import NAMES, NUM_FEATURES, features, named_features
from coharness.reward.linear.files import LinearShelf, read_model, write_model
from coharness.reward.linear.fit import Ordered, Settled, fit
from coharness.reward.linear.model import LinearModel
from coharness.reward.linear.rows import read_pairs, read_settled, write_pairs


def reversals(count: int, seed: int = 0) -> list[Ordered]:
    rng = Random(seed)
    pairs = []
    for _ in range(count):
        word = "".join(rng.sample("abcdefgh", 5))
        wrong = list(word[::-1])
        a, b = rng.sample(range(5), 2)
        wrong[a], wrong[b] = wrong[b], wrong[a]
        pairs.append(Ordered(question=f"rev {word}", better=word[::-1], worse="".join(wrong)))
    return pairs


def in_order(model: LinearModel, pairs: list[Ordered]) -> float:
    return sum(model.logit(p.question, p.better) > model.logit(p.question, p.worse) for p in pairs) / len(pairs)


def test_named_features_are_what_their_names_say() -> None:
    found = named_features("rev abcd", "dcba")
    assert (found["backward"], found["same_length"], found["known_letters"], found["longer"]) == (1.0, 1.0, 1.0, 0.0)
    assert named_features("rev abcd", "dcbaa")["longer"] == pytest.approx(math.log(6 / 5))
    assert named_features("rev abcd", "dc")["shorter"] == pytest.approx(math.log(5 / 3))
    assert named_features("sort 3120", "0123")["sorted_subject"] == 1.0
    assert named_features("sort 3120", "0132")["rising"] == pytest.approx(2 / 3)
    assert named_features("q", "aaab")["run"] == 0.75
    assert set(found) == set(NAMES)


@pytest.mark.parametrize(
    ("question", "answer"), [("", ""), ("rev", "\x00\ud800"), ("a " * 50, "x" * 100_000), ("?", "ß漢")]
)
def test_any_text_has_finite_features_within_the_table(question: str, answer: str) -> None:
    found = features(question, answer)
    assert all(0 <= i < NUM_FEATURES and math.isfinite(x) for i, x in found.items())
    assert found == features(question, answer)


def test_the_fit_is_the_minimum_of_the_stated_loss() -> None:
    pairs = reversals(12)
    settled = [Settled(question=p.question, answer=p.better, right=True) for p in pairs[:5]]
    settled += [Settled(question=p.question, answer=p.worse, right=False) for p in pairs[:9]]
    ridge = 0.05
    model = fit(settled, pairs, ridge=ridge)

    def dense(q: str, a: str) -> np.ndarray:
        row = np.zeros(NUM_FEATURES)
        for i, x in features(q, a).items():
            row[i] = x
        return row

    x = np.array([dense(s.question, s.answer) for s in settled])
    y = np.array([1.0 if s.right else -1.0 for s in settled])
    c = np.where(y > 0, 0.5 / 5, 0.5 / 9)
    d = np.array([dense(p.question, p.better) - dense(p.question, p.worse) for p in pairs])

    def loss(w: np.ndarray) -> float:
        return float(
            (c * np.log1p(np.exp(-y * (x @ w)))).sum() + np.log1p(np.exp(-(d @ w))).mean() + ridge / 2 * (w @ w)
        )

    ours = np.zeros(NUM_FEATURES)
    for i, w in model.weights.items():
        ours[i] = w
    slope = optimize.approx_fprime(ours[: len(NAMES)], lambda v: loss(np.concatenate([v, ours[len(NAMES) :]])), 1e-6)
    assert np.abs(slope).max() < 2e-4, "no direction among the named features goes down"
    assert loss(ours) < loss(np.zeros(NUM_FEATURES))
    assert loss(ours) <= min(loss(ours * 0.97), loss(ours * 1.03))


def test_it_learns_what_it_can_see_and_nothing_from_shuffled_labels() -> None:
    train, test = reversals(150, 1), reversals(200, 2)
    assert in_order(fit([], train), test) > 0.95
    rng = Random(3)
    shuffled = [
        p if rng.random() < 0.5 else Ordered(question=p.question, better=p.worse, worse=p.better) for p in train
    ]
    assert in_order(fit([], shuffled), test) < 0.8


def test_a_fit_without_anything_to_tell_apart_is_refused() -> None:
    with pytest.raises(ValueError, match="2 attempts, 2 of them right, and no pair"):
        fit([Settled(question="q", answer=a, right=True) for a in "ab"], [])


def test_a_version_is_named_by_its_content() -> None:
    model = LinearModel(weights={1: 0.5, 3: -0.25})
    assert model.id == LinearModel(weights={3: -0.25, 1: 0.5}).id
    assert model.id != LinearModel(weights={1: 0.5, 3: -0.2500001}).id
    child = model.shifted({"longer": 2.0})
    assert child.parent == model.id
    assert child.logit("rev ab", "baaa") - model.logit("rev ab", "baaa") == pytest.approx(2 * math.log(5 / 3))
    assert pickle.loads(pickle.dumps(child)).id == child.id
    with pytest.raises(ConfigError, match="no feature 'lenght'"):
        model.shifted({"lenght": 1.0})
    with pytest.raises(ValueError, match="finite weights"):
        LinearModel(weights={0: math.nan})


def test_the_shelf_gives_back_what_was_put_and_refuses_what_was_changed(tmp_path: Path) -> None:
    shelf, model = LinearShelf(tmp_path), fit([], reversals(5))
    name = shelf.add(model)
    assert shelf.model(name) == model
    part = LinearShelf(tmp_path).of(name).judge("rev ab", ["ba", "ab"])
    assert [p.value for (p,) in part] == [model.score("rev ab", "ba"), model.score("rev ab", "ab")]
    file = tmp_path / f"{name}.json"
    data = json.loads(file.read_text())
    data["weights"][0][1] += 1.0
    file.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match="changed after it was written"):
        LinearShelf(tmp_path).of(name)
    with pytest.raises(ConfigError, match="no judge in"):
        shelf.of(JudgeId("j-00"))
    with pytest.raises(ConfigError, match="not the name"):
        shelf.of(JudgeId("j-../../etc"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "pickle"}, "no linear judge"),
        ({"features": 99}, "features 99"),
        ({"weights": [[-1, 1.0]]}, "cannot be read"),
        ({"weights": [[0, "x"]]}, "cannot be read"),
    ],
)
def test_a_file_that_is_no_judge_of_this_code_is_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / "judge.json"
    path.write_text(json.dumps({**LinearModel(weights={0: 1.0}).to_json(), **change}))
    with pytest.raises(ConfigError, match=message):
        read_model(path)
    path.write_text("{")
    with pytest.raises(ConfigError, match="no JSON"):
        read_model(path)


def test_pairs_and_verdicts_come_back_and_bad_lines_are_named(tmp_path: Path) -> None:
    pairs, path = reversals(3), tmp_path / "pairs.jsonl"
    write_pairs(path, pairs)
    assert read_pairs(path) == pairs
    with path.open("a") as file:
        file.write('{"question": "q", "better": "a", "worse": "a"}\n')
    with pytest.raises(ConfigError, match="line 4 is no pair"):
        read_pairs(path)
    verdicts = tmp_path / "verdicts.jsonl"
    verdicts.write_text(
        '{"question": "q", "answer": "a", "right": true}\n{"question": "q", "answer": "b", "right": 1}\n'
    )
    with pytest.raises(ConfigError, match="line 2 is no verdict"):
        read_settled(verdicts)


def test_writing_leaves_nothing_half_done(tmp_path: Path) -> None:
    model = LinearModel(weights={0: 1.0})
    write_model(model, tmp_path / "judge.json")
    assert [p.name for p in tmp_path.iterdir()] == ["judge.json"]
    assert read_model(tmp_path / "judge.json").id == model.id
