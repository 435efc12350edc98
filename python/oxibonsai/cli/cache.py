"""``oxibonsai cache``: packed weights and quantized models that are kept on disk."""

from __future__ import annotations

import json
import time

import rich_click as click

from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.options import json_option
from oxibonsai.loading import QuantizedCache
from oxibonsai.models import PackedCache


@click.command(cls=Command)
@click.option("--clear", is_flag=True, help="Remove them all.")
@json_option
def cache(clear: bool, as_json: bool) -> None:
    """List the packed weights and models that --packed-cache and --load-as have kept, or remove them."""
    kept, quantized = PackedCache(), QuantizedCache()
    if clear:
        freed = kept.clear() + quantized.clear()
        click.echo(json.dumps({"freed_bytes": freed}) if as_json else f"freed {freed / 1e6:.0f} MB")
        return
    entries = kept.entries()
    if as_json:
        rows = [
            {"model": e.model, "tier": e.tier, "bytes": e.bytes, "last_used": e.last_used}
            for e in entries
        ]
        files = [{"path": str(path), "bytes": path.stat().st_size} for path in quantized.entries()]
        found = {"folder": str(kept.folder), "entries": rows, "quantized": files}
        click.echo(json.dumps(found))
        return
    for e in entries:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(e.last_used))
        click.echo(f"{e.bytes / 1e6:9.0f} MB  {e.tier:<11} {day}  {e.model}")
    total = sum(e.bytes for e in entries)
    click.echo(f"{total / 1e9:.2f} of {kept.limit_bytes / 1e9:g} GB in {kept.folder}")
    sizes = {path: path.stat().st_size for path in quantized.entries()}
    for path, size in sizes.items():
        click.echo(f"{size / 1e6:9.0f} MB  quantized   {path.name}")
    if sizes:
        total = sum(sizes.values())
        click.echo(f"{total / 1e9:.2f} of {quantized.limit_bytes / 1e9:g} GB in {quantized.folder}")
