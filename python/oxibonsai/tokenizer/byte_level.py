"""Byte-level BPE (``tokenizer.ggml.model`` = ``gpt2``) on the `tokenizers` library."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.tokenizer.pieces import pieces
from oxibonsai.tokenizer.vocabulary import Metadata, Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as FastTokenizer

# Characters from which on a batch of one pays: it lets other threads run, and keeps no offsets.
_LONG = 4000

_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_QWEN2 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)

# The splits that a text goes through before merging, by the name in tokenizer.ggml.pre.
PRE_TOKENIZERS: dict[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "gpt-2": (_GPT2,),
    "llama-bpe": (_LLAMA3,),
    "qwen2": (_QWEN2,),
    "qwen35": (_QWEN35,),
    "smollm": (r"\p{N}", _GPT2),
}
# Where one match of each of these splits ends and the next begins, whatever is around: a space after
# anything else than white space, and what is neither letter nor digit after one of them. Digits and
# letters are those on whose kind all versions of Unicode agree.
_BORDER = re.compile(
    r"(?<=\S)(?= )"
    r"|(?<=[0-9A-Za-z\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3])"
    r"(?=[\t\n\r !-/:-@\[-`{-~\u3001\u3002\uff01-\uff0f\uff1a-\uff20])"
)
_ALIASES = {"llama3": "llama-bpe", "llama-v3": "llama-bpe", "deepseek-r1-qwen": "qwen2"}


def _byte_alphabet() -> dict[int, str]:
    """The printable character that stands for each byte (GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in printable]
    characters = {b: chr(b) for b in printable}
    return characters | {b: chr(256 + i) for i, b in enumerate(rest)}


BYTE_OF = {c: b for b, c in _byte_alphabet().items()}


def pre_tokenizer_name(metadata: Metadata) -> str:
    """The file's ``tokenizer.ggml.pre``, checked to be a known one."""
    name = metadata.get("tokenizer.ggml.pre", "default")
    name = _ALIASES.get(name, name)
    if name not in PRE_TOKENIZERS:
        raise UnsupportedError(
            f"tokenizer.ggml.pre is {name!r}; known pre-tokenizers are {', '.join(PRE_TOKENIZERS)}"
        )
    return str(name)


class ByteLevelBpe:
    """Splits, then merges bytes by rank.

    Attributes:
        add_space_prefix: Whether a text gets a space in front.
        longest_piece: Bytes of a text in one of its tokens at most.
        lost_bytes: Those that the vocabulary lacks, which get lost; None: there is no telling.
    """

    add_space_prefix = False

    def __init__(self, vocabulary: Vocabulary, metadata: Metadata) -> None:
        self._fast = _build(vocabulary, metadata)
        known = set(vocabulary.texts)
        self.longest_piece = max(map(len, vocabulary.texts))
        self.lost_bytes: bytes | None = bytes(b for c, b in BYTE_OF.items() if c not in known)
        # One number for each id, whatever the number of texts that hold it.
        self._numbers = list(range(len(vocabulary.texts)))

    def encode_text(self, text: str, *, after_special: bool, bounded: bool) -> Iterator[list[int]]:
        """Ids of a text without special tokens, piece by piece.

        Args:
            text: Any text.
            after_special: Makes no difference here.
            bounded: See :func:`oxibonsai.tokenizer.pieces.pieces`.
        """
        del after_special
        for piece in pieces(text, lambda: _BORDER, bounded=bounded):
            if len(piece) < _LONG:
                yield self._fast.encode(piece, add_special_tokens=False).ids
            else:
                found = self._fast.encode_batch_fast([piece], add_special_tokens=False)[0]
                yield [self._numbers[i] for i in found.ids]

    @staticmethod
    def piece_bytes(text: str) -> bytes:
        """Bytes that a normal token stands for."""
        try:
            return bytes(BYTE_OF[c] for c in text)
        except KeyError:
            return text.encode("utf-8", "surrogateescape")


def _build(vocabulary: Vocabulary, metadata: Metadata) -> FastTokenizer:
    from tokenizers import Regex
    from tokenizers import Tokenizer as FastTokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

    pre = pre_tokenizer_name(metadata)
    merges = metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, list):
        raise FormatError("tokenizer.ggml.merges is missing: byte-level BPE needs it")
    texts = vocabulary.texts
    ids = {t: i for i, t in enumerate(texts)}
    pairs = []
    for index, merge in enumerate(merges):
        # The separator is the first space after the first character: a piece never starts with one.
        left, _, right = str(merge)[1:].partition(" ")
        left = str(merge)[:1] + left
        if not right or left not in ids or right not in ids or left + right not in ids:
            raise FormatError(
                f"tokenizer.ggml.merges[{index}] is {merge!r}, which names no two tokens of the vocabulary"
            )
        # The vocabulary's own strings: copies of 150,000 pairs would take tens of megabytes.
        pairs.append((texts[ids[left]], texts[ids[right]]))
    del merges
    model = BPE(vocab=ids, merges=pairs, ignore_merges=pre == "llama-bpe")
    fast = FastTokenizer(model)
    fast.pre_tokenizer = Sequence(
        [
            *(Split(Regex(p), "isolated") for p in PRE_TOKENIZERS[pre]),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return fast
