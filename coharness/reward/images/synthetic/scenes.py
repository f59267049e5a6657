"""Scenes: a background with a few coloured shapes on a three-by-three grid, or with a sign that says a word.

Shapes are drawn with four-fold oversampling, a light of their own and grain, so that no edge and no colour is exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Protocol

import cv2
import numpy as np
import numpy.typing as npt

from coharness.reward.images.colours import PALETTE
from coharness.reward.images.pixels import Floats, Image
from coharness.reward.images.spec import PLACES

SIZE = 96
"""Pixels of a side."""
COLOURS = ("red", "green", "blue", "yellow", "purple", "orange", "cyan", "pink")
"""Colours of objects; the others are common in backgrounds."""
WORDS = (
    "OPEN", "CAFE", "HOTEL", "EXIT", "SALE", "BANK", "TAXI", "MUSIC", "PARK", "STOP", "BOOKS", "FISH", "GOLD", "MILK", "NORTH",
    "RADIO", "SOUP", "TRAIN", "WEST", "ZEBRA",
)  # fmt: skip
_PHOTOS = ("astronaut.png", "chelsea.png", "coffee.png", "hubble_deep_field.jpg", "motorcycle_left.png", "rocket.jpg",
           "brick.png", "grass.png", "gravel.png")  # fmt: skip
_OVERSAMPLING = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sprite:
    """One object."""

    shape: str
    colour: str
    place: str
    "One of PLACES."
    offset: tuple[float, float]
    "From the centre of its place, in shares of the image."
    radius: float
    "In shares of the image."
    angle: float
    "Radians."
    tint: tuple[float, float, float] = (0.0, 0.0, 0.0)
    "Added to the named colour."


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What stands where; together with a background and a seed of grain it is an image."""

    sprites: tuple[Sprite, ...]
    word: str = ""
    "What the sign says; no sign where it is empty."

    def replaced(self, index: int, sprite: Sprite | None) -> "Layout":
        """The layout with one sprite changed, or without it."""
        middle = () if sprite is None else (sprite,)
        return replace(self, sprites=(*self.sprites[:index], *middle, *self.sprites[index + 1 :]))

    @property
    def free_places(self) -> tuple[str, ...]:
        """Places without an object."""
        taken = {sprite.place for sprite in self.sprites}
        return tuple(place for place in PLACES if place not in taken)


class Backgrounds(Protocol):
    """A family of backgrounds."""

    def draw(self, rng: np.random.Generator) -> Image:
        """One background, uint8 [SIZE, SIZE, 3]."""
        ...


class DrawnBackgrounds:
    """A muted gradient of two colours with grain and, at times, soft bands."""

    def draw(self, rng: np.random.Generator) -> Image:
        """One background."""
        rows, columns = np.mgrid[0:SIZE, 0:SIZE] / (SIZE - 1)
        angle = rng.uniform(0, 2 * np.pi)
        along = (np.cos(angle) * columns + np.sin(angle) * rows + 1.5) / 3.0
        base = rng.uniform(70, 205)
        ends = np.clip(base + rng.normal(0, 16, size=(2, 3)), 40, 225)
        image = ends[0] + along[..., None] * (ends[1] - ends[0])
        if rng.random() < 0.4:
            image += 8 * np.sin(along[..., None] * rng.uniform(15, 45))
        image += rng.normal(0, rng.uniform(0.5, 3.0), size=image.shape)
        return np.asarray(np.clip(image, 0, 255), dtype=np.uint8)


class PhotoBackgrounds:
    """Crops of the photographs that come in scikit-image's wheel."""

    def draw(self, rng: np.random.Generator) -> Image:
        """One background."""
        photos = _photographs()
        photo = photos[int(rng.integers(len(photos)))]
        height, width = photo.shape[:2]
        side = int(rng.integers(min(SIZE * 2, min(height, width)), min(height, width) + 1))
        top, left = int(rng.integers(height - side + 1)), int(rng.integers(width - side + 1))
        crop = photo[top : top + side, left : left + side]
        return np.asarray(cv2.resize(crop, (SIZE, SIZE), interpolation=cv2.INTER_AREA), dtype=np.uint8)


@cache
def _photographs() -> tuple[Image, ...]:
    import skimage

    folder = Path(skimage.__file__).parent / "data"
    photos = []
    for name in _PHOTOS:
        photo = cv2.imread(str(folder / name), cv2.IMREAD_COLOR)
        if photo is None:
            raise FileNotFoundError(f"scikit-image's wheel has no readable data/{name}; install scikit-image >= 0.24")
        photos.append(np.asarray(photo[..., ::-1], dtype=np.uint8))
    return tuple(photos)


