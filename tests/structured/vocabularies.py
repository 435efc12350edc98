"""Small vocabularies for tests of structures."""

from __future__ import annotations

from typing import Any

import numpy as np

from oxibonsai.tokenizer import Tokenizer
from oxibonsai.tokenizer.byte_level import BYTE_OF

_CHARACTER_OF = {byte: character for character, byte in BYTE_OF.items()}

# Ids of the byte-level vocabulary: a byte is its own token.
END, OTHER_END, TOOL_CALL, MARK = 256, 257, 258, 259
PIECES = ["he", "hel", "hello", "lo", '{"', '":', '"}', "true", "é", "日本", "\n\n", "hello"]


def byte_level(pieces: list[str] = PIECES) -> Tokenizer:
    """Byte-level BPE: 256 bytes, four special tokens, then some pieces (one of them twice)."""
    encoded = ["".join(_CHARACTER_OF[b] for b in piece.encode()) for piece in pieces]
    special = ["<|im_end|>", "<|endoftext|>", "<tool_call>", "<mark>"]
    tokens = [*(_CHARACTER_OF[b] for b in range(256)), *special, *encoded]
    return _tokenizer(
        model="gpt2",
        pre="qwen2",
        tokens=tokens,
        merges=[],
        token_type=np.array([1] * 256 + [3, 3, 4, 3] + [1] * len(pieces), dtype=np.int32),
        eos_token_id=END,
    )


def spm() -> Tokenizer:
    """SentencePiece: unknown, bos, eos, 256 byte tokens, pieces with the mark of a space."""
    pieces = ["▁", "a", "b", "é", "ab", "▁a", "▁▁", "{", "}", '"', '{"', "1", ":", ",", "<0x41>x"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *pieces]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(pieces) - 1) + [5]
    return _tokenizer(
        model="llama",
        tokens=tokens,
        scores=np.array([-float(i) for i in range(len(tokens))], dtype=np.float32),
        token_type=np.array(kinds, dtype=np.int32),
        bos_token_id=1,
        eos_token_id=2,
        unknown_token_id=0,
    )


def _tokenizer(**values: Any) -> Tokenizer:
    return Tokenizer.from_gguf({f"tokenizer.ggml.{k}": v for k, v in values.items()})
