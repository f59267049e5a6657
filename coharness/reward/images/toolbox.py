"""All tools by name and version, and the features of a candidate.

A feature is named `tool@version/output`, such as `preservation@1/ssim`; a library names features by that, so that a tool whose
meaning changes gets another version and no criterion is silently about something else.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from coharness.reward.images.tools import changes, objects, quality, text
from coharness.reward.images.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool: a pure function of a view."""

    name: str
    version: int
    about: str
    "One sentence for people and for a model that may call it."
    outputs: tuple[str, ...]
    function: Callable[[View], Mapping[str, float]]

    @property
    def ref(self) -> str:
        """`name@version`."""
        return f"{self.name}@{self.version}"

    @property
    def features(self) -> tuple[str, ...]:
        """Full names of what it gives."""
        return tuple(f"{self.ref}/{output}" for output in self.outputs)


_ALL = (
    Tool(
        name="change", version=1, function=changes.change,
        about="Shares of pixels that changed, inside and outside of the region that the instruction concerns.",
        outputs=("fraction", "inside", "outside", "pieces_outside", "focus", "identical"),
    ),
    Tool(
        name="preservation", version=1, function=changes.preservation,
        about="How far everything that the instruction does not concern stayed as it was.",
        outputs=("mean", "worst", "ssim", "histogram", "luminance", "colour_cast"),
    ),
    Tool(
        name="shift", version=1, function=changes.shift,
        about="Displacement of the surroundings in pixels.",
        outputs=("pixels", "response"),
    ),
    Tool(
        name="colour", version=1, function=objects.colour,
        about="Whether the object has the colour that is asked for.",
        outputs=("error", "progress", "cover", "evenness"),
    ),
    Tool(
        name="presence", version=1, function=objects.presence,
        about="Whether the wanted object is at its place, and the old one gone.",
        outputs=("wanted", "anywhere", "place_error", "growth", "old"),
    ),
    Tool(
        name="blend", version=1, function=objects.blend,
        about="Whether the place that an object left looks like what is around it.",
        outputs=("distance", "residue", "texture"),
    ),
    Tool(
        name="others", version=1, function=objects.others,
        about="Objects that the instruction does not mention: lost, recoloured, gained.",
        outputs=("lost", "recoloured", "gained"),
    ),
    Tool(
        name="quality", version=1, function=quality.quality,
        about="Noise, blur, blocks, clipping and saturation beside the source.",
        outputs=("noise", "sharpness", "blockiness", "clipping", "saturation"),
    ),
    Tool(
        name="edges", version=1, function=quality.edges,
        about="Whether contours are where they were.",
        outputs=("similarity", "density"),
    ),
    Tool(
        name="overlay", version=1, function=quality.overlay,
        about="Marks along the border that the source has not.",
        outputs=("rim", "strokes"),
    ),
    Tool(
        name="text", version=1, function=text.text,
        about="What is written in the image beside what is asked for.",
        outputs=("wanted", "exact", "old", "score"),
    ),
)  # fmt: skip

TOOLS: Mapping[str, Tool] = MappingProxyType({tool.ref: tool for tool in _ALL})
"""`name@version` -> tool."""
FEATURES: tuple[str, ...] = tuple(feature for tool in _ALL for feature in tool.features)
"""All features in the order of a row of measurements."""


def measure(view: View) -> tuple[float, ...]:
    """All features of a candidate, in the order of `FEATURES`; NaN where a tool cannot tell."""
    row: list[float] = []
    for tool in _ALL:
        given = tool.function(view)
        row += [float(given[output]) for output in tool.outputs]
    return tuple(value if math.isfinite(value) else math.nan for value in row)
