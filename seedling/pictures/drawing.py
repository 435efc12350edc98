"""Draws what a caption says: 64 x 64 pixels, with a place, a size and colours that vary a little."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from pictures.captions import Scene

Pixels = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]

SIDE = 64
PALETTE: dict[str, Colour] = {
    "red": (220, 40, 40),
    "orange": (245, 140, 20),
    "yellow": (250, 220, 40),
    "green": (40, 160, 60),
    "blue": (40, 90, 220),
    "purple": (150, 60, 190),
}
BROWN: Colour = (110, 75, 45)
GREYS = {"white": 245, "gray": 150, "black": 25}

_SCALE = 4  # drawn this many times as large, then averaged
_HEIGHT = 46.0  # pixels
_COLOUR_JITTER, _GREY_JITTER = 10, 6
# Little: in a few steps a network comes to the mean of what a prompt may show, and that is to be sharp.
_HEIGHT_JITTER, _PLACE_JITTER = 0.04, 1.5


def draw(scene: Scene, rng: random.Random | None = None) -> Pixels:
    """A picture: uint8 [64, 64, 3].

    Args:
        scene: What it shows.
        rng: Varies place, size and colours; None: in the middle, in the plain colours.
    """
    vary = rng or _Middle()
    grey = GREYS[scene.background or "white"] + round(vary.uniform(-1, 1) * _GREY_JITTER)
    height = _HEIGHT * (1 + vary.uniform(-1, 1) * _HEIGHT_JITTER)
    left, top = ((SIDE - height) / 2 + vary.uniform(-1, 1) * _PLACE_JITTER for _ in range(2))
    image = Image.new("RGB", (SIDE * _SCALE, SIDE * _SCALE), (grey, grey, grey))
    pen = _Pen(ImageDraw.Draw(image), left * _SCALE, top * _SCALE, height * _SCALE)
    colour = _jittered(PALETTE[scene.colour], vary)
    if scene.pot:
        pot = _jittered(PALETTE[scene.pot], vary)
        _tree(pen, colour, _jittered(BROWN, vary), 0.62, 0.78)
        _pot(pen, pot, 0.66, 0.28)
    elif scene.shape == "tree":
        _tree(pen, colour, _jittered(BROWN, vary), 0.8, 1.0)
    else:
        _SIMPLE[scene.shape](pen, colour)
    return np.asarray(image.reduce(_SCALE))


class _Middle(random.Random):
    """Varies nothing."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def _jittered(colour: Colour, rng: random.Random) -> Colour:
    r, g, b = (min(255, max(0, round(c + rng.uniform(-1, 1) * _COLOUR_JITTER))) for c in colour)
    return r, g, b


class _Pen:
    """Draws in a square whose sides are 1.

    Args:
        canvas: Of Pillow.
        left, top: Of the square, in its pixels.
        side: Of the square.
    """

    def __init__(self, canvas: ImageDraw.ImageDraw, left: float, top: float, side: float) -> None:
        self._canvas, self._left, self._top, self._side = canvas, left, top, side

    def polygon(self, points: list[tuple[float, float]], colour: Colour) -> None:
        self._canvas.polygon([self._at(x, y) for x, y in points], fill=colour)

    def circle(self, x: float, y: float, radius: float, colour: Colour) -> None:
        corners = self._at(x - radius, y - radius), self._at(x + radius, y + radius)
        self._canvas.ellipse(corners, fill=colour)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return self._left + x * self._side, self._top + y * self._side


def _circle(pen: _Pen, colour: Colour) -> None:
    pen.circle(0.5, 0.5, 0.5, colour)


def _square(pen: _Pen, colour: Colour) -> None:
    pen.polygon([(0.04, 0.04), (0.96, 0.04), (0.96, 0.96), (0.04, 0.96)], colour)


def _triangle(pen: _Pen, colour: Colour) -> None:
    pen.polygon([(0.5, 0.02), (1.0, 0.94), (0.0, 0.94)], colour)


def _star(pen: _Pen, colour: Colour) -> None:
    radii = (0.54, 0.22)
    turns = [math.pi * n / 5 for n in range(10)]
    points = [
        (0.5 + radii[n % 2] * math.sin(t), 0.53 - radii[n % 2] * math.cos(t))
        for n, t in enumerate(turns)
    ]
    pen.polygon(points, colour)


def _heart(pen: _Pen, colour: Colour) -> None:
    turns = [2 * math.pi * n / 64 for n in range(64)]
    points = [
        (
            0.5 + math.sin(t) ** 3 * 0.5,
            0.45 - (13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)) / 32,
        )
        for t in turns
    ]  # fmt: skip
    pen.polygon(points, colour)


def _pot(pen: _Pen, colour: Colour, top: float, height: float) -> None:
    """A rim, and a body that narrows downwards."""
    half, rim = min(0.5, 0.85 * height), top + 0.25 * height
    bottom = top + height
    pen.polygon(
        [(0.5 - half, top), (0.5 + half, top), (0.5 + half, rim), (0.5 - half, rim)], colour
    )
    upper, lower = 0.85 * half, 0.55 * half
    body = [(0.5 - upper, rim), (0.5 + upper, rim), (0.5 + lower, bottom), (0.5 - lower, bottom)]
    pen.polygon(body, colour)


def _tree(pen: _Pen, colour: Colour, bark: Colour, crown: float, foot: float) -> None:
    """A crown of three balls, ``crown`` high, on a trunk that ends at ``foot``."""
    pen.polygon([(0.45, 0.5 * crown), (0.55, 0.5 * crown), (0.57, foot), (0.43, foot)], bark)
    pen.circle(0.5 - 0.33 * crown, 0.62 * crown, 0.28 * crown, colour)
    pen.circle(0.5 + 0.33 * crown, 0.62 * crown, 0.28 * crown, colour)
    pen.circle(0.5, 0.36 * crown, 0.36 * crown, colour)


_SIMPLE: dict[str, Callable[[_Pen, Colour], None]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "heart": _heart,
    "pot": lambda pen, colour: _pot(pen, colour, 0.1, 0.8),
}
