"""A request for an image, and the record of how one was made: in the file itself, and beside it.

The file says nothing of times and places, so that the same request gives the same bytes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import FormatError, RequestError
from oxibonsai.lora import Adapter
from oxibonsai.lora.adapter import in_use

if TYPE_CHECKING:
    from PIL.Image import Image


Floats = npt.NDArray[np.float32]

STEPS = 4
SIDE = 512  # pixels, for networks of the usual size
STRENGTH = 0.4
MOST_REFERENCES = 8


@dataclass(frozen=True)
class ImageRequest:
    """One image.

    Attributes:
        prompt: What it shows.
        seed: Of the noise that it starts from.
        width, height: In pixels.
        steps: Passes of the transformer.
        generator: Whose noise: ``mlx`` or ``torch``.
        start: An image to start from instead of noise alone, in any size.
        strength: How much of ``start`` is kept, from 0 to 1, as mflux counts.
        references: Images that the prompt is about; the model edits or combines them.
    """

    prompt: str
    seed: int
    width: int = SIDE
    height: int = SIDE
    steps: int = STEPS
    generator: str = "mlx"
    start: Image | None = None
    strength: float = STRENGTH
    references: tuple[Image, ...] = field(default=())

    def __post_init__(self) -> None:
        if len(self.references) > MOST_REFERENCES:
            raise RequestError(
                f"{len(self.references)} references; up to {MOST_REFERENCES} are looked at"
            )


KEYWORD = "oxibonsai"
"""The keyword of the text in a PNG file that holds :func:`record_of` as JSON."""

_MOST_FILE_BYTES = 1 << 28
_MOST_TEXT_BYTES = 1 << 20
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def record_of(
    request: ImageRequest, model: str, adapters: Sequence[Adapter] = ()
) -> dict[str, Any]:
    """Return everything that an image depends on but its input images."""
    record: dict[str, Any] = {
        "model": model,
        "prompt": request.prompt,
        "seed": request.seed,
        "rng": request.generator,
        "steps": request.steps,
        "width": request.width,
        "height": request.height,
    }
    if used := in_use(adapters):
        record["loras"] = [
            {"name": a.name, "scale": a.scale, "fingerprint": a.fingerprint} for a in used
        ]
    if request.start is not None:
        record["image_strength"] = request.strength
    if request.references:
        record["references"] = len(request.references)
    return record


def png_texts(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of a PNG file: the line that other tools read, and JSON."""
    line = (
        f"{record['prompt']}\nSteps: {record['steps']}, Sampler: Euler, Schedule type: Flow matching, "
        f"CFG scale: 1, Seed: {record['seed']}, Size: {record['width']}x{record['height']}, "
        f"Model: {record['model']}, RNG: {record['rng']}"
    )
    return {"parameters": line, KEYWORD: json.dumps(dict(record), sort_keys=True)}


def is_image(path: Path) -> bool:
    """Return whether the file begins as a PNG file does; False where it can't be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(_SIGNATURE)) == _SIGNATURE
    except OSError:
        return False


def read_record(path: Path) -> dict[str, Any]:
    """Return the record of an image, from the PNG file or the JSON file beside it.

    Raises:
        FormatError: The file holds none, or is damaged.
        RequestError: There is no such file.
    """
    try:
        if path.stat().st_size > _MOST_FILE_BYTES:
            raise FormatError(f"{path} is too large")
        data = path.read_bytes()
    except OSError as e:
        raise RequestError(f"cannot read {path}: {e.strerror}") from e
    text = _png_text(path, data) if data.startswith(_SIGNATURE) else data
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{path} holds no JSON of a picture: {e}") from e
    if not isinstance(record, dict):
        raise FormatError(f"{path} holds no record of a picture")
    return record


def _png_text(path: Path, data: bytes) -> bytes:
    at = len(_SIGNATURE)
    while at + 12 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        if size > len(data) or zlib.crc32(kind + body) != int.from_bytes(
            data[at + 8 + size : at + 12 + size], "big"
        ):
            raise FormatError(f"{path} is damaged at byte {at}")
        keyword, _, text = body.partition(b"\0")
        if kind in (b"tEXt", b"iTXt") and keyword == KEYWORD.encode() and size < _MOST_TEXT_BYTES:
            return text if kind == b"tEXt" else text.removeprefix(b"\0\0\0\0")
        at += 12 + size
    raise FormatError(f"{path} says nothing of how it was drawn")
