"""Records the errors of llama.cpp's encoders on pseudo_weights.py's matrices.

Usage: measure_quant_errors.py LIBGGML_BASE, the library libggml-base.so. Writes llama_cpp_errors.json,
which test_encode.py reads. Needs `bench` on PYTHONPATH, as pytest has it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pseudo_weights

from encode import UNKNOWN_TO_PEER, load_peer
from oxibonsai import _core

HERE = Path(__file__).parent


def main() -> None:
    peer = load_peer(Path(sys.argv[1]))
    found: dict[str, dict[str, dict[str, float]]] = {}
    weights = {"plain": None, "weighted": pseudo_weights.importance()}
    for name, use in _core.encoders().items():
        if name in UNKNOWN_TO_PEER or name == "F32":
            continue
        for kind, importance in weights.items():
            if importance is None and use == "needed":
                continue
            for label, values in pseudo_weights.matrices().items():
                blocks = peer(values, name, importance)
                decoded = _core.decode(name, blocks.ravel()).reshape(values.shape)
                error = pseudo_weights.error(decoded, values, importance)
                found.setdefault(name, {}).setdefault(kind, {})[label] = error
    (HERE.parent / "quant" / "llama_cpp_errors.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
