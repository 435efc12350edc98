"""Images as people send them: PNG, JPEG, WebP and GIF, decoded within limits to upright RGB.

The bytes come from anybody, so they are hostile until proven otherwise. What a file is, its magic
bytes say, not its name; its size is read from its header and refused before anything is allocated
for it; a decoder's error of any kind is one RequestError.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oxibonsai.errors import RequestError, UnsupportedError

if TYPE_CHECKING:
    from PIL import Image, ImageFile

# Scans of a progressive JPEG: encoders write about ten, each one costs a pass over all pixels.
_MOST_SCANS = 100
_STRIP_ROWS = 256  # composited at a time: a whole image with alpha would be there three times
_TEXT = b"<"
_OTHER_FORMATS = (
    (b"%PDF", "a PDF document"),
    (b"BM", "a BMP picture"),
    (b"II*\x00", "a TIFF picture"),
    (b"MM\x00*", "a TIFF picture"),
    (b"\x00\x00\x01\x00", "an icon"),
    (b"\xff\x0a", "a JPEG XL picture"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip archive"),
)

# EXIF's tag of how a camera was held, and what turns its images upright.
_ORIENTATION = 0x0112
_TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}

_decoding = threading.Lock()  # bounds the memory of all threads together to that of one image


@dataclass(frozen=True)
class ImageLimits:
    """Limits of decoding.

    Attributes:
        max_bytes: Of a file.
        max_pixels: Of an image. Decoding takes up to 12 bytes for each, one image at a time.
    """

    max_bytes: int = 20 << 20
    max_pixels: int = 1 << 25


class DecodedImage:
    """An image: RGB, upright, transparent parts over white.

    Args:
        image: Of Pillow, in mode ``RGB``; not changed any more.
    """

    def __init__(self, image: Image.Image) -> None:
        self.image = image

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.image.height, self.image.width

    def __repr__(self) -> str:
        return f"DecodedImage({self.image.width} x {self.image.height})"


def decode_image(data: bytes, limits: ImageLimits | None = None) -> DecodedImage:
    """Decode a file; of an animation its first frame.

    Args:
        data: PNG, JPEG, WebP or GIF.
        limits: None: the defaults.

    Raises:
        RequestError: The file is something else, damaged, or past a limit.
        UnsupportedError: Pillow is not installed.
    """
    limits = limits or ImageLimits()
    check_bytes(len(data), limits)
    kind = format_of(data)
    if kind == "WEBP":
        _check_size(_webp_size(data), limits)  # its decoder allocates when it opens a file
    if kind == "JPEG" and data.count(b"\xff\xda") > _MOST_SCANS:
        raise RequestError(f"the JPEG picture has more than {_MOST_SCANS} scans: save it anew")
    with _decoding:
        try:
            return _decode(data, kind, limits)
        except (RequestError, UnsupportedError):
            raise
        # Pillow's readers raise whatever the damage leads to.
        except Exception as e:
            raise RequestError(f"the {kind} picture is damaged: {e or type(e).__name__}") from e


def check_bytes(count: int, limits: ImageLimits) -> None:
    """RequestError where a file is too large."""
    if count > limits.max_bytes:
        raise RequestError(
            f"the picture has {count} bytes, more than {limits.max_bytes}: send a smaller one"
        )


def image_of_pillow(image: Image.Image, limits: ImageLimits | None = None) -> DecodedImage:
    """Return an image of what Pillow has opened or a program has drawn.

    An orientation in its EXIF is followed, which transformers' processors leave to the caller.

    Raises:
        RequestError: It is past a limit, or its file is damaged.
    """
    limits = limits or ImageLimits()
    _check_size((image.height, image.width), limits)
    with _decoding:
        try:
            return _upright_rgb(image)
        except Exception as e:  # a lazily read file
            raise RequestError(f"the picture is damaged: {e or type(e).__name__}") from e


def reduced(image: DecodedImage, side: int) -> DecodedImage:
    """Return the image in a square of this side, in its own ratio; a smaller one as it is."""
    from PIL.Image import Resampling

    height, width = image.size
    longest = max(height, width)
    if longest <= side:
        return image
    size = (max(1, round(width * side / longest)), max(1, round(height * side / longest)))
    return DecodedImage(image.image.resize(size, Resampling.BICUBIC))


def format_of(data: bytes) -> str:
    """``PNG``, ``JPEG``, ``GIF`` or ``WEBP``; RequestError for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if data.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "WEBP"
    raise RequestError(f"this is {_name_of(data)}: a picture is PNG, JPEG, WebP or GIF")


