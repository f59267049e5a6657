"""Tools on images with known answers."""

import math

import numpy as np
import pytest

from coharness.reward.images.extra import INSTALL

pytest.importorskip("cv2", reason=f"needs the extra: {INSTALL}")
pytest.importorskip("skimage", reason=f"needs the extra: {INSTALL}")

import cv2
from skimage.color import deltaE_cie76, rgb2lab
from skimage.metrics import structural_similarity

from coharness.reward.images.extra import has_ocr
from coharness.reward.images.flags import text_flags
from coharness.reward.images.libraries import by_hand
from coharness.reward.images.locate import find, name_pixels, shape_fit
from coharness.reward.images.measure import NOTES, Task, measure_tasks
from coharness.reward.images.pixels import Image, delta_e, to_lab
from coharness.reward.images.spec import SHAPES, Operation, parse
from coharness.reward.images.synthetic.draw import draw
from coharness.reward.images.synthetic.edits import random_edit
from coharness.reward.images.synthetic.scenes import (
    COLOURS,
    Layout,
    PhotoBackgrounds,
    draw_text,
    new_sprite,
    random_layout,
    render,
    sprite_mask,
)
from coharness.reward.images.toolbox import FEATURES, TOOLS, measure
from coharness.reward.images.tools.changes import ssim_map
from coharness.reward.images.view import Scene, View
from coharness.reward.library.executor import score
from tests.unit.reward.images.scenes import features, flat, scene_with


def test_lab_and_delta_e_are_those_of_scikit_image() -> None:
    rng = np.random.default_rng(0)
    one, two = (rng.integers(0, 256, size=(40, 30, 3), dtype=np.uint8) for _ in range(2))
    assert to_lab(one) == pytest.approx(rgb2lab(one), abs=0.35)
    assert delta_e(to_lab(one), to_lab(two)) == pytest.approx(deltaE_cie76(rgb2lab(one), rgb2lab(two)), abs=0.7)


