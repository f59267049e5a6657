"""Students: what they learn, where they dare to answer, what shadow traffic sees, and that nothing of them is pickled."""

import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse, special

from coharness.records.errors import PreflightError
from coharness.reward.algebra.part import Part, PartOutcome
from coharness.reward.panel.selective import Selection
from coharness.reward.students.escalation import EscalatingJudge, confidence, select
from coharness.reward.students.features import COUNTED, NUM_BUCKETS, Item, counted, hashed
from coharness.reward.students.shadow import Shadow
from coharness.reward.students.student import Student, fit_student, load_student, save_student

WORDS = ("river", "stone", "cloud", "paper", "green", "seven", "north", "candle", "music", "winter")
GOOD, BAD = ("because", "therefore", "since"), ("whatever", "trust", "obviously")


def items(num: int, seed: int) -> tuple[list[Item], np.ndarray]:
    """Answers of five common words and one that tells how good they are; truth [num]."""
    rng = np.random.default_rng(seed)
    truth = rng.random(num) < 0.5
    made = []
    for good in truth:
        words = [*rng.choice(WORDS, 5), rng.choice(GOOD if good else BAD)]
        made.append(("why is it so", " ".join(rng.permutation(words))))
    return made, truth


def teacher_scores(truth: np.ndarray, seed: int, error: float = 0.1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    said = truth ^ (rng.random(len(truth)) < error)
    return np.where(said, 0.9, 0.1)


@cache
def student(error: float = 0.1, num: int = 400) -> Student:
    made, truth = items(num, 0)
    return fit_student(made, {"judge/score": teacher_scores(truth, 1, error).tolist()}, teacher="t@1")


class Teacher:
    """Says what a function says of each answer, and counts."""

    def __init__(self, say: object = None, outcome: PartOutcome = PartOutcome.OK) -> None:
        self.say = say or (lambda text: 0.9 if any(w in text for w in GOOD) else 0.1)
        self.outcome, self.asked, self.is_closed = outcome, [], False

    @property
    def part_names(self) -> tuple[str, ...]:
        return ("judge/score",)

    def judge(self, question: str, completions: Sequence[str]) -> list[tuple[Part, ...]]:
        self.asked += completions
        if self.outcome is not PartOutcome.OK:
            return [(Part.failed("judge/score", self.outcome, "no answer"),) for _ in completions]
        return [(Part.ok("judge/score", self.say(text)),) for text in completions]

    def close(self) -> None:
        self.is_closed = True


def shadow(share: float = 0.02) -> Shadow:
    return Shadow.start(secret="s", num_disagreed=2, num_compared=100, share=share)


def everything() -> Selection:
    return Selection(threshold=0.0, coverage=1.0, risk=0.0, bound=0.1)


def test_features_are_hashed_into_rows_of_length_one_and_the_same_everywhere() -> None:
    made, _ = items(5, 0)
    table = hashed([*made, ("q", "")])
    assert table.shape == (6, NUM_BUCKETS)
    norms = np.sqrt(np.asarray(table.power(2).sum(axis=1)).ravel())
    np.testing.assert_allclose(norms, [1, 1, 1, 1, 1, 0])
    # CRC-32 of a word is fixed by its standard; Python's own hash differs from process to process.
    import zlib

    one = hashed([("", "river")])
    assert list(one.indices) == [zlib.crc32(b"river") % NUM_BUCKETS]
    assert counted(made).shape == (5, len(COUNTED))


def test_the_fit_is_the_least_of_its_penalised_loss() -> None:
    """At the minimum the gradient, written out anew, is zero; the bias is not penalised."""
    made, truth = items(80, 0)
    y = teacher_scores(truth, 1)
    found = fit_student(made, {"judge/score": y.tolist()}, teacher="t", ridge=2.0)
    dense = np.clip((counted(made) - found.mean) / found.scale, -4, 4) / np.sqrt(len(COUNTED))
    x = sparse.hstack([hashed(made), dense]).toarray()
    residual = special.expit(x @ found.coefficients[0] + found.biases[0]) - y
    assert np.abs(x.T @ residual + 2.0 * found.coefficients[0]).max() < 1e-3
    assert abs(residual.sum()) < 1e-3


def test_a_student_learns_past_its_teachers_noise_and_settled_items_help() -> None:
    made, truth = items(400, 7)
    found = student(error=0.2).predict(made)[:, 0]
    assert ((found > 0.5) == truth).mean() > 0.95
    biased, right = items(200, 0)
    # A teacher that is always wrong, and as many settled items that count more.
    taught = np.where(right, 0.1, 0.9).tolist()
    known, good = items(200, 3)
    mended = fit_student(
        biased,
        {"judge/score": taught},
        teacher="t",
        settled=list(zip(known, good.astype(float), strict=True)),
        settled_weight=3.0,
    )
    assert ((mended.predict(made)[:, 0] > 0.5) == truth).mean() > 0.9


def test_what_a_student_cannot_be_fitted_on_is_refused() -> None:
    made, _ = items(12, 0)
    with pytest.raises(ValueError, match="at least 10 items"):
        fit_student(made[:5], {"judge/score": [0.5] * 5}, teacher="t")
    with pytest.raises(ValueError, match="judge/score among them"):
        fit_student(made, {"judge/x": [0.5] * 12}, teacher="t")
    for wrong in ([0.5] * 11, [0.5] * 11 + [1.5], [0.5] * 11 + [float("nan")]):
        with pytest.raises(ValueError, match="the teacher failed on"):
            fit_student(made, {"judge/score": wrong}, teacher="t")


def test_novelty_is_the_share_of_words_never_seen() -> None:
    made = student()
    known, mixed, foreign = made.novelty(
        [("why is it so", "river stone"), ("why", "river zeppelin"), ("why", "zeppelin quark")]
    )
    assert known < 0.5
    assert known < mixed < foreign
    assert foreign == pytest.approx(1.0)


def test_a_student_survives_a_round_trip_without_pickle(tmp_path: Path) -> None:
    made, (examples, _) = student(), items(20, 9)
    save_student(made, tmp_path)
    read = load_student(tmp_path)
    np.testing.assert_array_equal(read.predict(examples), made.predict(examples))
    np.testing.assert_array_equal(read.novelty(examples), made.novelty(examples))
    assert read.teacher == "t@1"
    with zipfile.ZipFile(tmp_path / "student.npz") as archive:
        for name in archive.namelist():
            head = archive.read(name)[:128]
            assert head.startswith(b"\x93NUMPY")
            assert b"'O'" not in head
            assert b"|O" not in head
    (tmp_path / "student.json").write_text(
        (tmp_path / "student.json").read_text().replace('"buckets": 16384', '"buckets": 8')
    )
    with pytest.raises(PreflightError, match="another buckets"):
        load_student(tmp_path)
    with pytest.raises(PreflightError, match="distil it again"):
        load_student(tmp_path / "absent")


def test_the_threshold_holds_its_risk_on_fresh_items() -> None:
    """Over many draws of the anchors, the risk of what is answered is above the bound no more often than asked."""
    made = student(error=0.3, num=120)
    pool, truth = items(4_000, 11)
    scores = made.predict(pool)[:, 0]
    wrong = (scores > 0.5) != truth
    assert 0.02 < wrong.mean() < 0.4, "a student that errs, or there is nothing to bound"
    rng, broken = np.random.default_rng(0), 0
    for _ in range(200):
        drawn = rng.choice(len(pool), 120, replace=False)
        found = select(made, [(pool[i], bool(truth[i])) for i in drawn], alpha=0.1, delta=0.1)
        answered = found.answers(confidence(scores))
        broken += bool(answered.any()) and float(wrong[answered].mean()) > 0.1
    assert broken / 200 <= 0.1 + 2 * (0.09 / 200) ** 0.5


def test_the_sure_are_answered_and_the_unsure_and_novel_go_up() -> None:
    teacher = Teacher()
    judge = EscalatingJudge(student(), teacher, at_least(0.4), shadow())
    texts = [
        "river stone because cloud paper green",
        "river stone cloud paper green",
        "zeppelin quark because gluon boson",
    ]
    sure, unsure, novel = judge.judge("why is it so", texts)
    assert (sure[0].reason, sure[0].value is not None and sure[0].value > 0.5) == ("by the student", True)
    assert teacher.asked == texts[1:]
    assert unsure[0].value == 0.1
    assert novel[0].value == 0.9
    assert (judge.traffic.by_student, judge.traffic.unsure, judge.traffic.novel) == (1, 1, 1)
    judge.close()
    assert teacher.is_closed


def at_least(value: float) -> Selection:
    return Selection(threshold=value, coverage=0.5, risk=0.0, bound=0.1)


def test_where_no_threshold_holds_everything_goes_up_and_a_failure_stays_one() -> None:
    nothing = Selection(threshold=float("inf"), coverage=0.0, risk=0.0, bound=1.0)
    teacher = Teacher(outcome=PartOutcome.INFRA)
    judge = EscalatingJudge(student(), teacher, nothing, shadow())
    (parts,) = judge.judge("why is it so", ["river because"])
    assert parts[0].outcome is PartOutcome.INFRA
    assert judge.traffic.teacher_share == 1.0
    assert judge.judge("why is it so", []) == []


def test_what_is_hollow_is_the_teachers_even_where_the_student_is_sure() -> None:
    teacher = Teacher(say=lambda text: 0.0)
    judge = EscalatingJudge(student(), teacher, everything(), shadow(), novelty_bound=1.0)
    judge.judge("why is it so", ["...", "river because", "river \ud800 because"])
    assert teacher.asked == ["..."], "half of a surrogate pair is odd, and judged all the same"


def test_shadow_traffic_is_a_fixed_share_and_does_not_change_answers() -> None:
    made = shadow(0.1)
    taken = [made.takes(("q", f"answer {n}")) for n in range(4_000)]
    assert np.mean(taken) == pytest.approx(0.1, abs=0.02)
    assert taken == [made.takes(("q", f"answer {n}")) for n in range(4_000)]
    other = Shadow.start(secret="t", num_disagreed=2, num_compared=100, share=0.1)
    assert taken != [other.takes(("q", f"answer {n}")) for n in range(4_000)], "another run's secret, another share"
    examples, _ = items(300, 5)
    texts = [answer for _, answer in examples]
    plain = EscalatingJudge(student(), Teacher(), everything(), shadow(1e-9), novelty_bound=1.0)
    watched = EscalatingJudge(student(), Teacher(), everything(), shadow(0.5), novelty_bound=1.0)
    assert plain.judge("why is it so", texts) == watched.judge("why is it so", texts)
    assert watched.traffic.shadowed > 100
    assert watched.shadow.num_compared == watched.traffic.shadowed
    assert watched.traffic.teacher_share == pytest.approx(watched.traffic.shadowed / 300)


def test_drift_raises_the_alarm_and_then_the_teacher_answers_everything() -> None:
    drifted = Teacher(say=lambda text: 0.1 if any(w in text for w in GOOD) else 0.9)
    judge = EscalatingJudge(student(), drifted, everything(), shadow(0.3), novelty_bound=1.0)
    batches = 0
    while not judge.shadow.alarms:
        examples, _ = items(40, 100 + batches)
        judge.judge("why is it so", [answer for _, answer in examples])
        batches += 1
        assert batches < 30, "an alarm within 1,200 answers, all of them wrong by the new teacher"
    parts = judge.judge("why is it so", ["river because"])
    assert parts[0][0].reason != "by the student"
    assert judge.traffic.after_alarm == 1
    assert judge.shadow.disagreement is not None
    assert judge.shadow.disagreement.low > 0.5


def test_a_faithful_student_raises_no_alarm() -> None:
    rng, alarms = np.random.default_rng(0), 0
    for _ in range(100):
        made = Shadow.start(secret="s", num_disagreed=5, num_compared=200, horizon=200)
        for _ in range(200):
            made = made.observed(int(rng.binomial(4, 0.025)), 4)
            if made.alarms:
                alarms += 1
                break
    assert alarms <= 10, "at most 5 in 100 by the bound, and two standard errors"


def test_a_student_of_other_parts_is_refused() -> None:
    made, truth = items(40, 0)
    scores = teacher_scores(truth, 1).tolist()
    other = fit_student(made, {"judge/score": scores, "judge/steps": scores}, teacher="t")
    with pytest.raises(ValueError, match="distil it from this teacher"):
        EscalatingJudge(other, Teacher(), everything(), shadow())
