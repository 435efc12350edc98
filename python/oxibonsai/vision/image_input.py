"""An image in any form in which somebody gives one."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from oxibonsai.errors import RequestError
from oxibonsai.files.home_paths import with_home
from oxibonsai.vision.decoding import (
    DecodedImage,
    ImageLimits,
    check_bytes,
    decode_image,
    format_of,
    image_of_pillow,
    reduced,
)

# OpenAI's levels of detail; at low, the model sees an image within a square of this side.
_DETAILS = ("auto", "low", "high", "original")
_LOW_DETAIL = 512

Fetch = Callable[[str], bytes]  # the content of an address


def read_image(given: Any, limits: ImageLimits | None = None) -> DecodedImage:
    """Return an image that a program gives.

    Args:
        given: An image of Pillow, uint8 [height, width, 3 or 4] or [height, width], the bytes of a
            file, or its path.
        limits: None: the defaults.

    Raises:
        RequestError: It is nothing of that, damaged, past a limit, or a file that can't be read.
    """
    limits = limits or ImageLimits()
    if isinstance(given, DecodedImage):
        return given
    if isinstance(given, bytes | bytearray | memoryview):
        return decode_image(bytes(given), limits)
    if isinstance(given, str | os.PathLike):
        return read_file(with_home(given), limits)
    if isinstance(given, np.ndarray):
        return image_of_pillow(_image_of_array(given), limits)
    if hasattr(given, "getbands"):
        return image_of_pillow(given, limits)
    raise RequestError(
        f"a picture is an image of Pillow, an array, a file's bytes or path, not {type(given).__name__}"
    )


def image_of_part(
    part: Mapping[str, Any], limits: ImageLimits, fetch: Fetch | None
) -> DecodedImage:
    """Return the image of a part of a message.

    Texts are addresses, never names of files: a message may come from anybody.

    Args:
        part: ``{"type": "image_url", "image_url": {"url": ..., "detail": ...}}`` or with the address
            itself; ``{"type": "image", "image": ...}`` with an address or what :func:`read_image`
            takes, or with ``url`` or ``base64`` in place of ``image``; ``media_type``, where it is
            there, must be right.
        limits: Of the image.
        fetch: As for :func:`read_url`.

    Raises:
        RequestError: There is no such image, or it may not be read.
    """
    value: Any = part.get("image_url", part.get("image", part.get("url")))
    detail = part.get("detail")
    if isinstance(value, Mapping):
        value, detail = value.get("url"), value.get("detail", detail)
    if value is None and isinstance(part.get("base64"), str):
        value = decode_base64(part["base64"], limits)
    if value is None:
        raise RequestError("a part that is a picture has neither an image nor the address of one")
    if detail not in (None, *_DETAILS):
        raise RequestError(f"the picture's detail is {detail!r}, none of {', '.join(_DETAILS)}")
    if isinstance(value, str):
        value = read_url(value, limits, fetch)
    media_type = part.get("media_type")
    if media_type is not None and isinstance(value, bytes):
        found = f"image/{format_of(value).lower()}"
        if found != media_type:
            raise RequestError(f"the picture's media_type is {media_type!r}, but it is {found}")
    image = read_image(value, limits)
    return reduced(image, _LOW_DETAIL) if detail == "low" else image


def read_file(path: Path, limits: ImageLimits) -> DecodedImage:
    """Return the image of a file."""
    try:
        with path.open("rb") as file:
            data = file.read(limits.max_bytes + 1)
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else str(e)
        raise RequestError(f"cannot read the picture {path}: {reason}") from e
    try:
        return decode_image(data, limits)
    except RequestError as e:
        raise RequestError(f"{path}: {e}") from e


def decode_base64(text: str, limits: ImageLimits) -> bytes:
    """Return the bytes that base64 stands for, checked against the limit before they are decoded."""
    check_bytes(len(text) * 3 // 4 - 2, limits)
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as e:
        raise RequestError(f"the picture's base64 is damaged: {e}") from e


def read_url(url: str, limits: ImageLimits, fetch: Fetch | None) -> bytes:
    """Return the file that an address stands for.

    Args:
        url: ``data:image/...;base64,...``, or ``https://...`` where that may be fetched.
        limits: Of the file.
        fetch: Gets what is on the web; None: nothing is.

    Raises:
        RequestError: The address is none, may not be fetched, or can't be fetched.
    """
    scheme, _, rest = url[:8].partition(":")
    if scheme.lower() == "data":
        head, comma, body = url.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            raise RequestError("a picture's data: URL is data:image/...;base64,...")
        return decode_base64(body, limits)
    if scheme.lower() not in ("http", "https") or not rest:
        raise RequestError("a picture's address begins with data:, http:// or https://")
    if fetch is None:
        raise RequestError(
            "pictures are not fetched from the web here: send the picture itself as a data: URL (or "
            "let the server fetch, with --allow-image-urls)"
        )
    return fetch(url)


def _image_of_array(array: np.ndarray[Any, Any]) -> Any:
    from PIL import Image

    channels = array.shape[2] if array.ndim == 3 else 1
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or channels not in (1, 3, 4):
        raise RequestError(
            f"the picture is {array.dtype} {list(array.shape)}; it must be uint8 [height, width], or "
            "with 3 or 4 channels"
        )
    if 0 in array.shape:
        raise RequestError("the picture has no pixels")
    return Image.fromarray(array if array.ndim == 2 or channels > 1 else array[..., 0])
