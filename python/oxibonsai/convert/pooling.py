"""How a sentence-transformers folder makes an embedding of its hidden states."""

from __future__ import annotations

import json

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata
from oxibonsai.errors import FormatError, UnsupportedError

# GGUF's pooling_type by the word in Pooling's configuration, and by its older flags.
_TYPES = {"mean": 1, "cls": 2, "lasttoken": 3}
_FLAGS = {f"pooling_mode_{word}": word for word in ("cls_token", "mean_tokens", "lasttoken")}
_MODULES = {"Transformer", "Pooling", "Normalize"}


def pooling_keys(folder: ModelFolder, architecture: str) -> Metadata:
    """``pooling_type`` where the folder is one of sentence-transformers, else nothing."""
    path = folder.path / "modules.json"
    if not path.is_file():
        return {}
    try:
        modules = {m["type"].rpartition(".")[2]: m["path"] for m in json.loads(path.read_text())}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise FormatError(f"cannot read {path}: {e!r}") from e
    for module in modules:
        if module not in _MODULES:
            raise UnsupportedError(f"{path} has the module {module}, which GGUF has no place for")
    if "Pooling" not in modules:
        return {}
    name = f"{modules['Pooling']}/config.json"
    config = folder.json(name)
    modes = {word.partition("_")[0] for flag, word in _FLAGS.items() if config.get(flag) is True}
    others = {k for k, v in config.items() if k.startswith("pooling_mode_") and v is True}
    if "pooling_mode" in config:
        modes, others = {str(config["pooling_mode"])}, set()
    if len(modes) != 1 or others - _FLAGS.keys() or not modes <= _TYPES.keys():
        raise UnsupportedError(
            f"{folder.path / name}: pooling is {sorted(modes | others)}; GGUF knows one of "
            + ", ".join(_TYPES)
        )
    return {f"{architecture}.pooling_type": (_TYPES[modes.pop()], "u32")}
