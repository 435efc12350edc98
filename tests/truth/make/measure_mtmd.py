"""Measures how far rows of llama.cpp's mtmd are from those of transformers, and writes them down.

Usage: measure_mtmd.py LLAMA_CPP LIBRARIES [BUILD]

LLAMA_CPP is llama.cpp's folder, LIBRARIES that of the libggml*.so made of it; mtmd's towers are compiled
into BUILD. Writes mtmd_distances.json and the table in docs/vision.md.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
from mtmd_distances import RECORDED, TOWERS, Files, Floats, make_files
from test_towers import distance

from mtmd import MtmdTower, build

DOCS = Path(__file__).parents[3] / "docs/vision.md"
_TABLE = re.compile(r"(?<=<!-- distances -->\n).*?(?=<!-- /distances -->)", re.DOTALL)
_HEAD = "| tower | weights | Oxibonsai | mtmd | share |\n| --- | --- | --- | --- | --- |\n"


def peer_rows(library: Path, files: Files, kind: str) -> Floats:
    """Rows of mtmd; those of Pixtral without the rows that it puts between lines."""
    tower = MtmdTower(library, files.paths[kind], 2)
    rows = tower.encode(files.measured.pixels().pixels[0])
    tower.close()
    if files.measured.family == "mistral3":
        columns = files.measured.sides[1] // 8  # of patches of 4 pixels, two of which are joined
        rows = rows[[i for i in range(len(rows)) if (i + 1) % (columns + 1)]]
    return rows.reshape(files.truth.shape)


def main(llama_cpp: str, libraries: str, folder: str = "") -> None:
    place = Path(folder or tempfile.mkdtemp())
    library = build(Path(llama_cpp).resolve(), Path(libraries).resolve(), place)
    found: dict[str, dict[str, float]] = {}
    table = _HEAD
    for measured in TOWERS:
        with tempfile.TemporaryDirectory() as temporary:
            files = make_files(measured, Path(temporary))
            for kind in measured.types:
                theirs = distance(peer_rows(library, files, kind), files.truth)
                own = files.own_distance(kind)
                found.setdefault(measured.name, {})[kind] = float(np.float32(theirs))
                figures = f"{own:.1e} | {theirs:.1e} | {own / theirs:.3f}"
                line = f"| {measured.name} | {kind.upper()} | {figures} |\n"
                print(line, end="", flush=True)
                table += line
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")
    DOCS.write_text(_TABLE.sub(lambda _: table, DOCS.read_text()))


if __name__ == "__main__":
    main(*sys.argv[1:])
