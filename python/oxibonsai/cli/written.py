"""What a command says of the file that it has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import rich_click as click


def say_written(path: Path, as_json: bool, **facts: Any) -> None:
    """One line, or one JSON object in which further facts stand."""
    if as_json:
        click.echo(json.dumps({**file_facts(path), **facts}))
    else:
        click.echo(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def file_facts(path: Path) -> dict[str, Any]:
    """Of a file, for JSON."""
    return {"path": str(path), "bytes": path.stat().st_size}
