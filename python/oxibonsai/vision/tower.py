"""A tower of a file, with the images that it has encoded lately."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import Device
from oxibonsai.errors import RequestError
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights
from oxibonsai.vision.config import clip_keys, unknown_projector
from oxibonsai.vision.image import Floats, ImageEmbedding, LateRows, PixelGrid
from oxibonsai.vision.processors import ImageProcessor
from oxibonsai.vision.towers.family import Family
from oxibonsai.vision.towers.gemma3 import Gemma3Tower
from oxibonsai.vision.towers.glm4v import Glm4VTower
from oxibonsai.vision.towers.idefics3 import Idefics3Tower
from oxibonsai.vision.towers.internvl import InternVLTower
from oxibonsai.vision.towers.llama4 import Llama4Tower
from oxibonsai.vision.towers.llava import LlavaTower
from oxibonsai.vision.towers.pixtral import PixtralTower
from oxibonsai.vision.towers.qwen2vl import QWEN2VL, QWEN25VL
from oxibonsai.vision.towers.qwen3vl import Qwen3VLTower

FAMILIES: dict[str, Callable[[Keys, Weights, Device], Family]] = {
    "qwen3vl_merger": Qwen3VLTower,
    "gemma3": Gemma3Tower,
    "qwen2vl_merger": QWEN2VL,
    "qwen2.5vl_merger": QWEN25VL,
    "idefics3": Idefics3Tower,
    "pixtral": PixtralTower,
    "mlp": LlavaTower,
    "internvl": InternVLTower,
    "llama4": Llama4Tower,
    "glm4v": Glm4VTower,
}
_KEPT_BYTES = 256 << 20
_MOST_FORGOTTEN = 4096  # outlines of images; each has some hundred bytes
TokenId = Callable[[str], int | None]
Parts = list[str | ImageEmbedding]


class Tower:
    """Encodes images for a language model. Calls may come from any thread; one image at a time.

    The rows of an image that was encoded before but is no longer kept are computed when they are first
    read: while its keys and values are in the prefix cache, that is never.

    Args:
        family: Its passes.
        fingerprint: Names its file.
        token_id: The id of a token of the language model by its text, or None.
        kept_bytes: Of encoded images that are kept, those used least recently given up first.

    Attributes:
        marker: What stands for an image in the text of a rendered chat template.
        written: The marker with what the model's own template writes around it.
        placeholder: Id that stands for a row of an image in a prompt.
        width: Columns of a row.
    """

    def __init__(
        self, family: Family, fingerprint: str, token_id: TokenId, kept_bytes: int = _KEPT_BYTES
    ) -> None:
        placeholder = token_id(family.placeholder)
        if placeholder is None:
            raise RequestError(
                f"the language model has no token {family.placeholder}, which stands for pictures: the "
                "tower is that of another model"
            )
        self._family = family
        self._fingerprint = fingerprint
        self._kept_bytes = kept_bytes
        self._kept: OrderedDict[bytes, Parts] = OrderedDict()
        self._forgotten: OrderedDict[bytes, list[str | _Outline]] = OrderedDict()
        self._lock = threading.Lock()
        self.marker = family.marker
        self.written = family.written
        self.placeholder = placeholder
        self.width = family.width

    @classmethod
    def open(cls, path: str | os.PathLike[str], device: Device, token_id: TokenId) -> Tower:
        """Open an mmproj file, as llama.cpp writes them.

        Args:
            path: A GGUF file of architecture ``clip``.
            device: Runs it; that of the language model, with its threads.
            token_id: The id of a token of the language model by its text, or None.

        Raises:
            FormatError: The file is damaged, or no tower.
            UnsupportedError: This version does not have its family, or one of its keys or tensors.
            RequestError: It is the tower of another model.
        """
        return cls.of_checkpoint(Checkpoint(path), device, token_id)

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint, device: Device, token_id: TokenId) -> Tower:
        """Read a tower as :meth:`open` does, of a file that is open already."""
        keys, projector = clip_keys(checkpoint)
        if projector not in FAMILIES:
            raise unknown_projector(keys, projector, sorted(FAMILIES))
        weights = Weights(checkpoint)
        family = FAMILIES[projector](keys, weights, device)
        keys.refuse_unread()
        weights.refuse_unused()
        return cls(family, checkpoint.fingerprint(), token_id)

    @property
    def processor(self) -> ImageProcessor:
        """Return what prepares images for the tower, as the model's own processor does."""
        return self._family.processor

    def count_rows(self, pixels: PixelGrid) -> int:
        """Return the positions that an image takes in a prompt, text beside its rows left aside.

        Raises:
            RequestError: The pixels are none for this tower.
        """
        return self._family.count_rows(pixels)

    def layout(self, pixels: PixelGrid) -> list[str | int]:
        """Return the marker's replacement: texts, and numbers of rows.

        Raises:
            RequestError: The pixels are none for this tower.
        """
        return self._family.layout(pixels)

    def encode(self, pixels: PixelGrid) -> Parts:
        """Return the marker's replacement: text with special tokens written out, and rows.

        Raises:
            RequestError: The pixels are none for this tower.
        """
        self._family.count_rows(pixels)
        digest = hashlib.blake2b(self._fingerprint.encode() + pixels.digest(), digest_size=16)
        key = digest.digest()
        with self._lock:
            if key in self._forgotten:
                self._forgotten.move_to_end(key)
                return self._late(key, pixels)
            return list(self._encoded(key, pixels))

    def _encoded(self, key: bytes, pixels: PixelGrid) -> Parts:
        """Return what is kept of an image, else encode it; the lock is held."""
        if key not in self._kept:
            self._kept[key] = self._family.encode(pixels, key)
            self._forgotten.pop(key, None)
            self._forget_oldest()
        self._kept.move_to_end(key)
        return self._kept[key]

    def _late(self, key: bytes, pixels: PixelGrid) -> Parts:
        """Return a forgotten image, whose rows are encoded again when one of them is read."""

        def encode(place: int) -> Floats:
            with self._lock:
                part = self._encoded(key, pixels)[place]
            assert isinstance(part, ImageEmbedding)
            return part.rows

        return [
            part if isinstance(part, str) else part.embedding(partial(encode, place))
            for place, part in enumerate(self._forgotten[key])
        ]

    def _forget_oldest(self) -> None:
        while len(self._kept) > 1 and sum(map(_bytes, self._kept.values())) > self._kept_bytes:
            key, parts = self._kept.popitem(last=False)
            self._forgotten[key] = [p if isinstance(p, str) else _Outline.of(p) for p in parts]
        while len(self._forgotten) > _MOST_FORGOTTEN:
            self._forgotten.popitem(last=False)


@dataclass(frozen=True)
class _Outline:
    """An embedding without its rows; fields as of :class:`ImageEmbedding`."""

    count: int
    digest: bytes
    grid: tuple[int, int, int] | None
    sees_itself: bool

    @classmethod
    def of(cls, embedding: ImageEmbedding) -> _Outline:
        """Return the outline of an embedding."""
        return cls(len(embedding), embedding.digest, embedding.grid, embedding.sees_itself)

    def embedding(self, encode: Callable[[], Floats]) -> ImageEmbedding:
        """Return the embedding, whose rows something computes again."""
        rows = LateRows(self.count, encode)
        return ImageEmbedding(rows, self.digest, self.grid, self.sees_itself)


def _bytes(parts: Parts) -> int:
    return sum(p.rows.nbytes for p in parts if isinstance(p, ImageEmbedding))
