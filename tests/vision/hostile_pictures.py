"""Files that pretend to be pictures, or are pictures that nobody can decode."""

from __future__ import annotations

import struct
import zlib

from odd_pictures import ODD_PICTURES, saved
from PIL import Image


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, data: bytes = b"", bits: int = 8, colour: int = 2) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


def webp(kind: bytes, body: bytes) -> bytes:
    whole = b"WEBP" + kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(whole)) + whole


GOOD = {name: ODD_PICTURES[name] for name in ("wide", "tall JPEG", "animated GIF", "alpha WebP")}
SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'
HOSTILE = {
    "nothing": b"",
    "one byte": b"\x89",
    "PNG bomb": png(30_000, 30_000, zlib.compress(bytes(10_000_000))),
    "PNG of 2^31": png(2**31 - 1, 2**31 - 1),
    "PNG of 2^32": png(2**32 - 1, 1),
    "PNG without width": png(0, 5),
    "PNG without data": png(64, 64),
    "PNG of 3 bits": png(4, 4, zlib.compress(bytes(100)), bits=3),
    "PNG of colour 9": png(4, 4, zlib.compress(bytes(100)), colour=9),
    "PNG with broken zlib": png(64, 64, b"x\x9c" + bytes(50)),
    "PNG with too little data": png(64, 64, zlib.compress(bytes(100))),
    "PNG with a long text": ODD_PICTURES["square"][:33]
    + chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(90 << 20))) + ODD_PICTURES["square"][33:],
    "PNG with a wrong checksum": ODD_PICTURES["square"][:30] + b"\xff" + ODD_PICTURES["square"][31:],
    "PNG magic alone": b"\x89PNG\r\n\x1a\n",
    "JPEG of 65535": b"\xff\xd8\xff\xc0\x00\x11\x08\xff\xff\xff\xff\x03\x01\x11\x00\x02\x11\x01\x03\x11\x01"
    + b"\xff\xda\x00\x0c\x03\x01\x00\x02\x11\x03\x11\x00\x3f\x00" + bytes(100) + b"\xff\xd9",
    "JPEG of scans": ODD_PICTURES["progressive JPEG"][:-2]
    + b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00" * 5000,
    "JPEG magic alone": b"\xff\xd8\xff",
    "JPEG with long markers": b"\xff\xd8" + b"\xff\xe1\xff\xff" * 10,
    "GIF of 65535": b"GIF89a\xff\xff\xff\xff\x00\x00\x00,\x00\x00\x00\x00\xff\xff\xff\xff\x00\x08\x00;",
    "GIF with a frame of 65535":
    b"GIF89a\x01\x00\x01\x00\x00\x00\x00,\x00\x00\x00\x00\xff\xff\xff\xff\x00\x08\x00;",
    "GIF without a frame": b"GIF89a\x05\x00\x05\x00\x00\x00\x00;",
    "WebP of 2^24": webp(b"VP8X", b"\x02\0\0\0" + b"\xff" * 6),
    "WebP of 16383": webp(b"VP8L", b"/\xff\xff\xff\x0f" + bytes(20)),
    "WebP VP8 of 16383": webp(b"VP8 ", b"\x10\0\0\x9d\x01\x2a\xff\x3f\xff\x3f" + bytes(20)),
    "WebP of nothing": webp(b"NONE", bytes(20)),
    "WebP without a body": webp(b"VP8X", b""),
    "SVG": SVG,
    "SVG in UTF-8 with a mark": b"\xef\xbb\xbf\n" + SVG,
    "HTML": b"<!DOCTYPE html><html><body><img src='x'></body></html>",
    "PDF": b"%PDF-1.7\n",
    "BMP": saved(Image.new("RGB", (4, 4)), "BMP"),
    "TIFF": saved(Image.new("RGB", (4, 4)), "TIFF"),
    "icon": saved(Image.new("RGB", (16, 16)), "ICO"),
    "AVIF": b"\0\0\0\x20ftypavif" + bytes(40),
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n",
    "ZIP": b"PK\x03\x04" + bytes(40),
    "text": b"a picture of a cat",
    "too many bytes": ODD_PICTURES["square"] + bytes(21 << 20),
    **{f"{name} cut at {cut}": data[: len(data) * cut // 8] for name, data in GOOD.items()
       for cut in range(1, 8)
       if name != "animated GIF" or cut < 4},
}  # fmt: skip
