"""RWKV's tokenizer (``tokenizer.ggml.model`` = ``rwkv``): always the longest token that fits.

Tokens are bytes; the file has them with escapes like those of a string in a program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from oxibonsai.errors import FormatError
from oxibonsai.tokenizer.vocabulary import CONTROL, Metadata, Vocabulary

_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_CONTROLS = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}
_TOKENS_AT_ONCE = 1024


class Rwkv:
    """Takes the longest token at each place."""

    add_space_prefix = False
    composes = False

    def __init__(self, vocabulary: Vocabulary, metadata: Metadata) -> None:
        del metadata
        self._ids: dict[bytes, int] = {}
        for i, text in enumerate(vocabulary.texts):
            try:
                token = self.piece_bytes(text)
            except ValueError as e:
                raise FormatError(f"tokenizer.ggml.tokens[{i}] is {text!r}: {e}") from e
            if token and vocabulary.types[i] != CONTROL:  # nobody may forge those
                self._ids[token] = i
        self._unknown = vocabulary.unk_id
        missing = [b for b in range(256) if bytes([b]) not in self._ids]
        if missing and self._unknown is None:
            raise FormatError(
                f"tokenizer.ggml.tokens has none for the byte {missing[0]:#04x}, and "
                "tokenizer.ggml.unknown_token_id is missing"
            )
        lengths: dict[bytes, set[int]] = {}
        for token in self._ids:
            lengths.setdefault(token[:2], set()).add(len(token))
        # By the first two bytes, the longest first.
        self._lengths = {head: sorted(found, reverse=True) for head, found in lengths.items()}
        self.longest_piece = max(map(len, self._ids), default=1)
        self.lost_bytes: bytes | None = b""

    def encode_text(self, text: str, *, after_special: bool, bounded: bool) -> Iterator[list[int]]:
        """Yield the ids of a text without special tokens, some at a time.

        Args:
            text: Any text.
            after_special, bounded: Make no difference here.
        """
        del after_special, bounded
        data = text.encode()
        found: list[int] = []
        at = 0
        while at < len(data):
            token, size = self._longest(data, at)
            if token is not None:
                found.append(token)
            at += size
            if len(found) >= _TOKENS_AT_ONCE:
                yield found
                found = []
        yield found

    def _longest(self, data: bytes, at: int) -> tuple[int | None, int]:
        for size in self._lengths.get(data[at : at + 2], ()):
            token = self._ids.get(data[at : at + size])
            if token is not None:
                return token, size
        return self._ids.get(data[at : at + 1], self._unknown), 1

    @staticmethod
    def piece_bytes(text: str) -> bytes:
        """Return the bytes that a normal token stands for."""
        return _ESCAPE.sub(_unescape, text.encode("utf-8", "surrogateescape"))


def _unescape(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return bytes([int(match[1], 16)])
    return _CONTROLS.get(match[2], match[2])