def _name_of(data: bytes) -> str:
    for magic, name in _OTHER_FORMATS:
        if data.startswith(magic):
            return name
    if data[4:8] == b"ftyp":
        return "an HEIC, AVIF or video file"
    if not data:
        return "an empty file"
    head = data[:512].removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(_TEXT):
        return "an SVG drawing" if b"<svg" in data[:4096].lower() else "HTML or XML text"
    return "no picture"


def _webp_size(data: bytes) -> tuple[int, int]:
    """Height and width as the first chunk of a WebP file says them."""
    kind, body = data[12:16], data[20:32]
    if kind == b"VP8X" and len(body) >= 10:
        width, height = (int.from_bytes(body[i : i + 3], "little") + 1 for i in (4, 7))
    elif kind == b"VP8L" and len(body) >= 5:
        bits = int.from_bytes(body[1:5], "little")
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 " and len(body) >= 10:
        width, height = (int.from_bytes(body[i : i + 2], "little") & 0x3FFF for i in (6, 8))
    else:
        raise RequestError("the WEBP picture is damaged: its first chunk is none of a picture")
    return height, width


def _check_size(size: tuple[int, int], limits: ImageLimits) -> None:
    height, width = size
    if height < 1 or width < 1:
        raise RequestError(f"the picture has {width} x {height} pixels: there is nothing to see")
    if height * width > limits.max_pixels:
        raise RequestError(
            f"the picture has {width} x {height} pixels, more than {limits.max_pixels}: make it smaller"
        )


def _decode(data: bytes, kind: str, limits: ImageLimits) -> DecodedImage:
    try:
        from PIL import GifImagePlugin, JpegImagePlugin, PngImagePlugin, WebPImagePlugin
    except ImportError as e:
        raise UnsupportedError("pictures need Pillow: pip install pillow") from e

    readers: dict[str, Callable[[io.BytesIO], ImageFile.ImageFile]] = {
        "PNG": PngImagePlugin.PngImageFile,
        "JPEG": JpegImagePlugin.JpegImageFile,
        "GIF": GifImagePlugin.GifImageFile,
        "WEBP": WebPImagePlugin.WebPImageFile,
    }
    # Not Image.open: that tries other formats, and has a limit of its own that only warns.
    with readers[kind](io.BytesIO(data)) as image:
        _check_size((image.height, image.width), limits)
        image.load()
        _check_size((image.height, image.width), limits)  # a GIF's frame may be larger than the GIF
        return _upright_rgb(image)


def _upright_rgb(image: Image.Image) -> DecodedImage:
    from PIL import Image

    if image.mode.startswith("I;16"):
        # Pillow cuts at 255; what is shown is the upper byte.
        image = image.point(lambda value: value * (1 / 256)).convert("L")
    transparent = "A" in image.getbands() or image.info.get("transparency") is not None
    if not transparent:
        rgb = image.convert("RGB")
    else:
        rgb = Image.new("RGB", image.size)
        for top in range(0, image.height, _STRIP_ROWS):
            box = (0, top, image.width, min(top + _STRIP_ROWS, image.height))
            strip = image.crop(box).convert("RGBA")
            white = Image.new("RGBA", strip.size, (255, 255, 255, 255))
            rgb.paste(Image.alpha_composite(white, strip).convert("RGB"), box)
    turn = _TURNS.get(image.getexif().get(_ORIENTATION, 1))
    return DecodedImage(rgb if turn is None else rgb.transpose(Image.Transpose[turn]))
