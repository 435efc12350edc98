"""The devices of this machine, as ``oxibonsai info --devices`` shows them."""

from __future__ import annotations

import json
from dataclasses import asdict

import rich_click as click

from oxibonsai.devices import list_devices


def show_devices(as_json: bool) -> None:
    """Print a table, or one JSON object."""
    devices = list_devices()
    if as_json:
        click.echo(json.dumps({"devices": [asdict(d) for d in devices]}))
        return
    for d in devices:
        parts = [d.description] if d.description else []
        if d.total_bytes is not None:
            parts.append(f"{d.total_bytes / 1e9:.1f} GB")
        if d.free_bytes is not None:
            parts.append(f"{d.free_bytes / 1e9:.1f} GB free")
        if not d.usable:
            parts.append(f"cannot be used: {d.reason}")
        click.echo(f"{d.name:<8} {', '.join(parts)}")
