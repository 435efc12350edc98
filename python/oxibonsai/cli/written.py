"""Report the files that a command has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import rich_click as click


def say_written(path: Path, as_json: bool, **facts: Any) -> None:
    """Print one line, or one JSON object in which further facts stand."""
    if as_json:
        click.echo(json.dumps({**file_facts(path), **facts}))
    else:
        click.echo(written_text(path))


def file_facts(path: Path) -> dict[str, Any]:
    """Return the path and the size of a file, for JSON; a pipe or a device has no size."""
    return {"path": str(path), "bytes": path.stat().st_size if path.is_file() else None}


def written_text(path: Path) -> str:
    """Return a line on a file that has been written, without its end."""
    size = file_facts(path)["bytes"]
    return f"{path}: written" if size is None else f"{path}: {size / 1e6:.1f} MB"
