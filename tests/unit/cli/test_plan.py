import pytest

from coharness.cli.plan import plan_lines, plan_of
from coharness.config.load import config_from
from coharness.config.schema import RunConfig
from coharness.records.protocols import TaskSource
from coharness.records.task import FamilySpec, Task
from coharness.tasks.sources import TaskSources


class TwoFamilies:
    """`long` has too few tasks at level 1 to be sealed there."""

    families = (
        FamilySpec(name="long", num_levels=3, formats=("plain", "trace"), num_tasks=(100, 5_000, None)),
        FamilySpec(name="short", num_levels=1, formats=("plain",), num_tasks=(None,)),
    )

    def make(self, family: str, level: int, seed: int) -> Task:
        raise AssertionError("a plan draws no task")


def config(*overrides: str) -> RunConfig:
    words = ["budget.rollouts=1000", "gate.max_share=0.2", "evaluation.sealed_per_cell=10", *overrides]
    return config_from({"run_dir": "runs/x"}, words)


def sources() -> TaskSources:
    source: TaskSource = TwoFamilies()
    return TaskSources([source])


def test_the_budget_is_cut_into_tests_and_training() -> None:
    plan = plan_of(config("training.group_size=4", "training.groups_per_update=50"), sources())
    assert (plan.test_rollouts, plan.train_rollouts, plan.num_updates) == (200, 800, 4)


def test_only_levels_with_enough_tasks_are_sealed() -> None:
    plan = plan_of(config(), sources())
    assert plan.sealed_tasks == 10 * (2 + 1)


def test_where_no_level_has_enough_tasks_all_are_read() -> None:
    class Small(TwoFamilies):
        families = (FamilySpec(name="few", num_levels=2, formats=("plain",), num_tasks=(100, 50)),)

    source: TaskSource = Small()
    assert plan_of(config(), TaskSources([source])).sealed_tasks == 10 * 2


def test_the_vote_has_as_many_samples_as_the_rollouts_pay_for_and_no_more_than_the_cap() -> None:
    assert plan_of(config("evaluation.best_of_k=64"), sources()).vote_k == 34
    assert plan_of(config("evaluation.best_of_k=8"), sources()).vote_k == 8


@pytest.mark.parametrize(("schedule", "trains", "tests"), [("frozen", False, False), ("harness_only", False, True)])
def test_a_schedule_without_weights_makes_no_updates(schedule: str, trains: bool, tests: bool) -> None:
    plan = plan_of(config(f"schedule={schedule}", "training.groups_per_update=1"), sources())
    assert (plan.num_updates > 0, plan.test_rollouts > 0) == (trains, tests)


def test_the_plan_in_words_names_families_formats_and_the_run_folder() -> None:
    text = "\n".join(plan_lines(plan_of(config(), sources()), config()))
    for part in ("long", "levels 1–3 (2 sealed)", "plain, trace", "1,000 rollouts", "runs/x"):
        assert part in text
