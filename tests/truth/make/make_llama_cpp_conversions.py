"""Records what llama.cpp's converter makes of the random folders of ``dense_models``,
``expert_models`` and ``remote_folders``.

Usage: make_llama_cpp_conversions.py LLAMA_CPP [NAME ...]

LLAMA_CPP is its folder, with conversion/ and gguf-py/. With names, only theirs are recorded anew.

Of each file: its keys, and a hash of the shape and the float32 values of each tensor. Vocabularies
are left out.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dense_models
import expert_models
import remote_folders


def convert(
    folder: Path,
    out: Path,
    write_vocabulary: Callable[[Any], None] = lambda model: None,
    target: Path | None = None,
) -> None:
    """llama.cpp's conversion to float32.

    Args:
        folder: As transformers has it.
        out: The GGUF file.
        write_vocabulary: Writes one with the converter it is given; by default there is none.
        target: The folder of the model that a drafter drafts for.
    """
    import gguf
    import torch
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class

    def read(folder: Path, *_: Any, **__: Any) -> Any:
        # Transformers drops keys that it no longer writes and that the converter asks for.
        return json.loads((folder / "config.json").read_text())

    ModelBase.load_hparams = staticmethod(read)
    kind = get_model_class(get_model_architecture(read(folder), ModelType.TEXT))
    kind.no_mtp = True  # no folder has such layers
    with torch.inference_mode():
        model = kind(folder, gguf.LlamaFileType.ALL_F32, out, target_model_dir=target)
        for part in filter(None, (model, getattr(model, "impl", None))):
            part.set_vocab = lambda part=part: write_vocabulary(part)
        model.write()


def count_tokens(folder: Path, count: int = dense_models.VOCABULARY) -> None:
    """Gemma's converter cuts tables to the number of tokens, which it counts in this file."""
    names = {str(i): i for i in range(count)}
    tokenizer = {"model": {"vocab": names}, "added_tokens": []}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def main(llama_cpp: str, *names: str) -> None:
    sys.path[:0] = [llama_cpp, f"{llama_cpp}/gguf-py"]
    import conversions  # reads files with the gguf package, which must be that of the converter

    logging.disable(logging.WARNING)
    found = json.loads(conversions.RECORDED.read_text()) if names else {}
    for case in (*dense_models.CASES, *expert_models.CASES):
        if not case.converted_by_llama_cpp or (names and case.name not in names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            dense_models.save(case, Path(folder) / "model")
            count_tokens(Path(folder) / "model")
            convert(Path(folder) / "model", Path(folder) / "model.gguf")
            found[case.name] = conversions.summary(Path(folder) / "model.gguf")
    for remote in (f for f in remote_folders.FOLDERS if f.converted_by_llama_cpp):
        if names and remote.name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            remote_folders.save(remote, Path(folder) / "model")
            convert(Path(folder) / "model", Path(folder) / "model.gguf")
            found[remote.name] = conversions.summary(Path(folder) / "model.gguf")
    conversions.RECORDED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