def random_layout(rng: np.random.Generator, *, word: bool) -> Layout:
    """Three to five objects, no two of the same colour, on different places; or one or two and a sign."""
    num = int(rng.integers(1, 3) if word else rng.integers(3, 6))
    places = list(rng.permutation([p for p in PLACES if not word or p not in ("left", "centre", "right")]))[:num]
    colours = list(rng.permutation(COLOURS))[:num]
    sprites = tuple(
        new_sprite(rng, shape=str(rng.choice(["circle", "square", "triangle", "star"])), colour=str(c), place=str(p))
        for c, p in zip(colours, places, strict=True)
    )
    return Layout(sprites=sprites, word=str(rng.choice(WORDS)) if word else "")


def new_sprite(rng: np.random.Generator, *, shape: str, colour: str, place: str) -> Sprite:
    """An object at a place, its size, angle and tint drawn."""
    r, g, b = rng.normal(0, 7, size=3).tolist()
    x, y = rng.uniform(-0.03, 0.03, size=2).tolist()
    angle = float(rng.uniform(-0.4, 0.4))
    return Sprite(
        shape=shape, colour=colour, place=place, offset=(x, y), radius=float(rng.uniform(0.09, 0.125)), angle=angle,
        tint=(r, g, b),
    )  # fmt: skip


def render(layout: Layout, background: Image, grain_seed: int) -> Image:
    """The image of a layout; the same grain for the same seed, so that what is not edited stays as it was."""
    image = background.astype(np.float32)
    for sprite in layout.sprites:
        cover = sprite_mask(sprite)[..., None]
        colour = np.asarray(PALETTE[sprite.colour], dtype=np.float32) + np.asarray(sprite.tint, dtype=np.float32)
        image += cover * (colour + _light_and_grain(grain_seed) - image)
    painted = np.clip(image, 0, 255).astype(np.uint8)
    return _with_sign(painted, layout.word) if layout.word else painted


@lru_cache(maxsize=8)
def _light_and_grain(seed: int) -> Floats:
    """What is added to all objects of a scene, [SIZE, SIZE, 3]: light from the top left, and grain."""
    rows, columns = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    light = 10.0 * (0.5 - rows) + 6.0 * (0.5 - columns)
    grain = np.random.default_rng(seed).normal(0, 2.0, size=(SIZE, SIZE, 3))
    return np.asarray(light[..., None] + grain, dtype=np.float32)


@lru_cache(maxsize=64)
def sprite_mask(sprite: Sprite) -> Floats:
    """Cover of each pixel in [0, 1], [SIZE, SIZE]."""
    scale = SIZE * _OVERSAMPLING
    x, y = PLACES[sprite.place]
    centre = np.array([(x + sprite.offset[0]) * scale, (y + sprite.offset[1]) * scale])
    radius = sprite.radius * scale
    canvas = np.zeros((scale, scale), np.uint8)
    if sprite.shape == "circle":
        cv2.circle(canvas, (round(centre[0]), round(centre[1])), round(radius), 255, -1)
    else:
        cv2.fillPoly(canvas, [_corners(sprite.shape, centre, radius, sprite.angle)], 255)
    return np.asarray(cv2.resize(canvas, (SIZE, SIZE), interpolation=cv2.INTER_AREA), dtype=np.float32) / 255.0


def _corners(shape: str, centre: npt.NDArray[np.float64], radius: float, angle: float) -> npt.NDArray[np.int32]:
    num, factors = {"square": (4, (1.15,)), "triangle": (3, (1.25,)), "star": (10, (1.3, 0.55))}[shape]
    turns = np.arange(num) * 2 * np.pi / num + angle - (np.pi / 4 if shape == "square" else np.pi / 2)
    lengths = radius * np.resize(np.asarray(factors), num)
    points = centre + np.stack([lengths * np.cos(turns), lengths * np.sin(turns)], axis=1)
    return np.asarray(np.round(points), dtype=np.int32)


def _with_sign(image: Image, word: str) -> Image:
    """A plate across the middle with a word on it."""
    out = image.copy()
    top, bottom = round(0.38 * SIZE), round(0.62 * SIZE)
    cv2.rectangle(out, (5, top), (SIZE - 6, bottom), (238, 236, 228), -1, cv2.LINE_AA)
    draw_text(out, word, SIZE // 2, (top + bottom) // 2, 0.62, (30, 30, 40))
    return out


def draw_text(image: Image, words: str, x: int, y: int, scale: float, colour: Sequence[float]) -> None:
    """Write words around (x, y), in place, as large as they fit up to `scale`."""
    font = cv2.FONT_HERSHEY_DUPLEX
    (width, _), _ = cv2.getTextSize(words, font, scale, 1)
    scale *= min(1.0, 0.84 * SIZE / max(width, 1))
    (width, height), _ = cv2.getTextSize(words, font, scale, 1)
    cv2.putText(image, words, (x - width // 2, y + height // 2), font, scale, tuple(colour), 1, cv2.LINE_AA)
