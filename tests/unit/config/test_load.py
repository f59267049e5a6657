from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.config.load import config_from, dump_config, load_config
from coharness.config.schema import BuiltinTasks, JsonlTasks, PythonTasks, RunConfig, Schedule
from coharness.records.errors import ConfigError


def write(folder: Path, text: str, name: str = "run.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def message_of(data: dict[str, object], *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config_from({"run_dir": "runs/x", **data}, overrides)
    return str(caught.value)


def test_an_almost_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "run_dir: runs/x\n"))
    assert config == RunConfig(run_dir=str(Path.cwd() / "runs/x"))


def test_a_mapping_in_a_file_keeps_the_defaults_beside_it(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "run_dir: x\nbudget: {rollouts: 100}\n"))
    assert (config.budget.rollouts, config.budget.minutes) == (100, 60.0)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"populaton": {}}, "populaton: unknown key; did you mean population?"),
        ({"budget": {"rollout": 3}}, "budget.rollout: unknown key; did you mean budget.rollouts?"),
        ({"policy": {"lora": {"ranks": 3}}}, "policy.lora.ranks: unknown key; did you mean policy.lora.rank?"),
        (
            {"tasks": [{"type": "builtin", "max_levels": 3}]},
            "tasks.0.max_levels: unknown key; did you mean tasks.0.max_level?",
        ),
        ({"num_policies": 3}, "num_policies: unknown key here; did you mean population.num_policies?"),
        ({"population": {"zzz": 3}}, "population.zzz: unknown key; known here: num_harnesses, num_policies"),
    ],
)
def test_an_unknown_key_is_named_with_its_path_and_what_was_meant(data: dict[str, object], expected: str) -> None:
    assert message_of(data) == f"the config: {expected}"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"budget": {"rollouts": "many"}}, 'budget.rollouts: got "many" (text), expected an integer'),
        ({"budget": {"minutes": -1}}, "budget.minutes: got -1, expected > 0"),
        ({"training": {"group_size": 1.5}}, "training.group_size: got 1.5, expected an integer"),
        ({"training": {"learning_rate": "fast"}}, 'training.learning_rate: got "fast" (text), expected a list'),
        ({"gate": 3}, "gate: got 3, expected a mapping of keys to values"),
        ({"harness": {"format": 3}}, "harness.format: got 3, expected text"),
        (
            {"harness": {"sampling": {"learnability": "x"}}},
            'harness.sampling.learnability: got "x" (text), expected a number',
        ),
        ({"schedule": "asnyc"}, "did you mean async?"),
        ({"tasks": [{"type": "builtn"}]}, 'tasks.0.type: got "builtn" (text), expected one of builtin, jsonl'),
        ({"tasks": [{"max_level": 2}]}, "tasks.0.type: missing"),
        ({"tasks": [{"type": "jsonl", "path": "x"}]}, "tasks.0.family: missing"),
        ({"budget": {"minutes": float("nan")}}, "budget.minutes: not a finite number"),
        ({"training": {"weight_decay": float("inf")}}, "training.weight_decay: not a finite number"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_got_and_expected(data: dict[str, object], expected: str) -> None:
    assert expected in message_of(data)


def test_all_mistakes_of_a_file_stand_in_one_message_a_line_each(tmp_path: Path) -> None:
    path = write(tmp_path, "run_dir: x\nbudgt: {}\nbudget: {rollouts: 0, minutes: soon}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    first, *lines = str(caught.value).splitlines()
    assert first == f"{path}: 3 mistakes"
    assert {line.strip().partition(":")[0] for line in lines} == {"budgt", "budget.rollouts", "budget.minutes"}


def test_settings_that_contradict_each_other_fail_with_both_names() -> None:
    message = message_of({"training": {"max_staleness": 0}})
    assert "training.max_staleness=0" in message
    assert "schedule=async" in message


def test_the_run_folder_must_be_named() -> None:
    with pytest.raises(ConfigError, match="run_dir: missing"):
        config_from({})


def test_a_key_that_stands_twice_is_an_error_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"line 3.*'seed' stands twice"):
        load_config(write(tmp_path, "run_dir: x\nseed: 1\nseed: 2\n"))


@pytest.mark.parametrize("text", ["- a\n- b\n", "just words\n", "a: [1\n", "a: !!python/object:os.system {}\n"])
def test_a_file_that_is_no_mapping_of_plain_values_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"run\.yaml"):
        load_config(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        load_config(tmp_path / "nowhere.yaml")


def test_overrides_merge_into_mappings_and_replace_lists(tmp_path: Path) -> None:
    text = "run_dir: x\nbudget: {rollouts: 5, minutes: 2}\ntasks: [{type: builtin, max_level: 3}, {type: builtin}]\n"
    config = load_config(write(tmp_path, text), ["budget={minutes: 9}", "tasks=[{type: builtin, max_level: 4}]"])
    assert (config.budget.rollouts, config.budget.minutes) == (5, 9.0)
    assert config.tasks == (BuiltinTasks(max_level=4),)


def test_both_spellings_of_an_override_mean_the_same() -> None:
    spellings = [
        ["population.num_policies=4"],
        ["--population.num_policies", "4"],
        ["--population.num-policies", "4"],
        ["--population.num-policies=4"],
    ]
    configs = [config_from({"run_dir": "x"}, words) for words in spellings]
    assert {config.population.num_policies for config in configs} == {4}


def test_a_number_in_a_path_is_a_place_in_a_list() -> None:
    data = {"run_dir": "x", "tasks": [{"type": "builtin"}, {"type": "builtin"}]}
    config = config_from(data, ["tasks.1.max_level=2"])
    assert [source.max_level for source in config.tasks if isinstance(source, BuiltinTasks)] == [8, 2]


def test_values_are_read_as_yaml() -> None:
    words = [
        "schedule=randomized",
        "training.learning_rate=[2e-4, 1e-3]",
        "harness.format=null",
        "policy.lora.use_rslora=true",
    ]
    config = config_from({"run_dir": "x"}, words)
    assert config.schedule is Schedule.RANDOMIZED
    assert config.training.learning_rate == (2e-4, 1e-3)
    assert config.harness.format is None
    assert config.policy.lora.use_rslora is True


def test_the_later_of_two_overrides_wins() -> None:
    assert config_from({"run_dir": "x"}, ["seed=1", "seed=2"]).seed == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["seed"], "'seed' is no override"),
        (["--seed"], "--seed has no value"),
        (["=3"], "names no key"),
        (["budget..rollouts=3"], "names no key"),
        (["tasks=[1"], "no YAML"),
        (["tasks.7.max_level=3"], "list of 1"),
        (["tasks.first.max_level=3"], "'first' is no place"),
        (["seed.deep=3"], "seed is the value 0"),
        (["budget.rolouts=3"], "did you mean budget.rollouts?"),
    ],
)
def test_a_wrong_override_is_named(words: list[str], expected: str) -> None:
    assert expected in message_of({"seed": 0, "tasks": [{"type": "builtin"}]}, *words)


