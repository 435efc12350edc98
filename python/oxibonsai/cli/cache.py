"""``oxibonsai cache``: packed weights that are kept on disk."""

from __future__ import annotations

import json
import time

import rich_click as click

from oxibonsai.cli.options import json_option
from oxibonsai.models import PackedCache


@click.command()
@click.option("--clear", is_flag=True, help="Remove them all.")
@json_option
def cache(clear: bool, as_json: bool) -> None:
    """List the packed weights that --packed-cache has kept, or remove them."""
    kept = PackedCache()
    if clear:
        freed = kept.clear()
        click.echo(json.dumps({"freed_bytes": freed}) if as_json else f"freed {freed / 1e6:.0f} MB")
        return
    entries = kept.entries()
    if as_json:
        rows = [
            {"model": e.model, "tier": e.tier, "bytes": e.bytes, "last_used": e.last_used}
            for e in entries
        ]
        click.echo(json.dumps({"folder": str(kept.folder), "entries": rows}))
        return
    for e in entries:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(e.last_used))
        click.echo(f"{e.bytes / 1e6:9.0f} MB  {e.tier:<11} {day}  {e.model}")
    total = sum(e.bytes for e in entries)
    click.echo(f"{total / 1e9:.2f} of {kept.limit_bytes / 1e9:g} GB in {kept.folder}")
