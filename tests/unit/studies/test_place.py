from pathlib import Path

import pytest

from coharness.records.errors import ConfigError
from coharness.studies.place import all_studies, load_study, locate
from tests.unit.studies.toy import TOY, forget_studies, replace_in, write_study


@pytest.mark.parametrize("path", ["experiments/toy", "toy", "experiments/toy/", "experiments/toy/study.py"])
def test_a_study_is_found_with_and_without_the_folder_of_all(project: Path, path: str) -> None:
    place = locate(path)
    assert (place.root, place.name) == (project, "toy")
    assert place.module == "experiments.toy.study"
    assert load_study(place).name == "toy"


def test_an_absolute_path_brings_its_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert locate(project / "experiments" / "toy") == locate("toy", project)


def test_a_study_may_stand_one_folder_deeper(project: Path) -> None:
    write_study(project, "benchmarks/deep", TOY.replace('"toy"', '"benchmarks/deep"'), [])
    (project / "experiments" / "benchmarks" / "__init__.py").touch()
    assert [place.name for place in all_studies(project)] == ["benchmarks/deep", "toy"]
    assert load_study(locate("benchmarks/deep")).name == "benchmarks/deep"


def test_a_study_that_is_not_there_names_those_that_are(project: Path) -> None:
    with pytest.raises(ConfigError, match="studies of this project: toy"):
        locate("experiments/tyo")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("STUDY = Toy()", "", "defines no STUDY"),
        ("STUDY = Toy()", "STUDY = object()", "lacks name, question"),
        ('name: str = "toy"', 'name: str = "other"', "named 'other', expected 'toy'"),
        (
            "import numpy as np",
            "import numpy as np\nimport no_such_package",
            "'no_such_package', which is not installed",
        ),
    ],
)
def test_a_module_that_is_no_study_says_why(project: Path, old: str, new: str, message: str) -> None:
    replace_in(project / "experiments" / "toy" / "study.py", old, new)
    with pytest.raises(ConfigError, match=message):
        load_study(locate("toy"))


def test_the_study_of_another_project_is_refused(project: Path, tmp_path: Path) -> None:
    load_study(locate("toy"))
    write_study(tmp_path / "second", "toy", TOY, [])
    with pytest.raises(ConfigError, match="use a process a project"):
        load_study(locate("toy", tmp_path / "second"))
    forget_studies()
