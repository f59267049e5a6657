"""What judges and evolves has no way to the generator of the images that it is tested on."""

from tests.arch.source import imports, modules, under

GENERATOR = "coharness.reward.images.synthetic"


def test_nothing_that_judges_or_evolves_imports_the_generator() -> None:
    found = [
        f"{path}:{line} imports {name}"
        for path, tree in modules().items()
        if under(path, "coharness/reward") and not under(path, "coharness/reward/images/synthetic")
        for name, line in imports(tree)
        if name.startswith(GENERATOR) or (name == "coharness.reward.images" and "synthetic" in name)
    ]
    assert not found, "\n".join(found)
