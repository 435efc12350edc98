"""SentencePiece's unigram model (``tokenizer.ggml.model`` = ``t5``) on the `tokenizers` library.

Of all ways to cut a text into tokens the one with the best sum of scores is taken.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator

from oxibonsai.errors import FormatError
from oxibonsai.tokenizer.charsmap import read_charsmap
from oxibonsai.tokenizer.pieces import pieces
from oxibonsai.tokenizer.spm import joined_to
from oxibonsai.tokenizer.vocabulary import (
    NORMAL,
    UNUSED,
    USER_DEFINED,
    Metadata,
    Vocabulary,
    flag,
    refuse_broken_texts,
)

_SPACE = "\u2581"
_NEVER = re.compile(r"(?!)")


class Unigram:
    """Replaces characters, marks spaces, finds the best cut."""

    composes = False

    def __init__(self, vocabulary: Vocabulary, metadata: Metadata) -> None:
        from tokenizers import Tokenizer as FastTokenizer
        from tokenizers.models import Unigram as Model

        texts, types, scores = vocabulary.texts, vocabulary.types, vocabulary.scores
        if len(scores) != len(texts):
            raise FormatError("tokenizer.ggml.scores is missing: unigram needs one for each token")
        if vocabulary.unk_id is None:
            raise FormatError("tokenizer.ggml.unknown_token_id is missing: unigram needs it")
        refuse_broken_texts(texts)
        normal = [s for s, kind in zip(scores, types, strict=True) if kind == NORMAL]
        if not normal:
            raise FormatError("tokenizer.ggml.token_type has no normal token")
        worst = min(normal)
        rows = []
        used = set()
        for i, (text, kind, score) in enumerate(zip(texts, types, scores, strict=True)):
            if kind in (NORMAL, USER_DEFINED, UNUSED) and text:
                used.add(text)
                rows.append((text, 0.0 if kind == USER_DEFINED else score))
            else:  # never found: no space is left in a text
                rows.append((f" {i}", worst))
        self._fast = FastTokenizer(Model(rows, vocabulary.unk_id, False))
        self.add_space_prefix = flag(metadata, "tokenizer.ggml.add_space_prefix", False)
        self._merges_spaces = flag(metadata, "tokenizer.ggml.remove_extra_whitespaces", False)
        self._charsmap = read_charsmap(metadata)
        self._border = self._find_border(used)
        self.longest_piece = max(len(t.encode("utf-8", "surrogateescape")) for t in texts)
        self.lost_bytes: bytes | None = None  # a replacement may be empty or shorter

    def _find_border(self, texts: set[str]) -> re.Pattern[str]:
        """Return a pattern of borders that no token crosses: between a letter or digit and a space."""
        table = self._charsmap
        if _SPACE not in texts or (table is not None and table.replaces_inner_spaces):
            return _NEVER
        letters = sorted(set(string.ascii_letters + string.digits) - joined_to(_SPACE, texts))
        return re.compile(f"(?<=[{''.join(letters)}])(?= )") if letters else _NEVER

    def encode_text(self, text: str, *, after_special: bool, bounded: bool) -> Iterator[list[int]]:
        """Yield the ids of a text without special tokens, piece by piece.

        Args:
            text: Any text.
            after_special: Makes no difference here.
            bounded: See :func:`oxibonsai.tokenizer.pieces.pieces`.
        """
        del after_special
        begins = True
        for piece in pieces(text, lambda: self._border, bounded=bounded):
            if self._charsmap is not None:
                piece = self._charsmap.apply(piece)
            marked = self._mark_spaces(piece, begins=begins)
            begins = False
            yield self._fast.encode(marked, add_special_tokens=False).ids if marked else []

    def _mark_spaces(self, text: str, *, begins: bool) -> str:
        if self._merges_spaces:
            return "".join(_SPACE + word for word in text.split(" ") if word)
        words = text.lstrip(" ")
        if self.add_space_prefix and begins and words:
            text = text[: len(text) - len(words)] + " " + words
        return text.replace(" ", _SPACE)

    @staticmethod
    def piece_bytes(text: str) -> bytes:
        """Return the bytes that a normal token stands for."""
        return text.replace(_SPACE, " ").encode("utf-8", "surrogateescape")
