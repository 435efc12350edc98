"""Which vision tower beside a model is its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import hub_server
import pytest

from oxibonsai.sources import resolve
from oxibonsai.sources.file_choice import towers
from oxibonsai.sources.model_folder import find_towers

FIND = (
    "import sys; from pathlib import Path; from oxibonsai.sources.model_folder import find_towers\n"
    "print([p.read_text() for p in find_towers(sys.argv[1], Path('Model-Q4.gguf'))])"
)


@pytest.mark.parametrize(
    ("model", "names", "expected"),
    [
        ("Qwen3-VL-2B-Q4_K_M.gguf", ["mmproj-F32.gguf", "mmproj-F16.gguf", "mmproj-BF16.gguf"],
         "mmproj-F16.gguf"),
        ("Qwen3-VL-2B-Q4_K_M.gguf", ["mmproj-gemma-3-4b-F16.gguf", "Qwen3-VL-2B.mmproj-Q8_0.gguf"],
         "Qwen3-VL-2B.mmproj-Q8_0.gguf"),
        ("gemma-3-4b-it-f16.gguf", ["mmproj-qwen-f16.gguf", "MMPROJ-gemma-3-4b-it-f32.gguf"],
         "MMPROJ-gemma-3-4b-it-f32.gguf"),
        ("m-Q1_0.gguf", ["mmproj.gguf", "mmproj.bin", "m.gguf", "README.md"], "mmproj.gguf"),
    ],
)  # fmt: skip
def test_the_likeliest_tower_is_first(model: str, names: list[str], expected: str) -> None:
    assert towers(names, model)[0] == expected
    assert model not in towers([*names, model], model)


def test_towers_lie_in_the_models_folder(tmp_path: Path) -> None:
    model = tmp_path / "a" / "m-Q1_0.gguf"
    model.parent.mkdir()
    assert find_towers(model, model) == []
    for path in (model, tmp_path / "mmproj-m.gguf", model.parent / "mmproj-m-F16.gguf"):
        path.write_bytes(b"x")
    assert find_towers(model.parent, resolve(model.parent)) == [model.parent / "mmproj-m-F16.gguf"]
    assert find_towers(None, tmp_path / "gone" / "m.gguf") == []


def test_the_repository_of_a_model_has_its_tower(tmp_path: Path) -> None:
    def find(home: Path, source: str, **environment: str) -> str:
        with_home = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(home), **environment}
        line = [sys.executable, "-c", FIND, source]
        done = subprocess.run(line, env=with_home, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    with hub_server.running() as hub:
        hub.repositories["org/model"] = {
            "Model-Q4.gguf": b"m", "mmproj-model-f32.gguf": b"large", "mmproj-model-f16.gguf": b"half",
        }  # fmt: skip
        hub.repositories["org/blind"] = {"Model-Q4.gguf": b"m"}
        assert find(tmp_path, "hf:org/model:Q4") == "['half']"
        assert find(tmp_path, "hf:org/model:mmproj-model-f32.gguf") == "['large']"
        assert find(tmp_path, "hf:org/blind") == "[]"
        assert find(tmp_path, "hf:org/model", HF_HUB_OFFLINE="1") == "['half']"
        assert find(tmp_path / "empty", "hf:org/model", HF_HUB_OFFLINE="1") == "[]"
