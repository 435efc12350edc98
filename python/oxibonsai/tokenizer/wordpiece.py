"""WordPiece (``tokenizer.ggml.model`` = ``bert``) on the `tokenizers` library.

GGUF writes the piece that begins a word as ``\u2581piece`` and one that goes on as ``piece``; the
library wants ``piece`` and ``##piece``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from oxibonsai.errors import FormatError
from oxibonsai.tokenizer.pieces import pieces
from oxibonsai.tokenizer.vocabulary import CONTROL, Metadata, Vocabulary, flag, refuse_broken_texts

SPACE = "\u2581"
LONGEST_WORD = 100  # characters; BERT takes a longer one as unknown
# Before white space, punctuation and Chinese characters, all of which end a word.
BORDER = re.compile(r"(?=[\t\n\r !-/:-@\[-`{-~\u4e00-\u9fa5])")


class WordPiece:
    """Cuts words into the longest pieces that the vocabulary has, from the left."""

    add_space_prefix = True  # of a decoded text, a leading space is no part
    composes = False
    # White space is dropped, and a word of any length may be one unknown token.
    longest_piece = LONGEST_WORD
    lost_bytes: bytes | None = None

    def __init__(self, vocabulary: Vocabulary, metadata: Metadata) -> None:
        from tokenizers import Tokenizer as FastTokenizer
        from tokenizers.models import WordPiece as Model
        from tokenizers.normalizers import BertNormalizer
        from tokenizers.pre_tokenizers import BertPreTokenizer

        if vocabulary.unk_id is None:
            raise FormatError("tokenizer.ggml.unknown_token_id is missing: WordPiece needs it")
        refuse_broken_texts(vocabulary.texts)
        forms = [
            text if kind == CONTROL else library_form(text)
            for text, kind in zip(vocabulary.texts, vocabulary.types, strict=True)
        ]
        pieces: dict[str, int] = {}
        for i, form in enumerate(forms):
            pieces.setdefault(form, i)
        lower = flag(metadata, "tokenizer.ggml.normalizer.lowercase", True)
        accents = flag(metadata, "tokenizer.ggml.normalizer.strip_accents", lower)
        self._fast = FastTokenizer(
            Model(pieces, unk_token=forms[vocabulary.unk_id], max_input_chars_per_word=LONGEST_WORD)
        )
        self._fast.normalizer = BertNormalizer(lowercase=lower, strip_accents=accents)
        self._fast.pre_tokenizer = BertPreTokenizer()

    def encode_text(self, text: str, *, after_special: bool, bounded: bool) -> Iterator[list[int]]:
        """Yield the ids of a text without special tokens, piece by piece.

        Args:
            text: Any text.
            after_special: Makes no difference here.
            bounded: See :func:`oxibonsai.tokenizer.pieces.pieces`.
        """
        del after_special
        for piece in pieces(text, lambda: BORDER, bounded=bounded):
            yield self._fast.encode(piece, add_special_tokens=False).ids

    @staticmethod
    def piece_bytes(text: str) -> bytes:
        """Return the bytes that a normal token stands for; those that begin a word with a space."""
        return text.replace(SPACE, " ", 1).encode("utf-8", "surrogateescape")


def library_form(text: str) -> str:
    """Return a token as the library writes it."""
    return text[1:] if text.startswith(SPACE) else f"##{text}"
