"""The decoders whose passes are compared: small random folders, each converted to a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dense_models as dm
import remote_folders

from oxibonsai.convert.language_model import convert

_LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32, "rope_theta": 5e5,
}  # fmt: skip
_YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e6,
}  # fmt: skip
_LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
_PLAIN = {"rope_type": "default", "rope_theta": 1e6}
_BY_KIND = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
_GEMMA3 = {
    "num_hidden_layers": 7, "head_dim": 32, "sliding_window": 24, "rope_parameters": _BY_KIND,
}  # fmt: skip

# Decoders that other tests save in other ways.
_OWN = [
    dm.Case("llama", "Llama"),
    dm.Case("llama-tied", "Llama", {"tie_word_embeddings": True, "head_dim": 32}),
    dm.Case("llama-biases", "Llama", {"attention_bias": True}),
    dm.Case("llama3", "Llama", {"rope_parameters": _LLAMA3}),
    dm.Case("llama-linear", "Llama", {"rope_parameters": _LINEAR}),
    dm.Case("llama-yarn", "Llama", {"rope_parameters": _YARN}),
    dm.Case("mistral", "Mistral", {"sliding_window": None}),
    dm.Case("qwen2", "Qwen2", {"rope_parameters": _PLAIN}),
    dm.Case("qwen3", "Qwen3", {"head_dim": 32, "rope_parameters": _YARN}),
    dm.Case("qwen3-tied", "Qwen3", {"tie_word_embeddings": True, "rope_parameters": _PLAIN}),
    dm.Case("gemma3", "Gemma3Text", {**_GEMMA3, "query_pre_attn_scalar": 32}),
    dm.Case(
        "gemma3-caps",
        "Gemma3Text",
        {
            **_GEMMA3,
            "query_pre_attn_scalar": 48,
            "attn_logit_softcapping": 40.0,
            "final_logit_softcapping": 20.0,
        },
    ),
]


@dataclass(frozen=True)
class Decoder:
    """A folder, and the file that it becomes.

    Attributes:
        name: Of the test.
        kind: Of the model, as transformers' classes or ``config.json`` call it.
        save: Writes the folder.
    """

    name: str
    kind: str
    save: Callable[[Path], Any]

    def file(self, folder: Path, dtype: str = "f32") -> Path:
        """Return the converted file, which lies beside the folder that it was made of."""
        if not folder.exists():
            self.save(folder)
        path = folder.with_name(f"{folder.name}.{dtype}.gguf")
        convert(folder, path, dtype=dtype)
        return path


DECODERS = [
    *(Decoder(c.name, c.kind, lambda folder, c=c: dm.save(c, folder)) for c in (*_OWN, *dm.CASES)),  # type: ignore[misc]
    *(
        Decoder(f"{f.name} (remote)", f.name, lambda folder, f=f: remote_folders.save(f, folder))  # type: ignore[misc]
        for f in remote_folders.FOLDERS
        if f.name not in ("rwkv7", "plamo2")
    ),
]
