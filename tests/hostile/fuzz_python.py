"""A reader written in Python under libFuzzer: python fuzz_python.py READER FOLDER [its arguments]."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["oxibonsai"]):
    from python_readers import READERS


def main(reader: str, folder: str, *arguments: str) -> None:
    atheris.Setup([sys.argv[0], *arguments], READERS[reader](Path(folder)))
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
