"""Japanese BERT (``tokenizer.ggml.model`` = ``bert``, ``tokenizer.ggml.pre`` = ``mecab``).

MeCab cuts a text into words by the dictionary UniDic; each word becomes pieces of the vocabulary, or its
characters (``mecab-character``). llama.cpp knows neither name: with it such files have other tokens.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator
from typing import Any

from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.tokenizer.pieces import pieces
from oxibonsai.tokenizer.vocabulary import (
    CONTROL,
    Metadata,
    Vocabulary,
    flag,
    refuse_broken_texts,
    text_value,
)
from oxibonsai.tokenizer.wordpiece import LONGEST_WORD, SPACE, library_form

WORDS, CHARACTERS = "mecab", "mecab-character"
# After the end of a sentence, past which MeCab's choices do not reach.
_BORDER = re.compile("(?<=[\n\u3002\uff01\uff1f])")


class JapaneseWordPiece:
    """Words by MeCab, cut into the longest pieces that the vocabulary has."""

    add_space_prefix = True  # of a decoded text, a leading space is no part
    composes = False
    lost_bytes: bytes | None = None
    # A word of any length may be one unknown token.
    longest_piece = LONGEST_WORD

    def __init__(self, vocabulary: Vocabulary, metadata: Metadata) -> None:
        from tokenizers.models import WordPiece as Model

        if vocabulary.unk_id is None:
            raise FormatError("tokenizer.ggml.unknown_token_id is missing: WordPiece needs it")
        refuse_broken_texts(vocabulary.texts)
        forms = [
            text if kind == CONTROL else library_form(text)
            for text, kind in zip(vocabulary.texts, vocabulary.types, strict=True)
        ]
        self._ids: dict[str, int] = {}
        for i, form in enumerate(forms):
            self._ids.setdefault(form, i)
        self._unknown = vocabulary.unk_id
        self._lower = flag(metadata, "tokenizer.ggml.normalizer.lowercase", False)
        self._by_character = text_value(metadata, "tokenizer.ggml.pre") == CHARACTERS
        self._pieces = Model(
            self._ids, unk_token=forms[self._unknown], max_input_chars_per_word=LONGEST_WORD
        )
        self._mecab = _tagger()
        self._lock = threading.Lock()  # a tagger has one text at a time

    def encode_text(self, text: str, *, after_special: bool, bounded: bool) -> Iterator[list[int]]:
        """Yield the ids of a text without special tokens, piece by piece.

        Args:
            text: Any text.
            after_special: Makes no difference here.
            bounded: See :func:`oxibonsai.tokenizer.pieces.pieces`.
        """
        del after_special
        for part in pieces(text, lambda: _BORDER, bounded=bounded):
            plain = unicodedata.normalize("NFKC", part).replace("\0", "")  # which ends C's texts
            with self._lock:
                words = [word.surface for word in self._mecab(plain)]
            yield [i for word in words for i in self._of_word(word)]

    def _of_word(self, word: str) -> list[int]:
        if self._lower:
            word = word.lower()
        if self._by_character:
            return [self._ids.get(character, self._unknown) for character in word]
        return [i for part in word.split() for i in self._of_part(part)]

    def _of_part(self, part: str) -> list[int]:
        return [token.id for token in self._pieces.tokenize(part)]

    @staticmethod
    def piece_bytes(text: str) -> bytes:
        """Return the bytes that a normal token stands for; those that begin a word with a space."""
        return text.replace(SPACE, " ", 1).encode("utf-8", "surrogateescape")


def _tagger() -> Any:
    """Load MeCab with the dictionary UniDic; where it is missing, the error says what to install."""
    try:
        import fugashi
        import unidic_lite
    except ImportError as e:
        raise UnsupportedError(
            f"Japanese BERT needs MeCab and a dictionary ({e}): pip install 'oxibonsai[ja]'"
        ) from e
    folder = unidic_lite.DICDIR
    return fugashi.GenericTagger(f'-d "{folder}" -r "{folder}/mecabrc"')
