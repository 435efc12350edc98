"""Model files on this machine: a file, a folder, a set of shards."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from oxibonsai.errors import SourceError
from oxibonsai.sources.choice import choose
from oxibonsai.sources.shards import require_shards


def resolve_path(path: Path) -> Path:
    """Return the GGUF file that a file or folder stands for.

    Raises:
        SourceError: There is no such file, or not one whole model; it says why.
    """
    try:
        if path.is_file():
            files = require_shards(
                str(path), lambda n: Path(n).is_file(), f"the folder {path.parent}"
            )
            return Path(files[0])
        if path.is_dir():
            names = {p.name for p in path.iterdir() if p.is_file()}
            names |= {f"onnx/{p.name}" for p in path.glob("onnx/*.onnx")}
            return path / choose(names, None, f"the folder {path}", f"{path}/FILE")[0]
        if path.exists():
            raise SourceError(f"{path} is neither a file nor a folder")
    except OSError as e:
        raise SourceError(f"cannot look at {path}: {e.strerror}") from e
    raise SourceError(
        f"{path} does not exist{_likely(path)}; name a GGUF file, a folder with one, hf:org/repo, "
        "https://... or pip:package"
    )


def _likely(path: Path) -> str:
    """Return the likely meaning of a misspelt name, of the files that lie there."""
    try:
        names = [p.name for p in path.parent.iterdir()]
    except OSError:
        return ""
    found = get_close_matches(path.name, names, n=1)
    return f" (did you mean {path.parent / found[0]}?)" if found else ""
