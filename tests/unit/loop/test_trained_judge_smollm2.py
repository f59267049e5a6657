"""A judge on real weights and real pairs: SmolLM2 with an adapter learns from the shortest questions of LLMBar."""

import json
from pathlib import Path

import pytest

from coharness.loop.trained_judge import JudgeTraining, open_trained_judge, train_judge
from coharness.policy.smollm2 import cached_path
from coharness.reward.training.episodes import JudgeObjective
from coharness.reward.training.examples import Shares, comparisons, read_examples, split
from coharness.reward.training.fit import Recipe
from coharness.studies.contract import StudyError
from experiments.reward.llmbar import data_file

pytestmark = [pytest.mark.real_weights, pytest.mark.slow]
QUESTIONS = 14
SHARES = Shares(calibrate=0.15, anchors=0.15, fresh=0.15)


@pytest.fixture
def shortest(tmp_path: Path) -> Path:
    """The shortest questions of the set, as they are published."""
    try:
        folder = data_file().parent
    except StudyError as error:
        pytest.skip(str(error))
    rows = [
        row for name in ("natural", "neighbor", "gptout") for row in json.loads((folder / f"{name}.json").read_text())
    ]
    rows.sort(key=lambda row: len(row["input"] + max(row["output_1"], row["output_2"], key=len)))
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(rows[:QUESTIONS]))
    return path


def test_an_adapter_learns_real_pairs_and_judges_from_its_folder(shortest: Path, tmp_path: Path) -> None:
    if not (cached_path() / "base.json").is_file():
        pytest.skip("the SmolLM2 weights are not here; coharness base fetch smollm2")
    metrics: list[float] = []
    job = JudgeTraining(
        examples=(shortest,),
        out=tmp_path / "judge",
        base="smollm2",
        objective=JudgeObjective.PAIRWISE,
        recipe=Recipe(epochs=3, rows_per_step=4, learning_rate=1e-3),
        max_context=128,
        shares=SHARES,
    )
    record = train_judge(job, on_step=lambda step, steps, found: metrics.append(found["loss/judge"]))
    assert record.words == ("Yes", "No")
    third = len(metrics) // 3
    assert sum(metrics[-third:]) < 0.8 * sum(metrics[:third]), "the loss of the last epoch is below that of the first"
    train = comparisons(split(read_examples(shortest), seed=0, shares=SHARES).train)
    judge = open_trained_judge(tmp_path / "judge")
    judged = judge.pair_all([(c.question, c.better.text, c.worse.text) for c in train])
    assert sum((j.value or 0) > 0 for j in judged) >= 0.8 * len(train)
    ((part,),) = judge.judge(train[0].question, [train[0].better.text])
    assert part.value is not None
    assert 0 < part.value < 1
    judge.close()
