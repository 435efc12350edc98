"""The random models that see as folders: what the hub has of them, with tokens for pictures."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from hf_folders import write_tokenizer
from random_vision import MEAN, STD, Eyed
from safetensors.torch import load_file, save_file

RECORDED = Path(__file__).parents[1] / "truth/vision/llama_cpp_towers.json"
TOKENS = (
    "<|image_pad|>", "<image_soft_token>", "<image>", "[IMG]", "[IMG_BREAK]", "[IMG_END]",
    "<IMG_CONTEXT>", "<start_of_image>", "<|vision_start|>", "<|vision_end|>",
    "<|image|>", "<|patch|>", "<|image_start|>", "<|image_end|>", "<|tile_x_separator|>",
    "<|tile_y_separator|>",
)  # fmt: skip
# Of each family's own processor, beside what all have.
_PREPARED: dict[str, dict[str, Any]] = {
    "gemma3": {"image_seq_length": 16},
    "idefics3": {"size": {"longest_edge": 48}},
    "llama4": {"max_patches": 6},
}


def save(eyed: Eyed, name: str, folder: Path) -> Path:
    """Writes a model's folder and returns it."""
    eyed.truth.save_pretrained(folder)
    _drop_ids(folder / "config.json")
    (folder / "generation_config.json").unlink(missing_ok=True)
    write_tokenizer(folder, spm=name == "gemma3")
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    plain = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
    first = max(
        *tokenizer["model"]["vocab"].values(), *(t["id"] for t in tokenizer["added_tokens"])
    )
    for number, text in enumerate(TOKENS, first + 1):
        tokenizer["added_tokens"].append({"id": number, "content": text, "special": True, **plain})
    file.write_text(json.dumps(tokenizer))
    prepared = {"image_mean": MEAN, "image_std": STD, **_PREPARED.get(name, {})}
    (folder / "preprocessor_config.json").write_text(json.dumps(prepared))
    return folder


def _drop_ids(path: Path) -> None:
    """Tokens at the ends of texts, which transformers has outside of so small a vocabulary."""
    config = json.loads(path.read_text())
    for part in (config, config["text_config"]):
        for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
            part.pop(name, None)
    path.write_text(json.dumps(config))


def rename(folder: Path, old: str, new: str) -> None:
    """Renames parameters by their beginning."""
    file = folder / "model.safetensors"
    tensors = {
        new + n.removeprefix(old) if n.startswith(old) else n: t for n, t in load_file(file).items()
    }
    save_file(tensors, file)


def summary(path: Path) -> dict[str, Any]:
    """Keys of an mmproj file, and type, shape and a hash of the bytes of each tensor."""
    reader = gguf.GGUFReader(path)
    keys = {
        k: f.contents()
        for k, f in reader.fields.items()
        if k.startswith("clip.")
        or k in ("general.architecture", "general.type", "general.file_type")
    }
    tensors = {}
    for tensor in reader.tensors:
        digest = hashlib.blake2b(np.ascontiguousarray(tensor.data).tobytes(), digest_size=6)
        shape = "x".join(map(str, tensor.shape))
        tensors[tensor.name] = f"{tensor.tensor_type.name} {shape} {digest.hexdigest()}"
    return {"keys": keys, "tensors": tensors}


def recorded() -> dict[str, Any]:
    """What llama.cpp's converter makes of the folders, by name."""
    found: dict[str, Any] = json.loads(RECORDED.read_text())
    return found
