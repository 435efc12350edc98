"""llguidance's view of our tokenizers: the bytes of every token, and which are no text."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from oxibonsai.errors import UnsupportedError
from oxibonsai.tokenizer import Tokenizer
from oxibonsai.tokenizer.vocabulary import BYTE, CONTROL, USER_DEFINED

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_NORMAL = 1
# Opens the name of a special token inside llguidance. No UTF-8 text has this byte.
_MARKER = 0xFF

_lock = threading.Lock()
_made: weakref.WeakKeyDictionary[Tokenizer, dict[int, LLTokenizer]] = weakref.WeakKeyDictionary()


def ll_tokenizer(tokenizer: Tokenizer, vocab_size: int) -> LLTokenizer:
    """Return the tokenizer as llguidance wants it; made once for each vocabulary (about a second).

    Args:
        tokenizer: Of the model.
        vocab_size: Rows of the model's logits; those past the tokenizer's own are never allowed.

    Raises:
        UnsupportedError: The tokenizer names no token that ends a text.
    """
    with _lock:
        sizes = _made.setdefault(tokenizer, {})
        if vocab_size not in sizes:
            sizes[vocab_size] = _make(tokenizer, vocab_size)
        return sizes[vocab_size]


def special_texts(tokenizer: Tokenizer) -> dict[int, str]:
    """Return the tokens that stand for no text unless a grammar names them.

    Beside control tokens these are the user-defined ones that look like a tag: in text their
    letters are spelled out, and a grammar's ``<tool_call>`` means the token.
    """
    table = tokenizer.vocabulary
    ends = set(tokenizer.eos_ids) | {i for i in (tokenizer.bos_id,) if i is not None}
    return {
        i: text
        for i, (text, kind) in enumerate(zip(table.texts, table.types, strict=True))
        if kind == CONTROL
        or i in ends
        or (kind == USER_DEFINED and text.startswith("<") and text.endswith(">"))
    }


def _token_bytes(tokenizer: Tokenizer, vocab_size: int) -> list[bytes]:
    """Return the bytes of each row of the logits; empty ones are never allowed."""
    special = special_texts(tokenizer)
    rows = [b""] * vocab_size
    for i, kind in enumerate(tokenizer.vocabulary.types):
        if i in special:
            rows[i] = special[i].encode("utf-8", "surrogateescape")
        elif kind in (_NORMAL, BYTE, USER_DEFINED):
            text = tokenizer.token_bytes(i)
            rows[i] = b"" if text[:1] == bytes([_MARKER]) else text
    return rows


class _Source:
    """The vocabulary of a tokenizer, as llguidance reads it."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self.eos_token_id = min(tokenizer.eos_ids)
        self.bos_token_id = None
        self.tokens = _token_bytes(tokenizer, vocab_size)
        self.special_token_ids = sorted(special_texts(tokenizer))

    def __call__(self, text: bytes) -> list[int]:
        # Every grammar of ours says `no_forcing`: the model, not llguidance, picks the tokens.
        raise UnsupportedError("llguidance asked to tokenize a text")


def _make(tokenizer: Tokenizer, vocab_size: int) -> LLTokenizer:
    import llguidance

    if not tokenizer.eos_ids:
        raise UnsupportedError(
            "the tokenizer names no token that ends a text: structured output needs one"
        )
    source = llguidance.TokenizerWrapper(_Source(tokenizer, vocab_size))
    return llguidance.LLTokenizer(source, eos_token=sorted(tokenizer.eos_ids))