def test_overrides_leave_the_data_they_are_laid_over_unchanged() -> None:
    data = {"run_dir": "x", "budget": {"rollouts": 5}, "tasks": [{"type": "builtin", "max_level": 2}]}
    config_from(data, ["budget.rollouts=7", "tasks.0.max_level=3"])
    assert data == {"run_dir": "x", "budget": {"rollouts": 5}, "tasks": [{"type": "builtin", "max_level": 2}]}


def test_inputs_are_looked_for_beside_the_config_then_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs, here = tmp_path / "configs", tmp_path / "here"
    configs.mkdir()
    here.mkdir()
    (configs / "both.jsonl").touch()
    (here / "both.jsonl").touch()
    (here / "mine.py").touch()
    monkeypatch.chdir(here)
    path = write(
        configs,
        "run_dir: runs/x\npolicy: {base: ./model}\n"
        "tasks: [{type: jsonl, path: both.jsonl, family: f}, {type: python, path: 'mine.py:make'}]\n",
    )
    config = load_config(path)
    rows, mine = config.tasks
    assert isinstance(rows, JsonlTasks)
    assert isinstance(mine, PythonTasks)
    assert rows.path == str(configs / "both.jsonl")
    assert mine.path == f"{here / 'mine.py'}:make"
    assert config.policy.base == str(configs / "model")
    assert config.run_dir == str(here / "runs/x")


def test_names_of_bases_are_no_paths(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    assert load_config(write(tmp_path, "run_dir: x\npolicy: {base: tiny}\n")).policy.base == "tiny"


def test_a_python_source_without_a_function_is_refused() -> None:
    assert "path/to/file.py:function" in message_of({"tasks": [{"type": "python", "path": "mine.py"}]})


numbers = st.floats(min_value=1e-12, max_value=1e12)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**40), st.integers(1, 10**9), numbers, numbers, st.sampled_from(Schedule),
    st.dictionaries(st.text(min_size=1), numbers, max_size=3), st.none() | st.lists(st.text(), max_size=3),
)  # fmt: skip
def test_a_dumped_config_loads_to_the_same_config(
    seed: int, rollouts: int, minutes: float, decay: float, schedule: Schedule,
    sampling: dict[str, float], formats: list[str] | None,
) -> None:  # fmt: skip
    data = {
        "run_dir": "runs/x",
        "seed": seed,
        "schedule": schedule.value,
        "budget": {"rollouts": rollouts, "minutes": minutes},
        "training": {"weight_decay": decay},
        "harness": {"sampling": sampling, "formats": formats},
        "tasks": [{"type": "builtin"}, {"type": "jsonl", "path": "/x/rows.jsonl", "family": "f"}],
    }
    config = config_from(data)
    assert config_from(yaml.safe_load(dump_config(config))) == config
