"""Images with known contents, for tests of what is measured on them."""

import numpy as np
import pytest

from coharness.reward.images.extra import INSTALL

pytest.importorskip("cv2", reason=f"needs the extra: {INSTALL}")
pytest.importorskip("skimage", reason=f"needs the extra: {INSTALL}")

from coharness.reward.images.pixels import Image
from coharness.reward.images.spec import parse
from coharness.reward.images.synthetic.scenes import Layout, new_sprite, render
from coharness.reward.images.toolbox import FEATURES, measure
from coharness.reward.images.view import Scene, View


def flat(value: int = 120) -> Image:
    return np.full((96, 96, 3), value, dtype=np.uint8)


def scene_with(colour: str, shape: str, place: str = "centre", seed: int = 0) -> Image:
    sprite = new_sprite(np.random.default_rng(seed), shape=shape, colour=colour, place=place)
    return render(Layout(sprites=(sprite,)), flat(), seed)


def features(source: Image, candidate: Image, instruction: str) -> dict[str, float]:
    spec = parse(instruction)
    assert spec is not None
    return dict(zip(FEATURES, measure(View.of(Scene.of(source, spec), candidate)), strict=True))
