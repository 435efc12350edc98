"""Records llama.cpp's hidden states of the random files of ``encoder_models``, and its conversions.

Usage: make_llama_cpp_encoders.py PYTHON LLAMA_CPP   (an interpreter that has llama-cpp-python; the
folder of llama.cpp, with conversion/ and gguf-py/)
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

RECORDED = Path(__file__).parents[1] / "models" / "llama_cpp_encoders.json"
POSITIONS = (0, 40, 89)


def main(python: str, llama_cpp: str) -> None:
    sys.path[:0] = [llama_cpp, f"{llama_cpp}/gguf-py"]
    import conversions  # reads files with the gguf package, which must be that of the converter
    import encoder_models as em
    import numpy as np
    from make_llama_cpp_conversions import convert

    logging.disable(logging.WARNING)
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ids.json").write_text(json.dumps(em.IDS))
        paths = {c.name: folder / f"{c.name}.gguf" for c in em.REMOTE}
        for case in em.REMOTE:
            em.write(case, paths[case.name])
        program = Path(__file__).with_name("llama_cpp_states.py")
        subprocess.run(
            [python, str(program), str(folder / "ids.json"), *map(str, paths.values())], check=True
        )
        for case in em.REMOTE:
            rows = np.load(paths[case.name].with_suffix(".npy"))
            found[case.name] = [[float(f"{v:.6g}") for v in rows[i]] for i in POSITIONS]
        for encoder in (*em.ENCODERS, *em.CLASSIFIERS, *em.SEQ2SEQ):
            if encoder.converted_by_llama_cpp:
                em.save(encoder, folder / encoder.name)
                pieces = {str(i): i for i in range(em.VOCABULARY)}
                tokenizer = {"model": {"type": "WordPiece", "vocab": pieces}, "added_tokens": []}
                (folder / encoder.name / "tokenizer.json").write_text(json.dumps(tokenizer))
                convert(folder / encoder.name, folder / "converted.gguf")
                found[f"converted {encoder.name}"] = conversions.summary(folder / "converted.gguf")
    RECORDED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
