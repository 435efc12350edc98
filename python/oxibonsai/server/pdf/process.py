"""Reads a PDF file in a process of its own, since a hostile one may take any time and memory.

Run as a script, without the package: the file comes by standard input. Every line of the output is a JSON
object, of a page or of what is wrong.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from contextlib import suppress
from typing import Any


def main(
    most_pages: int, seconds: int, memory_bytes: int, most_output: int, *, with_scans: bool
) -> None:
    """Write the pages of standard input, or why it can't be read."""
    _limit(seconds, memory_bytes)
    try:
        from pypdf import PdfReader
    except ModuleNotFoundError:
        _write(missing="pypdf")
        return
    try:
        reader = PdfReader(io.BytesIO(sys.stdin.buffer.read()))
        if reader.is_encrypted and not reader.decrypt(""):
            _write(error="is encrypted: send it without its password")
            return
        if len(reader.pages) > most_pages:
            _write(error=f"has {len(reader.pages)} pages, more than the {most_pages} that are read")
            return
        size = 0
        for page in reader.pages:
            text = page.extract_text().encode(errors="replace").decode()
            scan = _scan(page) if with_scans and not text.strip() else None
            size += len(text) + len(scan or b"")
            if size > most_output:  # the server holds all of it
                _write(error=f"has more than the {most_output >> 20} MiB of pages that are read")
                return
            _write(text=text, scan=None if scan is None else base64.b64encode(scan).decode())
    except MemoryError:
        _write(error=f"takes more than {memory_bytes >> 20} MiB to read")
    except Exception as e:  # the library raises anything for a damaged file
        _write(error=f"can't be read: {type(e).__name__}: {str(e)[:200]}")


def _limit(seconds: int, memory_bytes: int) -> None:
    if sys.platform == "win32":  # the parent watches
        return
    import resource

    for kind, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, memory_bytes)):
        # Refused where the process has a lower limit already, and of memory by macOS.
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (most, most))


def _scan(page: Any) -> bytes | None:
    """Return the largest image of a page as PNG; None: it has none."""
    largest, area = None, 0
    for held in page.images:
        image = held.image
        if image is not None and image.width * image.height > area:
            largest, area = image, image.width * image.height
    if largest is None:
        return None
    file = io.BytesIO()
    largest.convert("RGB").save(file, "PNG")
    return file.getvalue()


def _write(**found: Any) -> None:
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:5]), with_scans=sys.argv[5] == "scans")
