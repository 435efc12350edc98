"""Seconds that one key waits for a token while another sends bodies of 15 MB, by field of every route.

    python bench/large_bodies.py MODEL.gguf [--size-mb 15] [--all] [--only TEXT] [--json OUT]

Every field that is a list or a text, of every route, is filled until the body has its size, and sent
plain, as gzip and as deflate at once. The table has the longest wait of the other key, the statuses of
the answers, their seconds and the peak of the server's memory; fields above the limits are marked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from oxibonsai.server.admin.operations import OPERATIONS
from oxibonsai.sources import resolve

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "server"))

from large_field_sweep import ENCODINGS, sweep_server  # type: ignore[import-not-found]
from large_fields import large_fields, one_of_each  # type: ignore[import-not-found]

_MOST_SECONDS, _MOST_MB = 0.5, 1024


def main() -> None:
    """Reads the arguments, runs, prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", help="GGUF file, or pip:package")
    parser.add_argument("--size-mb", type=float, default=15)
    parser.add_argument(
        "--all", action="store_true", help="fields of several routes on each of them"
    )
    parser.add_argument("--only", default="", help="fields whose name contains this text")
    parser.add_argument("--json", type=Path, help="file for all figures")
    given = parser.parse_args()
    fields = large_fields(OPERATIONS)
    fields = [f for f in (fields if given.all else one_of_each(fields)) if given.only in f.name]
    kept = {}
    worst = 0.0
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        sweep_server(resolve(given.model), Path(folder)) as sweep,
    ):
        for field in fields:
            found = sweep.run(field, int(given.size_mb * 1e6), ENCODINGS)
            kept[field.name] = asdict(found)
            wait = max(found.waited)
            worst = max(worst, wait)
            bad = wait > _MOST_SECONDS or found.peak_mb > _MOST_MB or bool(found.refused)
            print(
                f"{'!' if bad else ' '} {wait:6.2f} s  {found.peak_mb:5} MiB  "
                f"{found.seconds:6.2f} s  {sorted(found.statuses)}  {field.name}"
                f"{'  ' + found.refused[0] if found.refused else ''}",
                flush=True,
            )
    waits = [w for found in kept.values() for w in found["waited"]]
    peak = max(found["peak_mb"] for found in kept.values())
    print(
        f"{len(fields)} fields in {time.monotonic() - started:.0f} s: one token waited "
        f"{statistics.median(waits):.3f} s at the median, {worst:.2f} s at most; peak {peak} MiB"
    )
    if given.json is not None:
        given.json.write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
