"""From a file of settled examples to a judge that serves, on the tiny base: each objective learns, is tested, and is used."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coharness.cli.main import main
from coharness.config.load import load_config
from coharness.config.reward import TrainedJudgeSection
from coharness.loop.build import build_judge_shelf
from coharness.loop.preflight import Level, preflight
from coharness.loop.trained_judge import JudgeTraining, open_trained_judge, train_judge
from coharness.records.errors import ConfigError, PreflightError
from coharness.records.ids import JudgeId
from coharness.reward.algebra.part import PartOutcome
from coharness.reward.training.episodes import JudgeObjective
from coharness.reward.training.fit import Recipe
from coharness.reward.training.gate import read_ledger
from coharness.reward.training.record import JudgeRecord, read_record

FAST = Recipe(epochs=4, rows_per_step=16, learning_rate=2e-3)


def rows(num: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Copies of a word, of which the worse holds a letter that no word has."""
    rng = random.Random(seed)
    for _ in range(num):
        word = "".join(rng.choice("abcdef") for _ in range(5))
        place = rng.randrange(5)
        worse = word[:place] + rng.choice("xyz") + word[place + 1 :]
        yield {"question": f"copy {word}", "better": word, "worse": worse, "margin": 1.0}


def written(folder: Path, num: int = 200, seed: int = 0) -> Path:
    path = folder / f"pairs{seed}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(num, seed)))
    return path


def job(folder: Path, objective: JudgeObjective, **changes: Any) -> JudgeTraining:
    made = JudgeTraining(
        examples=(written(folder),),
        out=folder / objective.value,
        base="tiny",
        objective=objective,
        recipe=FAST,
        max_context=64,
    )
    return replace(made, **changes)


@pytest.fixture(scope="module")
def pairwise(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, JudgeRecord]:
    folder = tmp_path_factory.mktemp("judge")
    made = job(folder, JudgeObjective.PAIRWISE)
    return made.out, train_judge(made)


def test_a_judge_learns_is_promoted_and_says_what_it_was_held_against(pairwise: tuple[Path, JudgeRecord]) -> None:
    folder, record = pairwise
    assert record.promoted, record.gate
    low, value, _ = record.figures["judge"]
    assert value > 0.9
    assert low > record.figures["champion"][1], "better than the untrained base, by more than its interval"
    assert record.figures["shorter"][1] == 0.5, "its pairs are of equal length, so length cannot be what it learned"
    assert read_record(folder) == record
    assert len(list((folder / "weights" / "judge").iterdir())) == 1, "versions on the way are retired"
    assert (folder / record.weights.uri / "adapter_config.json").is_file()
    ledger = read_ledger(folder)
    assert (ledger.num_tests, ledger.num_accepted) == (1, 1)
    assert len(ledger.spent) == record.figures["questions"]["fresh"]


def test_it_judges_what_it_never_saw(pairwise: tuple[Path, JudgeRecord]) -> None:
    folder, record = pairwise
    judge = open_trained_judge(folder)
    fresh = list(rows(40, seed=77))
    verdicts = judge.pair_all([(r["question"], r["better"], r["worse"]) for r in fresh])
    assert sum((v.value or 0) > 0 for v in verdicts) >= 32
    scores = [p.value for r in fresh for (p,) in judge.judge(r["question"], [r["better"], r["worse"]])]
    assert all(s is not None and 0 <= s <= 1 for s in scores)
    assert sum(a > b for a, b in zip(scores[0::2], scores[1::2], strict=True)) >= 32
    assert judge.versions.model == f"tiny+{record.id}"
    judge.close()


@pytest.mark.parametrize("objective", [JudgeObjective.REGRESSION, JudgeObjective.GENERATIVE])
def test_the_other_objectives_learn_as_well(tmp_path: Path, objective: JudgeObjective) -> None:
    record = train_judge(job(tmp_path, objective))
    assert record.figures["judge"][1] > 0.9 > record.figures["champion"][1]
    assert record.promoted, record.gate
    assert not record.writes_reasons, "there were none to learn"
    judge = open_trained_judge(tmp_path / objective.value)
    assert judge.judge("copy abc", ["abc"])[0][0].outcome is PartOutcome.OK
    judge.close()


