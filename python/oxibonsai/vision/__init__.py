"""Vision towers: from the pixels of an image to rows that a language model reads as tokens.

What stands before and behind a tower meets it here:

1. ``Tower.open()`` opens llama.cpp's mmproj file. ``tower.processor``, one of
   :mod:`oxibonsai.vision.processors` with the numbers of the model, turns a :class:`DecodedImage` into a
   :class:`PixelGrid`: resized, normalised and cut into tiles. A tower cuts tiles into patches itself.
2. ``tower.count_rows(pixels)`` says how many positions the image takes in a prompt, before any work
   is done; ``tower.encode(pixels)`` computes them, or finds them among the images encoded lately.
3. The result is a list of what takes the place of ``tower.marker`` in the text of a rendered chat
   template: strings (special tokens written out) and :class:`ImageEmbedding`.
4. :func:`place` joins token ids and embeddings to the ids of a prompt, in which the id of
   ``tower.placeholder`` stands for every row of an image, and to ``Options.images``, the images'
   places. ``engine.submit(ids, params, Options(images=images))`` runs that. Everything that counts
   or limits tokens counts images as a text of so many tokens.

The rows of an image depend on its pixels alone: not on the CPU, the threads, or other images.
"""

from oxibonsai.vision.decoding import DecodedImage, ImageLimits
from oxibonsai.vision.image import ImageEmbedding, PixelGrid, PlacedImage, place
from oxibonsai.vision.reader import ImageReader, ImageTower
from oxibonsai.vision.tower import Tower

__all__ = [
    "DecodedImage",
    "ImageEmbedding",
    "ImageLimits",
    "ImageReader",
    "ImageTower",
    "PixelGrid",
    "PlacedImage",
    "Tower",
    "place",
]
