"""A picture in any form in which somebody gives one."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from oxibonsai.errors import RequestError
from oxibonsai.vision.pictures import (
    Picture,
    PictureLimits,
    check_bytes,
    decode_picture,
    picture_of_image,
)

Fetch = Callable[[str], bytes]  # the content of an address


def read_picture(given: Any, limits: PictureLimits | None = None) -> Picture:
    """A picture that a program gives.

    Args:
        given: An image of Pillow, uint8 [height, width, 3 or 4] or [height, width], the bytes of a
            file, or its path.
        limits: None: the defaults.

    Raises:
        RequestError: It is nothing of that, damaged, past a limit, or a file that can't be read.
    """
    limits = limits or PictureLimits()
    if isinstance(given, Picture):
        return given
    if isinstance(given, bytes | bytearray | memoryview):
        return decode_picture(bytes(given), limits)
    if isinstance(given, str | os.PathLike):
        return read_file(Path(os.path.expanduser(given)), limits)
    if isinstance(given, np.ndarray):
        return picture_of_image(_image_of_array(given), limits)
    if hasattr(given, "getbands"):
        return picture_of_image(given, limits)
    raise RequestError(
        f"a picture is an image of Pillow, an array, a file's bytes or path, not {type(given).__name__}"
    )


def read_file(path: Path, limits: PictureLimits) -> Picture:
    """The picture of a file."""
    try:
        with path.open("rb") as file:
            data = file.read(limits.max_bytes + 1)
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else str(e)
        raise RequestError(f"cannot read the picture {path}: {reason}") from e
    try:
        return decode_picture(data, limits)
    except RequestError as e:
        raise RequestError(f"{path}: {e}") from e


def decode_base64(text: str, limits: PictureLimits) -> bytes:
    """The bytes that base64 stands for, checked against the limit before they are decoded."""
    check_bytes(len(text) * 3 // 4 - 2, limits)
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as e:
        raise RequestError(f"the picture's base64 is damaged: {e}") from e


def read_url(url: str, limits: PictureLimits, fetch: Fetch | None) -> bytes:
    """The file that an address stands for.

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