def test_a_run_takes_it_by_its_folder(pairwise: tuple[Path, JudgeRecord], tmp_path: Path) -> None:
    folder, record = pairwise
    config = tmp_path / "run.yaml"
    config.write_text(f"run_dir: {tmp_path / 'run'}\nreward:\n  judge: {{type: trained, folder: {folder}}}\n")
    loaded = load_config(config)
    assert isinstance(loaded.reward.judge, TrainedJudgeSection)
    (found,) = [f for f in preflight(loaded).findings if f.what == "reward.judge"]
    assert (found.level, record.id in found.message) == (Level.INFO, True)
    shelf = build_judge_shelf(loaded, tmp_path / "run")
    assert shelf is not None
    judge = shelf.of(JudgeId("any"))
    assert judge.part_names == ("judge/score",)
    (good, bad) = judge.judge("copy abcde", ["abcde", "abxde"])
    assert good[0].value is not None
    assert bad[0].value is not None
    assert good[0].value > bad[0].value
    shelf.close()
    config.write_text(f"run_dir: {tmp_path / 'run'}\nreward:\n  judge: {{type: trained, folder: nowhere}}\n")
    (found,) = [f for f in preflight(load_config(config)).findings if f.what == "reward.judge"]
    assert found.level is Level.ERROR
    assert str(tmp_path / "nowhere") in found.message, "a path is relative to the config's folder"


def test_the_command_line_takes_it_in_a_rubrics_place(
    pairwise: tuple[Path, JudgeRecord], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, record = pairwise
    items = tmp_path / "items.jsonl"
    items.write_text(json.dumps({"question": "copy abcde", "first": "abxde", "second": "abcde", "id": 3}) + "\n")
    with pytest.raises(SystemExit) as end:
        main(["judge", "pair", str(folder), str(items)])
    out = capsys.readouterr()
    told = json.loads(out.out)
    assert end.value.code in (0, None)
    assert told["value"] < 0
    assert (told["id"], told["versions"]["model"]) == (3, f"tiny+{record.id}")
    assert "1 ok; 0 from the cache; 2 calls" in out.err
    for words, message in (
        (["judge", "pair", str(folder), str(items), "--endpoint", "http://127.0.0.1:9/v1"], "leave out --endpoint"),
        (["judge", "pair", str(items), str(items)], "needs --endpoint and --model"),
        (
            ["judge", "train", str(items), "--out", str(tmp_path / "x"), "--objective", "other"],
            "expected one of generative",
        ),
    ):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 2
        assert message in capsys.readouterr().err


def test_a_challenger_pays_with_fresh_samples_and_spent_ones_are_refused(
    pairwise: tuple[Path, JudgeRecord], tmp_path: Path
) -> None:
    folder, _ = pairwise
    short = Recipe(epochs=1, rows_per_step=64, learning_rate=1e-5)
    again = job(tmp_path, JudgeObjective.REGRESSION, champion=folder, recipe=short)
    with pytest.raises(ConfigError, match="all fresh ones are spent"):
        train_judge(again)
    before = read_ledger(folder)
    made = train_judge(replace(again, examples=(written(tmp_path, 60, seed=5),)))
    assert not made.promoted, "one step at a rate of nothing is no better than what was trained"
    after = read_ledger(folder)
    assert (after.num_tests, after.num_accepted) == (before.num_tests + 1, before.num_accepted)
    assert after.spent > before.spent, "what a refused challenger spent is spent for the next one as well"


def test_what_cannot_work_is_refused_before_anything_heavy(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "x").write_text("")
    with pytest.raises(ConfigError, match="not empty"):
        train_judge(job(tmp_path, JudgeObjective.PAIRWISE, out=tmp_path / "taken"))
    with pytest.raises(ConfigError, match="leaves no preference for"):
        train_judge(job(tmp_path, JudgeObjective.PAIRWISE, examples=(written(tmp_path, 2, seed=9),)))
    with pytest.raises(ConfigError, match="fits into 17 tokens"):
        train_judge(job(tmp_path, JudgeObjective.PAIRWISE, max_context=17))
    with pytest.raises(ConfigError, match="coharness judge train"):
        open_trained_judge(tmp_path)


def test_another_base_than_it_was_trained_on_is_refused(pairwise: tuple[Path, JudgeRecord], tmp_path: Path) -> None:
    folder, _ = pairwise
    data = json.loads((folder / "judge.json").read_text())
    (tmp_path / "judge.json").write_text(json.dumps({**data, "base_digest": "0" * 64}))
    with pytest.raises(PreflightError, match="bring its base back"):
        open_trained_judge(tmp_path)
