"""Records llama.cpp's logits of the random files of ``remote_models``.

Usage: make_llama_cpp_remote.py PYTHON [NAME ...]

PYTHON is an interpreter that has llama-cpp-python. With names, only theirs are recorded anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import dense_models
import numpy as np
import remote_models

RECORDED = Path(__file__).parents[1] / "models" / "llama_cpp_remote.json"
POSITIONS = 2  # the last ones


def main(python: str, *names: str) -> None:
    cases = [c for c in remote_models.CASES if not names or c.name in names]
    found = json.loads(RECORDED.read_text()) if names else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ids.json").write_text(json.dumps(dense_models.IDS))
        paths = {c.name: folder / f"{c.name}.gguf" for c in cases}
        for case in cases:
            remote_models.write(case, paths[case.name])
        program = Path(__file__).with_name("llama_cpp_logits.py")
        subprocess.run(
            [python, str(program), str(folder / "ids.json"), *map(str, paths.values())], check=True
        )
        found |= {
            name: [[float(f"{v:.6g}") for v in row] for row in logits(path)[-POSITIONS:]]
            for name, path in paths.items()
        }
    RECORDED.write_text(json.dumps(found) + "\n")


def logits(path: Path) -> np.ndarray:
    """What the program left beside a model."""
    rows: np.ndarray = np.load(path.with_suffix(".npy"))
    return rows


if __name__ == "__main__":
    main(*sys.argv[1:])
