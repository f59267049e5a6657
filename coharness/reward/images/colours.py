"""Colours by name: what a word in an instruction means, as sRGB."""

from typing import TypeAlias

RGB: TypeAlias = tuple[int, int, int]

PALETTE: dict[str, RGB] = {
    "red": (214, 45, 45),
    "green": (50, 160, 70),
    "blue": (45, 85, 214),
    "yellow": (240, 212, 50),
    "purple": (140, 60, 188),
    "orange": (240, 132, 35),
    "cyan": (45, 190, 202),
    "pink": (240, 135, 180),
    "brown": (125, 75, 40),
    "black": (25, 25, 25),
    "white": (245, 245, 245),
    "grey": (128, 128, 128),
}
"""The centre of what each word is used for; tools allow for distance around it."""

ALIASES = {"gray": "grey", "violet": "purple", "magenta": "pink", "turquoise": "cyan", "teal": "cyan"}
"""Other words for them."""
