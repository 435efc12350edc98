"""The files of a text encoder: a language model of which only the first layers run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import Device
from oxibonsai.diffusion.folder_tensors import FolderTensors, read_json
from oxibonsai.diffusion.network import Network
from oxibonsai.diffusion.text_encoder import LAYERS, TextEncoder
from oxibonsai.errors import SourceError
from oxibonsai.files.cache_folder import cache_folder
from oxibonsai.files.progress import Progress
from oxibonsai.files.scratch_folder import scratch_folder
from oxibonsai.tokenizer import Tokenizer

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
)


@dataclass(frozen=True)
class TextFiles:
    """Where a text encoder is loaded from, each time that one is needed.

    Attributes:
        checkpoint: A GGUF file of it; of its vocabulary alone where there is a ``network``.
        network: Its tensors by Hugging Face's names, if they lie in a folder.
    """

    checkpoint: Checkpoint
    network: Network | None = None

    def load(
        self, device: Device, layers: Sequence[int] = LAYERS, progress: Progress | None = None
    ) -> TextEncoder:
        """Packs the layers that are needed for a device; arguments as of :class:`TextEncoder`."""
        tokenizer = Tokenizer.from_gguf(self.checkpoint.file)
        if self.network is None:
            return TextEncoder.from_checkpoint(self.checkpoint, device, tokenizer, layers, progress)
        config, tensors = self.network.config, self.network.tensors
        encoder = TextEncoder.load(config, tensors, device, tokenizer, layers, progress)
        tensors.release()
        return encoder


def open_text_encoder(path: Path, tokenizer: Path | None) -> TextFiles:
    """Return a text encoder with its tokenizer.

    Args:
        path: A GGUF file; a folder with ``config.json`` and safetensors, or the file in such a folder.
        tokenizer: A folder with ``tokenizer.json``; None: ``path`` has one.

    Raises:
        SourceError: There is no room for the vocabulary.
        FormatError, UnsupportedError: A file is damaged, or of another kind.
    """
    if path.suffix == ".gguf" and path.is_file():
        if tokenizer is not None:
            raise SourceError(f"{path} has its tokenizer inside; leave {tokenizer} away")
        return TextFiles(Checkpoint(path))
    folder = path if path.is_dir() else path.parent
    network = Network(read_json(folder / "config.json"), FolderTensors(path))
    return TextFiles(_vocabulary(folder, tokenizer), network)


def _vocabulary(folder: Path, tokenizer: Path | None) -> Checkpoint:
    """As a file in the cache folder that loses its name once it is mapped."""
    from oxibonsai.convert.language_model import convert

    place = cache_folder()
    try:
        with scratch_folder(place) as scratch:
            joined = _join(folder, tokenizer or folder, scratch / "text_encoder")
            file = scratch / "text_encoder.gguf"
            for note in convert(joined, file, weights=False):
                warnings.warn(note, stacklevel=2)
            checkpoint = Checkpoint(file)
            checkpoint.remember_identity(folder)
            return checkpoint
    except OSError as e:
        raise SourceError(f"cannot open {folder} through {place}: {e}") from e


def _join(folder: Path, tokenizer: Path, joined: Path) -> Path:
    """Return a folder of links to a network's configuration and to its tokenizer."""
    joined.mkdir()
    os.symlink((folder / "config.json").resolve(), joined / "config.json")
    for name in _TOKENIZER_FILES:
        if (tokenizer / name).is_file():
            os.symlink((tokenizer / name).resolve(), joined / name)
    return joined
