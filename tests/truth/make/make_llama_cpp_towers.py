"""Records what llama.cpp's converter makes of the towers of the random folders of ``tower_folders``.

Usage: make_llama_cpp_towers.py LLAMA_CPP

LLAMA_CPP is its folder, with conversion/ and gguf-py/. Of each mmproj file, in f16: its keys, and a hash
of each tensor. It knows no tower of LLaVA 1.5 and 1.6, and
not the norms of InternVL's largest by transformers' names.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

UNKNOWN = ("internvl 6B", "llava", "llava 1.6")
# Other names of the same parameters, which it asks for.
RENAMED = {
    "gemma3": {"vision_tower.": "vision_tower.vision_model."},
    "internvl": {
        "vision_tower.": "model.vision_tower.",
        "multi_modal_projector.": "model.multi_modal_projector.",
    },
}


def convert(folder: Path, out: Path) -> None:
    """llama.cpp's conversion of the tower to float16."""
    import gguf
    import torch
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class

    def read(folder: Path, *_: Any, **__: Any) -> Any:
        found = json.loads((folder / "config.json").read_text())
        if found["model_type"] == "internvl":
            found["vision_config"]["architectures"] = ["InternVisionModel"]
        return found

    ModelBase.load_hparams = staticmethod(read)
    architecture = get_model_architecture(read(folder), ModelType.MMPROJ)
    kind = get_model_class(architecture, mmproj=True)
    with torch.inference_mode():
        kind(folder, gguf.LlamaFileType.MOSTLY_F16, out).write()


def main(llama_cpp: str) -> None:
    sys.path[:0] = [llama_cpp, f"{llama_cpp}/gguf-py"]
    import tower_folders  # reads files with the gguf package, which must be that of the converter
    from random_vision import MODELS

    logging.disable(logging.WARNING)
    found = {}
    for name, make in MODELS.items():
        if name in UNKNOWN:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            place = Path(temporary)
            (place / "files").mkdir()
            folder = tower_folders.save(make(place / "files"), name, place / "folder")
            for old, new in RENAMED.get(name, {}).items():
                tower_folders.rename(folder, old, new)
            convert(folder, place / "tower.gguf")
            found[name] = tower_folders.summary(place / "tower.gguf")
    text = json.dumps(found, indent=1, sort_keys=True)
    tower_folders.RECORDED.write_text(text + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
