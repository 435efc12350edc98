"""A tiny random BERT as sentence-transformers saves it: every file that a conversion reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

HIDDEN, FF, LAYERS, HEADS, CONTEXT = 128, 256, 2, 4, 96
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["hello", "world", "un", "believ", "tea", "a", "b", "c", "##able", "##s", "##a", "!", ","]
VOCABULARY = len(SPECIAL) + len(WORDS)
ROWS = 301  # of the token table, more than the vocabulary has texts

CONFIG: dict[str, Any] = {
    "model_type": "bert", "architectures": ["BertModel"], "hidden_size": HIDDEN,
    "intermediate_size": FF, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "max_position_embeddings": CONTEXT, "type_vocab_size": 2, "vocab_size": ROWS,
    "layer_norm_eps": 1e-12, "hidden_act": "gelu", "position_embedding_type": "absolute",
}  # fmt: skip

TOKENIZER: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [
        {"id": i, "special": True, "content": text, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for i, text in enumerate(SPECIAL)
    ],
    "normalizer": {
        "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
        "strip_accents": None, "lowercase": True,
    },
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": None,
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {
        "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {text: i for i, text in enumerate([*SPECIAL, *WORDS])},
    },
}  # fmt: skip

MODULES = [
    {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]


def parameters(seed: int = 3) -> dict[str, npt.NDArray[np.float32]]:
    """Random weights under the names of transformers' BertModel."""
    random = np.random.default_rng(seed)
    found: dict[str, npt.NDArray[np.float32]] = {}

    def normal(name: str, *shape: int, deviation: float, mean: float = 0.0) -> None:
        found[name] = random.normal(mean, deviation, shape).astype(np.float32)

    def norm(name: str) -> None:
        normal(f"{name}.weight", HIDDEN, deviation=0.2, mean=1.0)
        normal(f"{name}.bias", HIDDEN, deviation=0.2)

    def linear(name: str, rows: int, cols: int) -> None:
        normal(f"{name}.weight", rows, cols, deviation=cols**-0.5)
        normal(f"{name}.bias", rows, deviation=0.2)

    rows = {"word": ROWS, "position": CONTEXT, "token_type": 2}
    for name, count in rows.items():
        normal(f"embeddings.{name}_embeddings.weight", count, HIDDEN, deviation=0.5)
    norm("embeddings.LayerNorm")
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{part}", HIDDEN, HIDDEN)
        linear(f"{layer}.attention.output.dense", HIDDEN, HIDDEN)
        norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", FF, HIDDEN)
        linear(f"{layer}.output.dense", HIDDEN, FF)
        norm(f"{layer}.output.LayerNorm")
    linear("pooler.dense", HIDDEN, HIDDEN)
    return found


def head(labels: int, seed: int = 5) -> dict[str, npt.NDArray[np.float32]]:
    """A classifier's head over :func:`parameters`, under the names of BertForSequenceClassification."""
    random = np.random.default_rng(seed)
    found = {f"bert.{name}": values for name, values in parameters().items()}
    weight = random.normal(0.0, 0.3, (labels, HIDDEN)).astype(np.float32)
    return found | {"classifier.weight": weight, "classifier.bias": np.ones(labels, np.float32)}


def write(
    folder: Path,
    *,
    config: dict[str, Any] | None = None,
    tokenizer: dict[str, Any] | None = None,
    pooling: dict[str, Any] | None = None,
    modules: list[dict[str, Any]] | None = None,
    weights: dict[str, npt.NDArray[Any]] | None = None,
) -> Path:
    """Writes the folder, with values of its files replaced."""
    files: dict[str, Any] = {
        "config.json": {**CONFIG, **(config or {})},
        "tokenizer.json": {**TOKENIZER, **(tokenizer or {})},
        "special_tokens_map.json": {
            f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")
        },
        "modules.json": MODULES if modules is None else modules,
        "1_Pooling/config.json": pooling or {"pooling_mode_mean_tokens": True},
    }
    (folder / "1_Pooling").mkdir(parents=True)
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))
    save_file(weights or parameters(), folder / "model.safetensors")
    return folder
