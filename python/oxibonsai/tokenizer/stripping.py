"""White space next to special tokens, which some models drop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from oxibonsai.tokenizer.vocabulary import CONTROL, UNKNOWN, USER_DEFINED, Metadata, Vocabulary

_WHITE = " \t\n\v\f\r"
_MASKED_NAMES = ("jina-v2-de", "jina-v2-es", "jina-v2-code")  # pre-tokenizers
_MASKED_ARCHITECTURES = ("nomic-bert-moe", "jina-bert-v3")
_KEPT_BY_PHI3 = ("<unk>", "<s>", "<|endoftext|>")


@dataclass(frozen=True)
class Stripping:
    """Tokens before (``left``) and behind (``right``) which white space is dropped."""

    left: frozenset[int] = field(default=frozenset())
    right: frozenset[int] = field(default=frozenset())

    def apply(self, parts: Iterable[str | int]) -> Iterator[str | int]:
        """Tokens and the texts between them, without what is dropped."""
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
        text = text.lstrip(_WHITE) if before in self.right else text
        return text.rstrip(_WHITE) if after in self.left else text


def read_stripping(metadata: Metadata, vocabulary: Vocabulary) -> Stripping:
    """Return the white space that a model drops; names tell, as for llama.cpp."""
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


def _ids_of(vocabulary: Vocabulary, *texts: str) -> frozenset[int]:
    return frozenset(i for i, text in enumerate(vocabulary.texts) if text in texts)
