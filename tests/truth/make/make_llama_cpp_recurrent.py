"""Records what llama.cpp's converter makes of the random models with recurrent state.

Usage: make_llama_cpp_recurrent.py FOLDER_OF_LLAMA_CPP [NAME ...]

With names, only theirs are recorded anew.

It needs torch, transformers and the converter's own requirements. The converter knows tokenizers by
hashes of texts, so the random one is given a name.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TRUTH = HERE.parent / "llama_cpp_recurrent.json"
_CONVERT = """
import runpy, sys
root = sys.argv.pop(1)
sys.path[:0] = [root, root + "/gguf-py"]
from conversion import base
base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
base.TextModel._set_vocab_llama_hf = base.TextModel._set_vocab_gpt2
runpy.run_path(root + "/convert_hf_to_gguf.py", run_name="__main__")
"""


def digest(data: bytes) -> str:
    """Enough of a hash to tell tensors apart."""
    return hashlib.sha256(data).hexdigest()[:16]


def convert(llama_cpp: Path, folder: Path, out: Path, options: list[str]) -> None:
    """Runs the converter."""
    command = [sys.executable, "-c", _CONVERT, str(llama_cpp), str(folder)]
    subprocess.run([*command, "--outtype", "f32", "--outfile", str(out), *options], check=True)


def record(path: Path, architecture: str) -> dict[str, Any]:
    """Keys of the architecture; shape and digest of each tensor."""
    from oxibonsai.checkpoint.gguf import GgufModel

    file = GgufModel.open(path)
    prefix = f"{architecture}."
    keys = {
        key.removeprefix(prefix): value.tolist() if hasattr(value, "tolist") else value
        for key in file.keys()  # noqa: SIM118 - not a dict
        if key.startswith(prefix) and (value := file.get(key)) is not None
    }
    tensors = {
        t.name: [list(t.shape), digest(bytes(file.tensor_bytes(t.name)))] for t in file.tensors
    }
    return {"keys": keys, "tensors": tensors}


def main(llama_cpp: Path, *names: str) -> None:
    import recurrent_models as rm

    found = json.loads(TRUTH.read_text()) if names else {}
    for case in rm.CASES:
        if names and case.name not in names:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder, out = Path(temporary) / "model", Path(temporary) / "model.gguf"
            case.save(folder)
            options = ["--no-mtp"] if case.architecture.startswith("qwen3") else []
            convert(llama_cpp, folder, out, options)
            found[case.name] = record(out, case.architecture)
    TRUTH.write_text(json.dumps(found, indent=None, separators=(",", ":"), sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
