"""Tokenizers, built from the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property

from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.tokenizer import japanese
from oxibonsai.tokenizer.algorithm import Algorithm
from oxibonsai.tokenizer.atoms import Atoms
from oxibonsai.tokenizer.byte_level import ByteLevelBpe
from oxibonsai.tokenizer.character_bpe import CharacterBpe
from oxibonsai.tokenizer.composition import Spelled, composed
from oxibonsai.tokenizer.dna import HybridDna
from oxibonsai.tokenizer.pieces import Watch
from oxibonsai.tokenizer.plamo2 import Plamo2
from oxibonsai.tokenizer.pre_tokenizers import (
    PRE_TOKENIZERS,
    WHITE_SPACE,
    PreTokenizer,
    pre_tokenizer,
)
from oxibonsai.tokenizer.rwkv import Rwkv
from oxibonsai.tokenizer.spm import SpmBpe, byte_of
from oxibonsai.tokenizer.stream import StreamDecoder
from oxibonsai.tokenizer.stripping import Stripping, read_stripping
from oxibonsai.tokenizer.unigram import Unigram
from oxibonsai.tokenizer.vocabulary import (
    BYTE,
    CONTROL,
    UNKNOWN,
    USER_DEFINED,
    Metadata,
    Vocabulary,
    read_vocabulary,
    text_value,
)
from oxibonsai.tokenizer.wordpiece import WordPiece

__all__ = ["StreamDecoder", "Tokenizer", "Watch"]

_NO_STRIPS = Stripping()
_T5_IDS = {"padding": 0, "eos": 1, "unknown": 2}  # T5's, which llama.cpp takes too


class Tokenizer:
    """Text to ids and back.

    Attributes:
        vocabulary: The token table.
        add_bos: Whether ``encode`` puts a bos first, as the model wants it.
        special_ids: Control tokens, which ``decode`` leaves out.
        eos_ids: Every id that ends a generation.
    """

    def __init__(
        self, vocabulary: Vocabulary, algorithm: Algorithm, strips: Stripping = _NO_STRIPS
    ) -> None:
        self.vocabulary = vocabulary
        self.add_bos = vocabulary.add_bos and vocabulary.bos_id is not None
        self.special_ids = vocabulary.special_ids
        self.eos_ids = vocabulary.end_ids
        self.strips_leading_space = algorithm.add_space_prefix
        self._algorithm = algorithm
        texts, types = vocabulary.texts, vocabulary.types
        special = (UNKNOWN, CONTROL, USER_DEFINED)
        atoms = [(t, i) for i, t in enumerate(texts) if types[i] in special]
        self._strips = strips
        self._atoms = Atoms(atoms)
        self._text_atoms = Atoms((t, i) for t, i in atoms if types[i] == USER_DEFINED)

    @classmethod
    def from_gguf(cls, metadata: Metadata) -> Tokenizer:
        """Read ``tokenizer.ggml.*``.

        Raises:
            UnsupportedError: The tokenizer or pre-tokenizer is of a kind not known.
            FormatError: The metadata contradict themselves.
        """
        model = text_value(metadata, "tokenizer.ggml.model")
        if model is None:
            raise FormatError("tokenizer.ggml.model is missing: the file has no tokenizer")
        if model not in _MODELS:
            known = ", ".join(_MODELS)
            raise UnsupportedError(f"tokenizer.ggml.model is {model!r}; known are {known}")
        vocabulary, algorithm = _MODELS[model](metadata)
        return cls(vocabulary, algorithm, read_stripping(metadata, vocabulary))

    @property
    def vocab_size(self) -> int:
        """Tokens in the table."""
        return len(self.vocabulary.texts)

    @property
    def bos_id(self) -> int | None:
        """Beginning of a text."""
        return self.vocabulary.bos_id

    @property
    def eos_id(self) -> int | None:
        """End of a text."""
        return self.vocabulary.eos_id

    @property
    def unk_id(self) -> int | None:
        """Stands for what the vocabulary lacks."""
        return self.vocabulary.unk_id

    @property
    def pad_id(self) -> int | None:
        """Fills up a batch."""
        return self.vocabulary.pad_id

    def encode(
        self,
        text: str,
        *,
        add_special: bool = True,
        parse_special: bool = False,
        watch: Watch | None = None,
    ) -> list[int]:
        """Ids of a text.

        A long one is worked on in pieces: what it takes beside the ids does not grow with it.

        Args:
            text: Any text.
            add_special: Put bos first and eos last where the model wants them.
            parse_special: Let the text of a control token become that token. Leave it off for text
                from users, or they can forge turns of a chat.
            watch: Called between pieces, some times in a second, with the number of ids so far; what
                it raises ends the work. With it a text is refused that can't be cut into pieces.

        Raises:
            RequestError: The text is no string, holds half a surrogate pair, or can't be cut although
                ``watch`` wants it.
        """
        if not isinstance(text, str):
            raise RequestError(f"a text is a string, not {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as e:
            raise RequestError(f"the text holds half a surrogate pair at index {e.start}") from e
        ids: list[int] = []
        if add_special and self.add_bos and self.bos_id is not None:
            ids.append(self.bos_id)
        after_special = True
        parts = (self._atoms if parse_special else self._text_atoms).cut(text)
        for part in self._strips.apply(parts):
            if isinstance(part, int):
                ids.append(part)
                after_special = True
            elif part:
                bounded = watch is not None
                for more in self._algorithm.encode_text(
                    part, after_special=after_special, bounded=bounded
                ):
                    ids += more
                    if watch is not None:
                        watch(len(ids))
                after_special = False
            if watch is not None:
                watch(len(ids))
        if add_special and self.vocabulary.add_eos and self.eos_id is not None:
            ids.append(self.eos_id)
        return ids

    def spelling(self, text: str, *, parse_special: bool = False) -> Iterator[Spelled]:
        """Yield the characters that the tokens of a text spell, each with its index in the text.

        A tokenizer that composes spells an e and the accent behind it as one letter.
        """
        if not self._algorithm.composes:
            yield from ((c, i) for i, c in enumerate(text))
            return
        at = 0
        for part in (self._atoms if parse_special else self._text_atoms).cut(text):
            if isinstance(part, int):
                atom = self.vocabulary.texts[part]
                yield from ((c, at + i) for i, c in enumerate(atom))
                at += len(atom)
            else:
                yield from ((c, at + i) for c, i in composed(part))
                at += len(part)

    def least_tokens(self, text: str) -> int:
        """How many tokens a text has at least, by its length alone; without tokenizing it."""
        lost = self._algorithm.lost_bytes
        if lost is None:
            return 0
        return -(-len(text.encode().translate(None, lost)) // self._longest_token)

    @cached_property
    def _longest_token(self) -> int:
        """Bytes of a text that one token stands for at most."""
        table = zip(self.vocabulary.texts, self.vocabulary.types, strict=True)
        atoms = (t for t, kind in table if kind in (CONTROL, USER_DEFINED))
        whole = (len(t.encode("utf-8", "surrogateescape")) for t in atoms)
        return max([self._algorithm.longest_piece, *whole])

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that a token stands for; a special one's own text."""
        try:
            known = 0 <= token < self.vocab_size
        except TypeError as e:
            raise RequestError(f"a token id is an integer, not {token!r:.80}") from e
        if not known:
            raise RequestError(f"token id {token} is outside the vocabulary of {self.vocab_size}")
        text, kind = self.vocabulary.texts[token], self.vocabulary.types[token]
        if kind == BYTE:
            value = byte_of(text)
            return bytes([value]) if value is not None else text.encode()
        if kind in (CONTROL, USER_DEFINED):
            return text.encode("utf-8", "surrogateescape")
        return self._algorithm.piece_bytes(text)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Text of ids; bytes that are no UTF-8 become U+FFFD."""
        stream = StreamDecoder(self, skip_special=skip_special)
        return "".join([*(stream.feed(i) for i in ids), stream.flush()])


def _bpe(metadata: Metadata) -> tuple[Vocabulary, Algorithm]:
    kind = pre_tokenizer(metadata)
    if not kind.byte_level:
        return _character_bpe(metadata, kind)
    vocabulary = read_vocabulary(metadata, add_bos_default=kind.add_bos)
    return vocabulary, ByteLevelBpe(vocabulary, metadata)


def _character_bpe(metadata: Metadata, kind: PreTokenizer) -> tuple[Vocabulary, Algorithm]:
    vocabulary = read_vocabulary(metadata, add_bos_default=kind.add_bos)
    if kind.forces_bos:
        vocabulary = replace(vocabulary, add_bos=True)
    return vocabulary, CharacterBpe(vocabulary, metadata, kind)


def _white_space(metadata: Metadata) -> tuple[Vocabulary, Algorithm]:
    pre = text_value(metadata, "tokenizer.ggml.pre")
    if pre != "whitespace":
        raise UnsupportedError(
            f"tokenizer.ggml.model is 'whitespace', and tokenizer.ggml.pre is {pre!r}; it has to be "
            "'whitespace' too"
        )
    vocabulary = read_vocabulary(metadata, add_bos_default=False)
    return vocabulary, CharacterBpe(vocabulary, metadata, WHITE_SPACE, drops_spaces=True)


def _hybrid_dna(metadata: Metadata) -> tuple[Vocabulary, Algorithm]:
    kind = pre_tokenizer(metadata)
    if not kind.byte_level:
        pre = text_value(metadata, "tokenizer.ggml.pre")
        raise UnsupportedError(f"tokenizer.ggml.pre {pre!r} merges no bytes, as 'hybriddna' does")
    vocabulary = read_vocabulary(metadata, add_bos_default=kind.add_bos)
    return vocabulary, HybridDna(vocabulary, metadata)


def _spm(metadata: Metadata) -> tuple[Vocabulary, Algorithm]:
    vocabulary = read_vocabulary(metadata, add_bos_default=True)
    return vocabulary, SpmBpe(vocabulary, metadata)


def _word_piece(metadata: Metadata) -> tuple[Vocabulary, Algorithm]:
    vocabulary = read_vocabulary(
        metadata,
        add_bos_default=True,
        add_eos_default=True,
        bos_names=("cls", "bos"),
        eos_names=("seperator", "eos"),  # GGUF's spelling
    )
    if text_value(metadata, "tokenizer.ggml.pre") in (japanese.WORDS, japanese.CHARACTERS):
        return vocabulary, japanese.JapaneseWordPiece(vocabulary, metadata)
    return vocabulary, WordPiece(vocabulary, metadata)


def _unigram(metadata: Metadata) -> tuple[Vocabulary, Algorithm]:
    vocabulary = read_vocabulary(
        metadata, add_bos_default=False, add_eos_default=True, default_ids=_T5_IDS
    )
    return vocabulary, Unigram(vocabulary, metadata)


def _plain(
    algorithm: type[Rwkv] | type[Plamo2],
) -> Callable[[Metadata], tuple[Vocabulary, Algorithm]]:
    def read(metadata: Metadata) -> tuple[Vocabulary, Algorithm]:
        vocabulary = read_vocabulary(metadata, add_bos_default=False)
        return vocabulary, algorithm(vocabulary, metadata)

    return read


_MODELS: dict[str, Callable[[Metadata], tuple[Vocabulary, Algorithm]]] = {
    "gpt2": _bpe,
    "gemma4": lambda metadata: _character_bpe(metadata, PRE_TOKENIZERS["gemma4"]),
    "hybriddna": _hybrid_dna,
    "whitespace": _white_space,
    "llama": _spm,
    "bert": _word_piece,
    "t5": _unigram,
    "rwkv": _plain(Rwkv),
    "plamo2": _plain(Plamo2),
}
