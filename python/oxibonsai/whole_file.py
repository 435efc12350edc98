"""Files that appear under their name when they are complete, and not before."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def written_whole(place: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name when it is complete, and leaves nothing behind otherwise."""
    with tempfile.NamedTemporaryFile(dir=place.parent, suffix=".part", delete=False) as out:
        part = Path(out.name)
        try:
            yield out
            out.close()
            part.chmod(0o644)
            part.replace(place)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
