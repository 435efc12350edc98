"""White space next to special tokens, which some models drop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from oxibonsai.errors import FormatError
from oxibonsai.tokenizer.vocabulary import CONTROL, UNKNOWN, USER_DEFINED, Metadata, Vocabulary

# Ids of tokens before, and behind, which all white space is dropped. No keys of llama.cpp's, which goes by
# names.
LSTRIP_KEY, RSTRIP_KEY = "tokenizer.ggml.lstrip_token_ids", "tokenizer.ggml.rstrip_token_ids"
_WHITE = " \t\n\v\f\r"
# All of Unicode's.
_ALL_WHITE = (
    _WHITE
    + "\x85\xa0\u1680"
    + "".join(map(chr, range(0x2000, 0x200B)))
    + "\u2028\u2029\u202f\u205f\u3000"
)
_MASKED_NAMES = ("jina-v2-de", "jina-v2-es", "jina-v2-code")  # pre-tokenizers
_MASKED_ARCHITECTURES = ("nomic-bert-moe", "jina-bert-v3")
_KEPT_BY_PHI3 = ("<unk>", "<s>", "<|endoftext|>")


@dataclass(frozen=True)
class Stripping:
    """Tokens before (``left``) and behind (``right``) which white space (``white``) is dropped."""

    left: frozenset[int] = field(default=frozenset())
    right: frozenset[int] = field(default=frozenset())
    white: str = _WHITE

    def apply(self, parts: Iterable[str | int]) -> Iterator[str | int]:
        """Yield tokens and the texts between them, without what is dropped."""
        if not self.left and not self.right:
            yield from parts
            return
        before: str | int = ""
        text = ""
        for part in parts:
            if isinstance(part, str):
                text += part
                continue
            yield self._stripped(before, text, part)
            yield part
            before, text = part, ""
        yield self._stripped(before, text, "")

    def _stripped(self, before: str | int, text: str, after: str | int) -> str:
        text = text.lstrip(self.white) if before in self.right else text
        return text.rstrip(self.white) if after in self.left else text


def read_stripping(metadata: Metadata, vocabulary: Vocabulary) -> Stripping:
    """Return the white space that a model drops; where no key says it, names tell, as for llama.cpp.

    Raises:
        FormatError: A key holds something else than ids.
    """
    left, right = (_stated(metadata, vocabulary, key) for key in (LSTRIP_KEY, RSTRIP_KEY))
    if left or right:
        return Stripping(left, right, _ALL_WHITE)
    name = str(metadata.get("general.name", "")).lower()
    if str(metadata.get("tokenizer.ggml.pre", "")) in _MASKED_NAMES or (
        str(metadata.get("general.architecture", "")) in _MASKED_ARCHITECTURES
    ):
        return Stripping(left=_ids_of(vocabulary, "<mask>"))
    if "phi-3" in name or "phi3" in name:
        special = (UNKNOWN, CONTROL, USER_DEFINED)
        stripping = {i for i, kind in enumerate(vocabulary.types) if kind in special}
        stripping |= _ids_of(vocabulary, "</s>")
        return Stripping(right=frozenset(stripping - _ids_of(vocabulary, *_KEPT_BY_PHI3)))
    if "modern-bert" in name:
        return Stripping(left=_ids_of(vocabulary, "[MASK]"))
    return Stripping()


def _stated(metadata: Metadata, vocabulary: Vocabulary, key: str) -> frozenset[int]:
    stored = metadata.get(key)
    if stored is None:
        return frozenset()
    try:
        ids = np.asarray(stored)
    except ValueError:  # lists of different lengths
        ids = np.zeros((0, 0))
    if (
        ids.ndim != 1
        or ids.dtype.kind not in "iu"
        or not ((ids >= 0) & (ids < len(vocabulary.texts))).all()
    ):
        raise FormatError(f"{key} is no list of ids below {len(vocabulary.texts)}")
    return frozenset(ids.tolist())


def _ids_of(vocabulary: Vocabulary, *texts: str) -> frozenset[int]:
    return frozenset(i for i, text in enumerate(vocabulary.texts) if text in texts)
