"""The captions that the picture model learns: a shape or a potted tree, by colour and background."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product

COLOURS = ("red", "orange", "yellow", "green", "blue", "purple")
SHAPES = ("circle", "square", "triangle", "star", "heart", "tree", "pot")
POTTED = "potted tree"
BACKGROUNDS = (None, "white", "gray", "black")


@dataclass(frozen=True)
class Scene:
    """What a caption says.

    Attributes:
        shape: One of ``SHAPES``, or ``POTTED``.
        colour: Of the shape; of the tree's crown.
        pot: Colour of the pot of a potted tree, else None.
        background: None: white.
    """

    shape: str
    colour: str
    pot: str | None = None
    background: str | None = None

    @property
    def caption(self) -> str:
        """Such as "a green tree in a red pot on a gray background"."""
        thing = f"{self.colour} {'tree' if self.pot else self.shape}"
        text = _with_article(thing)
        if self.pot:
            text += f" in {_with_article(self.pot)} pot"
        return f"{text} on a {self.background} background" if self.background else text

    @property
    def held_out(self) -> bool:
        """Whether the pair of shape and colour, or of tree and pot, is kept out of the training."""
        colour = COLOURS.index(self.colour)
        if self.pot:
            return (colour - COLOURS.index(self.pot)) % len(COLOURS) == 1
        return colour == SHAPES.index(self.shape) % len(COLOURS)


def _with_article(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def all_scenes() -> list[Scene]:
    """Every caption once."""
    kinds: list[tuple[str, str, str | None]] = [(s, c, None) for s, c in product(SHAPES, COLOURS)]
    kinds += [(POTTED, c, p) for c, p in product(COLOURS, COLOURS)]
    return [Scene(*kind, background) for kind, background in product(kinds, BACKGROUNDS)]


def training_scenes(count: int, seed: int) -> list[Scene]:
    """Captions to learn from, half of them potted trees; none is held out.

    Args:
        count: How many.
        seed: Chooses them.
    """
    rng = random.Random(seed)
    found: list[Scene] = []
    while len(found) < count:
        potted = rng.random() < 0.5
        scene = Scene(
            POTTED if potted else rng.choice(SHAPES),
            rng.choice(COLOURS),
            rng.choice(COLOURS) if potted else None,
            rng.choice(BACKGROUNDS),
        )
        if not scene.held_out:
            found.append(scene)
    return found


def held_out_scenes(count: int = 50, seed: int = 0) -> list[Scene]:
    """Captions to test with, each once, of the 52 that there are."""
    return random.Random(seed).sample([s for s in all_scenes() if s.held_out], count)
