"""Records what llama.cpp's converter makes of the folders of ``eagle_folders``.

Usage: make_llama_cpp_drafters.py LLAMA_CPP   (its folder, with conversion/ and gguf-py/)

Of each file: its keys, a hash of the shape and the values of each tensor, and the factors of frequencies
themselves, without the vocabulary.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from pathlib import Path


def main(llama_cpp: str) -> None:
    sys.path[:0] = [llama_cpp, f"{llama_cpp}/gguf-py"]
    import eagle_folders  # reads files with the gguf package, which must be that of the converter
    from make_llama_cpp_conversions import convert

    logging.disable(logging.WARNING)
    found = {}
    for name, case in eagle_folders.CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "target"
            target.mkdir()
            (target / "config.json").write_text(json.dumps(eagle_folders.TARGET_CONFIG))
            drafter = case.write(Path(folder) / "drafter")
            convert(drafter, Path(folder) / "drafter.gguf", target=target)
            found[name] = eagle_folders.summary(Path(folder) / "drafter.gguf")
    eagle_folders.RECORDED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
