"""Files of images, and the generator of demonstrations."""

import io

import numpy as np
import pytest

from coharness.reward.images.extra import INSTALL

pytest.importorskip("cv2", reason=f"needs the extra: {INSTALL}")
pytest.importorskip("skimage", reason=f"needs the extra: {INSTALL}")

from PIL import Image as Pillow

from coharness.reward.images.media import MediaRejected, decode_image
from coharness.reward.images.spec import Operation, parse
from coharness.reward.images.synthetic.draw import draw
from coharness.reward.images.synthetic.edits import random_edit
from coharness.reward.images.synthetic.faults import Fault, Worth, make
from coharness.reward.images.synthetic.scenes import (
    DrawnBackgrounds,
    random_layout,
    render,
)

# Media --------------------------------------------------------------------------------------------------------------


def png(width: int, height: int, mode: str = "RGB", kind: str = "PNG", **more: object) -> bytes:
    out = io.BytesIO()
    Pillow.new(mode, (width, height)).save(out, kind, **more)
    return out.getvalue()


def test_an_image_is_opened_only_where_its_header_allows() -> None:
    assert decode_image(png(32, 20), "x").shape == (20, 32, 3)
    assert decode_image(png(32, 20, "LA"), "x")[0, 0].tolist() == [255, 255, 255]  # nothing over white
    assert decode_image(png(32, 20, "CMYK", "JPEG"), "x").shape == (20, 32, 3)
    assert decode_image(png(32, 20, "I;16"), "x").dtype == np.uint8
    for data in (png(5000, 4000, "1"), png(20000, 20000, "1"), png(8, 8), png(40, 40, kind="TIFF"), png(40, 40, "P", "GIF"),
                 b"<svg xmlns='x'/>", b"", png(64, 64)[:60], png(400, 400, kind="JPEG")[:500]):  # fmt: skip
        with pytest.raises(MediaRejected):
            decode_image(data, "x")


# Generator ----------------------------------------------------------------------------------------------------------


def test_what_is_drawn_is_understood_and_a_function_of_the_seed() -> None:
    for seed in range(12):
        one, two = (
            draw(np.random.default_rng(seed), "x", DrawnBackgrounds(), operations=tuple(Operation)) for _ in range(2)
        )
        spec = parse(one.instruction)
        assert spec is not None
        assert spec.operation is one.operation
        assert np.array_equal(one.source, two.source)
        for a, b in zip(one.candidates, two.candidates, strict=True):
            assert np.array_equal(a.image, b.image)
            assert (a.worth, a.faults) == (b.worth, b.faults)
            assert 0.0 <= a.worth.total <= 1.12 + 1e-9


@pytest.mark.parametrize("operation", [o for o in Operation if o is not Operation.TEXT])
def test_graver_faults_are_worth_less_and_a_faultless_candidate_most(operation: Operation) -> None:
    rng = np.random.default_rng(0)
    layout = random_layout(rng, word=False)
    edit = random_edit(rng, operation, layout)
    background = DrawnBackgrounds().draw(rng)
    source = render(layout, background, 0)

    def worth(*faults: tuple[Fault, float]) -> float:
        return make(edit, source, background, 0, faults, np.random.default_rng(0)).worth.total

    assert worth() == Worth().total == pytest.approx(1.12)
    assert worth((Fault.NO_OP, 0.5)) < 0.2
    for fault in (Fault.HALF_DONE, Fault.TINT, Fault.NOISE, Fault.BLUR, Fault.BLOCKS, Fault.SHIFT):
        assert worth() > worth((fault, 0.2)) > worth((fault, 0.9)) > worth((Fault.NO_OP, 0.5))
    assert np.array_equal(make(edit, source, background, 0, ((Fault.NO_OP, 1.0),), rng).image, source)