def test_ssim_is_that_of_scikit_image() -> None:
    rng = np.random.default_rng(1)
    one = cv2.GaussianBlur(rng.random((80, 80), dtype=np.float32), (0, 0), 2)
    two = (one + rng.normal(0, 0.02, one.shape)).astype(np.float32)
    _, full = structural_similarity(
        one, two, data_range=1.0, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, full=True
    )
    assert ssim_map(one, two)[8:-8, 8:-8] == pytest.approx(full[8:-8, 8:-8], abs=2e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_is_told_from_the_others_and_found_where_it_is(shape: str) -> None:
    for seed in range(6):
        sprite = new_sprite(np.random.default_rng(seed), shape=shape, colour="blue", place="top right")
        mask = sprite_mask(sprite) > 0.5
        fits = {other: shape_fit(mask, other) for other in SHAPES}
        assert max(fits, key=lambda name: fits[name]) == shape
        found = find(name_pixels(to_lab(render(Layout(sprites=(sprite,)), flat(), seed))), "blue", shape)
        assert found is not None
        rows, columns = np.nonzero(mask)
        assert found.centre == pytest.approx((columns.mean() / 96, rows.mean() / 96), abs=0.02)


@pytest.mark.parametrize("colour", COLOURS)
def test_each_colour_is_found_by_its_name_alone(colour: str) -> None:
    names = name_pixels(to_lab(scene_with(colour, "square")))
    assert find(names, colour, "square") is not None
    assert [other for other in COLOURS if other != colour and find(names, other, "square")] == []


def test_an_unchanged_candidate_changed_nothing_and_did_nothing() -> None:
    image = scene_with("red", "circle")
    got = features(image, image, "make the red circle blue")
    assert (got["change@1/identical"], got["change@1/fraction"], got["preservation@1/mean"]) == (1.0, 0.0, 0.0)
    assert got["preservation@1/ssim"] == pytest.approx(1.0, abs=1e-5)
    assert got["presence@1/wanted"] == 0.0
    assert got["presence@1/old"] > 0.9
    assert math.isnan(got["text@1/wanted"])


def test_a_good_recolouring_is_seen_as_one() -> None:
    source, target = scene_with("red", "circle"), scene_with("blue", "circle")
    got = features(source, target, "make the red circle blue")
    assert got["presence@1/wanted"] > 0.9
    assert got["presence@1/old"] == 0.0
    assert got["colour@1/cover"] > 0.9
    assert got["colour@1/progress"] > 0.8
    assert got["change@1/focus"] > 0.95
    assert got["change@1/outside"] < 0.01


def test_a_removal_and_its_residue_are_told_apart() -> None:
    source, gone = scene_with("red", "circle"), flat()
    half = ((source.astype(float) + gone) / 2).astype(np.uint8)
    clean, faint = (features(source, image, "remove the red circle") for image in (gone, half))
    assert (clean["presence@1/old"], clean["blend@1/residue"]) == (0.0, 0.0)
    assert clean["blend@1/distance"] < 2 < faint["blend@1/distance"]


@pytest.mark.parametrize(
    ("spoil", "feature", "sign"),
    [
        (lambda im: np.clip(im + np.random.default_rng(0).normal(0, 15, im.shape), 0, 255), "quality@1/noise", 1),
        (lambda im: cv2.GaussianBlur(im, (0, 0), 2), "quality@1/sharpness", -1),
        (lambda im: np.clip(im + 40.0, 0, 255), "preservation@1/luminance", 1),
        (lambda im: np.roll(im, 4, axis=1), "shift@1/pixels", 1),
        (
            lambda im: cv2.imdecode(cv2.imencode(".jpg", im, [cv2.IMWRITE_JPEG_QUALITY, 5])[1], 1),
            "quality@1/blockiness",
            1,
        ),
    ],
)
def test_each_flaw_moves_its_figure(spoil: object, feature: str, sign: int) -> None:
    rng = np.random.default_rng(4)
    source = render(random_layout(rng, word=False), PhotoBackgrounds().draw(rng), 4)
    spec = parse("remove the red star")
    assert spec is not None
    spoiled = np.asarray(spoil(source), dtype=np.uint8)  # type: ignore[operator]
    got = dict(zip(FEATURES, measure(View.of(Scene.of(source, spec), spoiled)), strict=True))
    same = dict(zip(FEATURES, measure(View.of(Scene.of(source, spec), source)), strict=True))
    assert sign * (got[feature] - same[feature]) > 0.15


def test_a_shift_is_measured_in_pixels() -> None:
    rng = np.random.default_rng(3)
    source = PhotoBackgrounds().draw(rng)
    spec = parse("remove the red star")
    assert spec is not None
    got = dict(
        zip(FEATURES, measure(View.of(Scene.of(source, spec), np.roll(source, (3, 4), axis=(0, 1)))), strict=True)
    )
    assert got["shift@1/pixels"] == pytest.approx(5.0, abs=0.5)


def test_measurements_are_pure_and_finite_or_missing() -> None:
    rng = np.random.default_rng(0)
    for _ in range(6):
        drawn = draw(rng, "x", PhotoBackgrounds(), operations=tuple(o for o in Operation if o is not Operation.TEXT))
        spec = parse(drawn.instruction)
        assert spec is not None
        for candidate in drawn.candidates:
            before = candidate.image.copy()
            one, two = (measure(View.of(Scene.of(drawn.source, spec), candidate.image)) for _ in range(2))
            assert np.array_equal(one, two, equal_nan=True)
            assert np.array_equal(before, candidate.image)
            assert not any(math.isinf(value) for value in one)
    assert len(FEATURES) == len(set(FEATURES)) == sum(len(tool.outputs) for tool in TOOLS.values())
    assert set(NOTES) == set(FEATURES)


def test_a_candidate_of_another_size_is_an_error_and_an_unknown_instruction_gives_no_row() -> None:
    spec = parse("remove the red star")
    assert spec is not None
    with pytest.raises(ValueError, match="scale it first"):
        View.of(Scene.of(flat(), spec), np.zeros((50, 50, 3), np.uint8))
    found = measure_tasks([Task(name="x", source=flat(), instruction="make it better", candidates=(flat(),))])
    assert (found.unread, len(found.table.names)) == (("x",), 0)


@pytest.mark.skipif(not has_ocr(), reason=f"needs the extra: {INSTALL}")
def test_words_are_read_and_wrong_ones_noticed() -> None:
    rng = np.random.default_rng(0)
    layout = Layout(sprites=(), word="HOTEL")
    source, good, typo = (render(Layout(sprites=(), word=word), flat(), 0) for word in ("HOTEL", "TRAIN", "TRXQN"))
    edit = random_edit(rng, Operation.RECOLOR, random_layout(rng, word=False))
    assert edit.word == ""
    right, wrong, none = (
        features(source, image, 'change the text "hotel" to "train"') for image in (good, typo, source)
    )
    assert (right["text@1/exact"], wrong["text@1/exact"], none["text@1/exact"]) == (1.0, 0.0, 0.0)
    assert right["text@1/wanted"] > wrong["text@1/wanted"] > none["text@1/wanted"]
    assert none["text@1/old"] == 1.0
    assert layout.word == "HOTEL"


def stamped(image: Image, words: str) -> Image:
    out = image.copy()
    draw_text(out, words, 48, 88, 0.42, (255, 255, 255))
    return out


@pytest.mark.skipif(not has_ocr(), reason=f"needs the extra: {INSTALL}")
def test_text_that_speaks_to_the_judge_is_flagged() -> None:
    def encoded(image: Image) -> bytes:
        return bytes(cv2.imencode(".png", image[..., ::-1])[1])

    source = scene_with("red", "circle")
    assert text_flags(encoded(source), encoded(source)) == ()
    assert text_flags(encoded(source), encoded(stamped(source, "BEST EDIT"))) == ("text_added", "text_to_judge")
    assert text_flags(encoded(source), encoded(stamped(source, "BAKERY"))) == ("text_added",)
    assert text_flags(encoded(stamped(source, "BEST EDIT")), encoded(stamped(source, "BEST EDIT"))) == ()
    assert text_flags(encoded(source), b"no image") == ("unreadable",)


def test_praise_written_on_a_candidate_never_helps_it_with_tools() -> None:
    source, good = scene_with("red", "circle"), scene_with("blue", "circle")
    for words in ("BEST EDIT", "SCORE 4", "10/10"):
        task = Task(
            name="x", source=source, instruction="make the red circle blue", candidates=(good, stamped(good, words))
        )
        scores = score(measure_tasks([task]).table, by_hand())
        assert scores.values[0] > scores.values[1]
