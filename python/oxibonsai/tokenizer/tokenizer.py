"""Tokenizers: text to ids and back, by the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
from oxibonsai.tokenizer.offsets import Offset, find_offsets
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

_NO_STRIPS = Stripping()
_T5_IDS = {"padding": 0, "eos": 1, "unknown": 2}  # T5's, which llama.cpp takes too

# Special tokens around one text or two, None where a text goes, each with the number of its text.
Frame = list[tuple[int | None, int]]


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
        self._strips = strips

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

    def frame(self, *, pair: bool = False) -> Frame:
        """Return the special tokens around one text, or around two.

        Args:
            pair: Two texts.
        """
        v = self.vocabulary
        before = [v.bos_id] if self.add_bos else []
        after = [v.eos_id] if v.add_eos and v.eos_id is not None else []
        frame = [(t, 0) for t in (*before, None, *after)]
        if not pair:
            return frame
        # Where both ends are marked, a pair has one beginning, as BERT's.
        again = [] if before and after else before
        if v.add_sep and v.sep_id is not None:  # RoBERTa's, which alone tells the texts apart
            return frame + [(t, 0) for t in (v.sep_id, None, *after)]
        return frame + [(t, 1) for t in (*again, None, *after)]

    @cached_property
    def _around(self) -> tuple[list[int], list[int]]:
        """Special tokens before and behind one text."""
        tokens = [token for token, _ in self.frame()]
        at = tokens.index(None)
        before, behind = tokens[:at], tokens[at + 1 :]
        return [t for t in before if t is not None], [t for t in behind if t is not None]

    def encode(
        self,
        text: str,
        *,
        add_special: bool = True,
        parse_special: bool = False,
        watch: Watch | None = None,
    ) -> list[int]:
        """Return the ids of a text.

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
        check_text(text)
        before, behind = self._around if add_special else ([], [])
        ids = list(before)
        for more in self._ids(text, parse_special=parse_special, bounded=watch is not None):
            ids += more
            if watch is not None:
                watch(len(ids))
        return ids + behind

    def _ids(self, text: str, *, parse_special: bool, bounded: bool) -> Iterator[Sequence[int]]:
        """Yield the ids of a text, piece by piece; none now and then in a long one."""
        after_special = True
        for part in self._strips.apply(self._cut(text, parse_special)):
            if isinstance(part, int):
                yield [part]
                after_special = True
                continue
            if part:
                yield from self._algorithm.encode_text(
                    part, after_special=after_special, bounded=bounded
                )
                after_special = False
            yield []

    def _cut(self, text: str, parse_special: bool) -> Iterator[str | int]:
        """Yield the tokens that stand in a text as they are, and the texts between them."""
        atoms = self._atoms if parse_special else self._text_atoms
        return atoms.cut(text)

    @cached_property
    def _atoms(self) -> Atoms:
        return self._atoms_of(UNKNOWN, CONTROL, USER_DEFINED)

    @cached_property
    def _text_atoms(self) -> Atoms:
        return self._atoms_of(USER_DEFINED)

    def _atoms_of(self, *kinds: int) -> Atoms:
        v = self.vocabulary
        table = enumerate(zip(v.texts, v.types, strict=True))
        return Atoms((text, i) for i, (text, kind) in table if kind in kinds)

    def encode_with_offsets(
        self, text: str, *, parse_special: bool = False
    ) -> tuple[list[int], list[Offset]]:
        """Return the ids of a text without what frames it, and where each stands in the text.

        Args:
            text: Any text.
            parse_special: As in :meth:`encode`.

        Raises:
            UnsupportedError: The tokens don't spell the text.
        """
        ids = self.encode(text, add_special=False, parse_special=parse_special)
        spelling = self.spelling(text, parse_special=parse_special)
        return ids, find_offsets(map(self.token_bytes, ids), spelling)

    def spelling(self, text: str, *, parse_special: bool = False) -> Iterator[Spelled]:
        """Yield the characters that the tokens of a text spell, each with its index in the text.

        A tokenizer that composes spells an e and the accent behind it as one letter.
        """
        if not self._algorithm.composes:
            yield from ((c, i) for i, c in enumerate(text))
            return
        at = 0
        for part in self._cut(text, parse_special):
            if isinstance(part, int):
                atom = self.vocabulary.texts[part]
                yield from ((c, at + i) for i, c in enumerate(atom))
                at += len(atom)
            else:
                yield from ((c, at + i) for c, i in composed(part))
                at += len(part)

    def least_tokens(self, text: str) -> int:
        """Return how many tokens a text has at least, by its length alone; without tokenizing it."""
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
        self._check_id(token)
        text, kind = self.vocabulary.texts[token], self.vocabulary.types[token]
        if kind == BYTE:
            value = byte_of(text)
            return bytes([value]) if value is not None else text.encode()
        if kind in (CONTROL, USER_DEFINED):
            return text.encode("utf-8", "surrogateescape")
        return self._algorithm.piece_bytes(text)

    def _check_id(self, token: int) -> None:
        try:
            known = 0 <= token < self.vocab_size
        except TypeError as e:
            raise RequestError(f"a token id is an integer, not {token!r:.80}") from e
        if not known:
            raise RequestError(f"token id {token} is outside the vocabulary of {self.vocab_size}")

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Return the text of ids; bytes that are no UTF-8 become U+FFFD."""
        skipped = self.special_ids if skip_special else frozenset[int]()
        text = b"".join(self.token_bytes(i) for i in ids if i not in skipped)
        if self.strips_leading_space:
            text = text.removeprefix(b" ")
        return text.decode("utf-8", "replace")


def check_text(text: str) -> None:
    """Check that a text is one.

    Raises:
        RequestError: It is no string, or holds half a surrogate pair.
    """
    if not isinstance(text, str):
        raise RequestError(f"a text is a string, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise RequestError(f"the text holds half a surrogate pair at index {e.start}") from e


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
