"""Says by pixels what a picture shows: by outline and colours. Nothing in it is learnt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pictures.captions import POTTED, SHAPES, Scene
from pictures.drawing import BROWN, GREYS, PALETTE, draw

Pixels = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_CONTRAST = 48  # levels of the strongest channel between background and what lies on it
_FEWEST_PIXELS = 60
_COLOUR_DISTANCE = 80  # from the plain colour, of levels in three channels
_BOX = 32  # outlines are compared at this size
_LEAST_OVERLAP = 0.7  # of the outline with that of the most similar shape
_CROWN, _POT = slice(0, 14), slice(23, 32)  # rows of the box of a potted tree


@dataclass(frozen=True)
class Seen:
    """What is in a picture; None: nothing clear.

    Attributes:
        shape: As of a scene.
        colour: Of the shape, of a tree's crown.
        pot: Colour of the pot under a tree.
        background: Its shade.
    """

    shape: str | None
    colour: str | None
    pot: str | None
    background: str

    def is_of(self, scene: Scene) -> bool:
        """Whether shape and colours are right."""
        return (self.shape, self.colour, self.pot) == (scene.shape, scene.colour, scene.pot)


def seen(picture: Pixels) -> Seen:
    """Looks at a picture: uint8 [h, w, 3]."""
    edge = np.concatenate([picture[0], picture[-1], picture[:, 0], picture[:, -1]])
    shade = np.median(edge, axis=0)
    background = min(GREYS, key=lambda name: abs(GREYS[name] - float(shade.mean())))
    mask = np.abs(picture - shade).max(axis=2) > _CONTRAST
    if mask.sum() < _FEWEST_PIXELS:
        return Seen(None, None, None, background)
    shape = _shape(_boxed(mask))
    if shape is None:
        return Seen(None, None, None, background)
    # Pixels at an edge are mixed with what lies behind it.
    inside = _boxed(mask, _eroded(mask))
    colours = _boxed(mask, picture)
    if shape == POTTED:
        return Seen(
            shape,
            _colour(colours[_CROWN], inside[_CROWN]),
            _colour(colours[_POT], inside[_POT]),
            background,
        )
    if shape == "tree":
        return Seen(shape, _colour(colours[_CROWN], inside[_CROWN]), None, background)
    return Seen(shape, _colour(colours, inside), None, background)


def _boxed(mask: Mask, values: Any = None) -> Any:
    """``values``, or the mask, in the box around the mask, stretched to ``_BOX`` pixels a side."""
    rows, cols = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    y, x = (
        (lines[0] + (np.arange(_BOX) + 0.5) * (lines[-1] + 1 - lines[0]) / _BOX).astype(int)
        for lines in (rows, cols)
    )
    return (mask if values is None else values)[y][:, x]


def _eroded(mask: Mask) -> Mask:
    padded = np.pad(mask, 1)
    return mask & padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]


def _shape(box: Mask) -> str | None:
    overlap = {name: _overlap(box, of) for name, of in _OUTLINES.items()}
    best = max(overlap, key=lambda name: overlap[name])
    return best if overlap[best] >= _LEAST_OVERLAP else None


def _overlap(a: Mask, b: Mask) -> float:
    return float((a & b).sum() / (a | b).sum())


def _colour(pixels: Pixels, mask: Mask) -> str | None:
    """The colour that most pixels clearly have; bark is no colour."""
    known = {**PALETTE, "brown": BROWN}
    chosen = pixels[mask].astype(float)
    if not len(chosen):
        return None
    distance = np.linalg.norm(chosen[:, None] - np.array(list(known.values())), axis=2)
    nearest = distance.argmin(axis=1)
    leaves = nearest < len(PALETTE)
    clear = leaves & (distance.min(axis=1) <= _COLOUR_DISTANCE)
    counts = np.bincount(nearest[clear], minlength=len(PALETTE))
    return list(PALETTE)[counts.argmax()] if counts.max() > leaves.sum() / 2 else None


def _outlines() -> dict[str, Mask]:
    """Of every shape, drawn in the middle of a black picture."""
    scenes = [Scene(s, "yellow", background="black") for s in SHAPES]
    scenes.append(Scene(POTTED, "yellow", "yellow", "black"))
    drawn = {s.shape: draw(s).max(axis=2) > GREYS["black"] + _CONTRAST for s in scenes}
    return {name: _boxed(mask) for name, mask in drawn.items()}


_OUTLINES = _outlines()
