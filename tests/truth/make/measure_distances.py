"""Records how far llama.cpp's logits of the random models lie from the float32 truth.

Usage: measure_distances.py PYTHON, an interpreter with llama-cpp-python. Writes
llama_cpp_distances.json, which test_random_models.py reads.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import random_models as rm
from random_blocks import INTEGER_TYPES

HERE = Path(__file__).parent
UNKNOWN_TO_LLAMA_CPP = {"Q2_0_g128", "PTQ1_0", "TQ2_0_g128", "Q8_1", "Q8_K"}  # as weights


def run_llama_cpp(python: str, paths: list[Path], folder: Path) -> dict[str, Any]:
    """Writes the logits of each model beside it; returns what llama.cpp says of itself."""
    ids = folder / "ids.json"
    ids.write_text(json.dumps(rm.IDS))
    command = [python, str(HERE / "llama_cpp_logits.py"), str(ids), *map(str, paths)]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    said: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return said


def measure(python: str) -> dict[str, Any]:
    """Distances by structure (float weights) and by quant type (the Qwen3 with YaRN)."""
    floats = {r.name: (r, "F32") for r in rm.STRUCTURES}
    types = {t: (rm.QWEN3, t) for t in INTEGER_TYPES if t not in UNKNOWN_TO_LLAMA_CPP}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        truth = {}
        for name, (recipe, quant_type) in (floats | types).items():
            model = rm.build(recipe, folder / f"{name}.gguf", quant_type)
            truth[name] = rm.reference_logits(model, rm.IDS)
        said = run_llama_cpp(python, [folder / f"{name}.gguf" for name in truth], folder)
        distance = {
            name: float(f"{rm.relative_distance(np.load(folder / f'{name}.npy'), logits):.4g}")
            for name, logits in truth.items()
        }
    return {
        "llama_cpp_python": said["version"],
        "instructions": said["instructions"],
        "float32_weights": {name: distance[name] for name in floats},
        "quant_types": {name: distance[name] for name in types},
    }


def main(python: str) -> None:
    text = json.dumps(measure(python), indent=2)
    (HERE.parent / "models" / "llama_cpp_distances.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
