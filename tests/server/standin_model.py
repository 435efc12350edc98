"""Writes the random llama model that llama-server's portable tests were found with.

Run with the paths of ggml-vocab-llama-spm.gguf (tests/truth/vocab) and of the file to write.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter

_VOCAB_SIZE = 32000
_HIDDEN_SIZE = 64
_INTERMEDIATE_SIZE = 128
_LAYERS = 2
_HEADS = 4
_KEY_VALUE_HEADS = 2
_KEY_VALUE_SIZE = _HIDDEN_SIZE // _HEADS * _KEY_VALUE_HEADS


def write(vocabulary: Path, path: Path) -> None:
    """Writes two layers of float32 weights, the same on every run, with the vocabulary's tokens."""
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny-substitute")
    writer.add_context_length(2048)
    writer.add_embedding_length(_HIDDEN_SIZE)
    writer.add_block_count(_LAYERS)
    writer.add_feed_forward_length(_INTERMEDIATE_SIZE)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KEY_VALUE_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(_HIDDEN_SIZE // _HEADS)
    writer.add_vocab_size(_VOCAB_SIZE)
    _copy_tokenizer(vocabulary, writer)
    _add_weights(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy_tokenizer(vocabulary: Path, writer: GGUFWriter) -> None:
    for key, field in GGUFReader(vocabulary).fields.items():
        if key.startswith("tokenizer."):
            if field.types[0] == GGUFValueType.ARRAY:
                writer.add_array(key, field.contents())
            else:
                writer.add_key_value(key, field.contents(), field.types[0])


def _add_weights(writer: GGUFWriter) -> None:
    random = np.random.default_rng(0)

    def add(name: str, rows: int, columns: int, deviation: float = 0.2) -> None:
        values = random.standard_normal((rows, columns)) * deviation
        writer.add_tensor(f"{name}.weight", values.astype(np.float32))

    def add_ones(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(_HIDDEN_SIZE, np.float32))

    add("token_embd", _VOCAB_SIZE, _HIDDEN_SIZE, 1.0)
    add("output", _VOCAB_SIZE, _HIDDEN_SIZE, 0.25)
    add_ones("output_norm")
    for layer in (f"blk.{i}" for i in range(_LAYERS)):
        add_ones(f"{layer}.attn_norm")
        add_ones(f"{layer}.ffn_norm")
        add(f"{layer}.attn_q", _HIDDEN_SIZE, _HIDDEN_SIZE)
        add(f"{layer}.attn_k", _KEY_VALUE_SIZE, _HIDDEN_SIZE)
        add(f"{layer}.attn_v", _KEY_VALUE_SIZE, _HIDDEN_SIZE)
        add(f"{layer}.attn_output", _HIDDEN_SIZE, _HIDDEN_SIZE)
        add(f"{layer}.ffn_gate", _INTERMEDIATE_SIZE, _HIDDEN_SIZE)
        add(f"{layer}.ffn_up", _INTERMEDIATE_SIZE, _HIDDEN_SIZE)
        add(f"{layer}.ffn_down", _HIDDEN_SIZE, _INTERMEDIATE_SIZE)


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
