"""Damaged GGUF files beside llama.cpp: what we open it opens too, and finds the same in it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gguf_files
import pytest
from mutations import flips
from test_gguf_hostile import VALID

from oxibonsai import _core
from oxibonsai.errors import FormatError

PROGRAM = Path(__file__).with_name("llama_cpp_verdicts.py")
# llama.cpp reads no arrays of arrays. Files, and the sizes of their data.
FILES = {
    "two tensors": (VALID, 512 + 54),
    "every type of value": (gguf_files.every_value_type(nested=False), 128),
    "many tensors": (gguf_files.many_tensors(50), 50 * 32),
}


class LlamaCpp:
    """Its verdicts, one file after the other."""

    def __init__(self) -> None:
        spec = find_spec("llama_cpp")
        if spec is None or spec.origin is None:
            pytest.skip("needs llama-cpp-python (extra: peers)")
        (library, *_) = Path(spec.origin).parent.glob("lib/libggml-base.*")
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(library)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def verdict(self, path: Path) -> Any:
        """None where it refuses the file."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{path}\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, f"llama.cpp ended on a file that we open: {path.read_bytes()!r}"
        return json.loads(line)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def our_verdict(path: Path) -> Any:
    try:
        file = _core.GgufFile(str(path))
    except FormatError:
        return None
    return {
        "alignment": file.alignment,
        "keys": file.keys(),
        "tensors": [[t.name, t.gguf_id, t.offset, t.nbytes] for t in file.tensors],
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FILES)
def test_what_opens_with_a_flipped_byte_is_what_llama_cpp_reads(name: str, tmp_path: Path) -> None:
    data, size = FILES[name]
    path = tmp_path / "f.gguf"
    llama_cpp = LlamaCpp()
    try:
        path.write_bytes(data)
        assert our_verdict(path) == llama_cpp.verdict(path) is not None
        opened = 0
        for damaged in flips(data, len(data) - size):
            path.write_bytes(damaged)
            ours = our_verdict(path)
            if ours is None:
                continue
            opened += 1
            assert ours == llama_cpp.verdict(path), damaged
        assert opened > 200
    finally:
        llama_cpp.close()
