"""Build the npm package of the module that runs exported models in browsers and in node.

usage: build_npm.py CORE OUTPUT

CORE is the folder of core.mjs and core.wasm, which CMake builds with Emscripten (docs/platforms.md). OUTPUT
becomes the package: `npm pack OUTPUT` makes its archive. It is not published.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from oxibonsai import __version__
from oxibonsai.export.web_folder import module_files

ROOT = Path(__file__).resolve().parents[1]


def build(core: Path, output: Path) -> None:
    """Write the package into a folder, which is made where it is not there."""
    contents = module_files(core)
    contents["README.md"] = (ROOT / "packaging" / "npm" / "README.md").read_bytes()
    contents["LICENSE"] = (ROOT / "LICENSE").read_bytes()
    package = {
        "name": "oxibonsai",
        "version": __version__,
        "description": "Runs language models that oxibonsai has exported, in browsers and in node",
        "license": "Apache-2.0",
        "private": True,
        "type": "module",
        "types": "./oxibonsai.d.ts",
        "exports": {".": {"types": "./oxibonsai.d.ts", "default": "./oxibonsai.js"}},
        "files": sorted(contents),
        "engines": {"node": ">=20"},
    }
    contents["package.json"] = (json.dumps(package, indent=2) + "\n").encode()
    output.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (output / name).write_bytes(content)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("core", type=Path)
    parser.add_argument("output", type=Path)
    build(**vars(parser.parse_args()))
