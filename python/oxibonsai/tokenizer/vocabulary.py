"""The token table of a GGUF file, checked before anything uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from oxibonsai.errors import FormatError
from oxibonsai.tokenizer.infill_tokens import InfillTokens, find_infill_tokens

# Values of tokenizer.ggml.token_type.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

# Texts that end a turn or a document in the model families of this field.
_END_TEXTS = frozenset(
    {
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<|end|>",
        "<|return|>",  # gpt-oss
        "<|call|>",
        "<|flush|>",  # Solar Open
        "<|calls|>",
        "<end_of_turn>",
        "<turn|>",  # Gemma 4
        "<|tool_response>",
        "<eos>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",  # Kimi K2
        "[EOS]",
        "<end_of_utterance>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",  # DeepSeek
        "[e~[",  # MiniMax M2
        "</s>",
    }
)
# Texts that end nothing where all of the others are ends too.
_NO_ENDS = (
    ("<|end|>", frozenset({"<|return|>", "<|call|>"})),  # gpt-oss: ends a channel
    ("<|end|>", frozenset({"<|calls|>", "<|flush|>"})),
    ("</s>", frozenset({"<|tool_response>"})),  # Gemma 4: a token of HTML
)


class Metadata(Protocol):
    """Where the table is read from: a GGUF file, or a dict in tests."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key."""


@dataclass(frozen=True)
class Vocabulary:
    """Tokens and their kinds, and what a text is framed with.

    Attributes:
        texts: One a token; the index is the id.
        types: GGUF's token types, one a token.
        scores: Of SPM tokens; empty for byte-level BPE.
        end_ids: Ids that end a generation.
        infill: Tokens of fill-in-the-middle; None if the model has none.
        sep_id, add_sep: The token that goes between two texts after the first one's eos, and whether
            it does.
    """

    texts: list[str]
    types: list[int]
    scores: list[float]
    bos_id: int | None
    eos_id: int | None
    unk_id: int | None
    pad_id: int | None
    add_bos: bool
    add_eos: bool
    end_ids: frozenset[int]
    sep_id: int | None = None
    add_sep: bool = False
    infill: InfillTokens | None = None

    @property
    def leading_bos(self) -> int | None:
        """The bos that goes before every text; None: none does."""
        return self.bos_id if self.add_bos else None

    @property
    def special_ids(self) -> frozenset[int]:
        """Control tokens: never text."""
        return frozenset(i for i, t in enumerate(self.types) if t == CONTROL)


def read_vocabulary(
    metadata: Metadata,
    *,
    add_bos_default: bool,
    add_eos_default: bool = False,
    bos_names: tuple[str, ...] = ("bos",),
    eos_names: tuple[str, ...] = ("eos",),
    default_ids: Mapping[str, int] = MappingProxyType({}),
) -> Vocabulary:
    """Read ``tokenizer.ggml.*``; FormatError names the key and index of what is wrong.

    Args:
        metadata: Of the file.
        add_bos_default, add_eos_default: Whether a text is framed, where the file doesn't say.
        bos_names, eos_names: What the frame's ids are called, the name that counts most first.
        default_ids: Special ids by their names, where the file has none and the vocabulary is as large.
    """
    texts = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise FormatError("tokenizer.ggml.tokens is missing or not a list of texts")
    count = len(texts)
    types = _numbers(metadata, "tokenizer.ggml.token_type", count)
    scores = _numbers(metadata, "tokenizer.ggml.scores", count)

    def special(name: str) -> int | None:
        key = f"tokenizer.ggml.{name}_token_id"
        value = metadata.get(key)
        if value is None:
            default = default_ids.get(name, count)
            return default if default < count else None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
            raise FormatError(f"{key} is {value!r}, outside the vocabulary of {count} tokens")
        return value

    def first_of(names: tuple[str, ...]) -> int | None:
        return next((i for i in map(special, names) if i is not None), None)

    ends = {special("eos"), special("eot"), special("eom")} - {None}
    kinds = [int(t) for t in types] if types else [NORMAL] * count
    ends |= _ends_by_text(texts, kinds)
    return Vocabulary(
        texts=texts,
        types=kinds,
        scores=[float(s) for s in scores],
        bos_id=first_of(bos_names),
        eos_id=first_of(eos_names),
        unk_id=special("unknown"),
        pad_id=special("padding"),
        add_bos=flag(metadata, "tokenizer.ggml.add_bos_token", add_bos_default),
        add_eos=flag(metadata, "tokenizer.ggml.add_eos_token", add_eos_default),
        end_ids=frozenset(i for i in ends if i is not None),
        infill=find_infill_tokens(texts, special),
        sep_id=first_of(("seperator", "eos")),  # GGUF's spelling
        add_sep=flag(metadata, "tokenizer.ggml.add_sep_token", False),
    )


def _ends_by_text(texts: list[str], kinds: list[int]) -> set[int]:
    found = {t: i for i, t in enumerate(texts) if t in _END_TEXTS and kinds[i] != NORMAL}
    for text, others in _NO_ENDS:
        if others <= found.keys():
            found.pop(text, None)
    return set(found.values())


def _numbers(metadata: Metadata, key: str, count: int) -> list[float]:
    values = metadata.get(key)
    if values is None:
        return []
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.size != count:
        raise FormatError(f"{key} is not a list of {count} numbers, one for each token")
    if not np.isfinite(values).all():
        raise FormatError(f"{key} holds values that are not finite")
    numbers: list[float] = values.tolist()
    return numbers


def refuse_broken_texts(texts: list[str]) -> None:
    """Raise `FormatError` if a token is no UTF-8: the `tokenizers` library takes no other."""
    for i, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError as e:
            raise FormatError(
                f"tokenizer.ggml.tokens[{i}] is {text!r:.80}, no UTF-8, as this kind of tokenizer needs"
            ) from e


def text_value(metadata: Metadata, key: str, default: str | None = None) -> str | None:
    """Return a value that is a text; None where the file has none and there is no default."""
    value = metadata.get(key, default)
    if value is not None and not isinstance(value, str):
        raise FormatError(f"{key} is {value!r:.80}, not a text")
    return value


def flag(metadata: Metadata, key: str, default: bool) -> bool:
    """Return a value that is true or false."""
    value = metadata.get(key, default)
    if not isinstance(value, bool):
        raise FormatError(f"{key} is {value!r}, not true or false")
    return value
