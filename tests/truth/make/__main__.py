"""Runs a script of this folder, with the folders that pytest finds the tests' modules in.

usage: python tests/truth/make NAME [ARGUMENT ...]
"""

from __future__ import annotations

import configparser
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def main(name: str, *arguments: str) -> None:
    """Run ``NAME.py`` with its arguments."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    folders = [*settings["tool:pytest"]["pythonpath"].split(), "tests/quant"]
    sys.path[:0] = [str(ROOT / folder) for folder in folders]
    script = HERE / f"{name}.py"
    sys.argv = [str(script), *arguments]
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) < 2 or not (HERE / f"{sys.argv[1]}.py").exists():
        names = sorted(p.stem for p in HERE.glob("*.py") if p.stem != "__main__")
        sys.exit(f"{__doc__}\nNAME is one of {', '.join(names)}")
    main(*sys.argv[1:])
