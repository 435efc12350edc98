"""Export a run: a model folder of Hugging Face's libraries, and the GGUF file that convert makes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from transformers import Qwen3ForCausalLM

from oxibonsai.convert.language_model import convert
from oxibonsai.files.whole_file import follow_links
from oxibonsai.train.network import exact_state, plain_network

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)


def check_tokenizer(network: Qwen3ForCausalLM, tokenizer: Path) -> None:
    """Refuse, before the first step, a tokenizer that could not be written after the last.

    Raises:
        FormatError, UnsupportedError: As :func:`oxibonsai.convert.language_model.convert`.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        network.config.save_pretrained(folder)
        _copy_tokenizer(tokenizer, folder)
        convert(folder, folder / "vocabulary.gguf", weights=False)


def _copy_tokenizer(tokenizer: Path, folder: Path) -> None:
    for name in _TOKENIZER_FILES:
        if (tokenizer / name).is_file():
            shutil.copyfile(tokenizer / name, folder / name)


def write_folder(
    network: Qwen3ForCausalLM, weight_format: str, tokenizer: Path, folder: Path
) -> None:
    """Write configuration, float32 safetensors and tokenizer; the folder appears complete.

    The values are those that the network computes with.

    Args:
        network: Quantized or not.
        weight_format: What it was quantized to.
        tokenizer: Folder whose tokenizer, and ``generation_config.json``, is copied.
        folder: Replaced where it exists.
    """
    place = follow_links(folder)
    with tempfile.TemporaryDirectory(dir=place.parent, suffix=".part") as temporary:
        made = Path(temporary) / "model"
        plain_network(network.config, exact_state(network, weight_format)).save_pretrained(made)
        _copy_tokenizer(tokenizer, made)
        if place.exists():
            shutil.rmtree(place)
        made.rename(place)


def write_gguf(folder: Path, weight_format: str, name: str) -> Path:
    """Write ``NAME.gguf`` beside a folder of :func:`write_folder`; nothing is rounded.

    Raises:
        FormatError, UnsupportedError: As :func:`oxibonsai.convert.language_model.convert`, also of
            the tokenizer.
    """
    place = folder.parent / f"{name}.gguf"
    convert(folder, place, dtype="f32" if weight_format == "float" else weight_format, name=name)
    return place
