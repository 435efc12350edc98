"""A tokenizer's vocabulary with the names of transformers: special tokens, conversions, decoding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.hf.arrays import is_torch
from oxibonsai.tokenizer import Tokenizer
from oxibonsai.tokenizer.files.settings import TokenizerSettings
from oxibonsai.tokenizer.vocabulary import CONTROL, UNUSED, USER_DEFINED

# Names of BERT's tokens for what others call bos and eos.
_NAMES = ("bos", "eos", "pad", "unk", "cls", "sep", "mask")


class SpecialTokens:
    """The vocabulary of a model.

    ``bos_token``, ``eos_token``, ``pad_token``, ``unk_token``, ``cls_token``, ``sep_token`` and
    ``mask_token`` are texts, with ``_id`` their ids; None where the model has none. Each can be set
    to another token of the vocabulary.

    Args:
        tokenizer: The model's.
        settings: What a folder says beside ``tokenizer.json``; None: the tokenizer is of a GGUF file.

    Attributes:
        tokenizer: As given.
        vocab_size: Rows of the model's table; ``len()`` counts the tokens that are in use.
        clean_up_tokenization_spaces: Whether :meth:`decode` takes away spaces before punctuation.
    """

    def __init__(self, tokenizer: Tokenizer, settings: TokenizerSettings | None = None) -> None:
        self.tokenizer = tokenizer
        self.vocab_size = tokenizer.vocab_size
        self.clean_up_tokenization_spaces = settings is not None and settings.clean_up
        if settings is not None:
            named = settings.named
            texts = {kind: named.get(f"{kind}_token") for kind in _NAMES}
            self._special: dict[str, int | None] = {
                kind: None if token is None else self._ids[token.content]
                for kind, token in texts.items()
            }
            return
        first, last = tokenizer.bos_id, tokenizer.eos_id
        frames_words = tokenizer.vocabulary.add_eos and tokenizer.vocabulary.add_bos
        self._special = {
            "bos": first,
            "eos": last,
            "pad": tokenizer.pad_id,
            "unk": tokenizer.unk_id,
            "cls": first if frames_words else None,
            "sep": last if frames_words else None,
            "mask": self._ids.get("[MASK]"),
        }

    def __getattr__(self, name: str) -> Any:
        kind, is_id = _special_name(name)
        if kind is None or "_special" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        token = self._special[kind]
        return token if is_id or token is None else self.tokenizer.vocabulary.texts[token]

    def __setattr__(self, name: str, value: Any) -> None:
        kind, is_id = _special_name(name)
        if kind is None:
            super().__setattr__(name, value)
            return
        token = value if is_id or value is None else self._ids.get(str(value))
        if token is None and value is not None:
            raise UnsupportedError(
                f"{name} is {value!r}, which is not in the vocabulary: the model would need a new row "
                "for it"
            )
        if token is not None:
            self._text_of(token)
        self._special[kind] = token

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def is_fast(self) -> bool:
        """Whether it is compiled."""
        return True

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """Return the texts of the named special tokens that the model has."""
        texts = self.tokenizer.vocabulary.texts
        found = {f"{kind}_token": i for kind, i in self._special.items()}
        return {name: texts[i] for name, i in found.items() if i is not None}

    @property
    def all_special_ids(self) -> list[int]:
        """Control tokens, which ``skip_special_tokens`` leaves out."""
        named = {i for i in self._special.values() if i is not None}
        return sorted(self.tokenizer.special_ids | named)

    @property
    def all_special_tokens(self) -> list[str]:
        """Return the texts of :attr:`all_special_ids`."""
        return [self.tokenizer.vocabulary.texts[i] for i in self.all_special_ids]

    @cached_property
    def _ids(self) -> dict[str, int]:
        v = self.tokenizer.vocabulary
        kinds = list(enumerate(zip(v.texts, v.types, strict=True)))
        # Of equal texts the first one counts; unused ones only fill up the model's table.
        return {text: i for i, (text, kind) in reversed(kinds) if kind != UNUSED}

    def get_vocab(self) -> dict[str, int]:
        """Return every token's id by its text."""
        return dict(self._ids)

    @property
    def vocab(self) -> dict[str, int]:
        """As :meth:`get_vocab`."""
        return self.get_vocab()

    def get_added_vocab(self) -> dict[str, int]:
        """Return the tokens that are no part of words: control tokens and those that a user defined."""
        v = self.tokenizer.vocabulary
        kinds = zip(v.texts, v.types, strict=True)
        return {t: i for i, (t, kind) in enumerate(kinds) if kind in (CONTROL, USER_DEFINED)}

    def convert_tokens_to_ids(self, tokens: str | Iterable[str]) -> Any:
        """Return the id of a token's text, or of each; that of the unknown token where there is none."""
        if isinstance(tokens, str):
            return self._ids.get(tokens, self._special["unk"])
        return [self._ids.get(t, self._special["unk"]) for t in tokens]

    def convert_ids_to_tokens(
        self, ids: int | Sequence[int], skip_special_tokens: bool = False
    ) -> Any:
        """Return the text of an id as the file spells it, or of each."""
        if isinstance(ids, int | np.integer):
            return self._text_of(int(ids))
        left_out = set(self.all_special_ids) if skip_special_tokens else set()
        return [self._text_of(int(i)) for i in ids if int(i) not in left_out]

    def convert_tokens_to_string(self, tokens: Iterable[str]) -> str:
        """Return the text that tokens spell."""
        ids = [self._ids.get(t) for t in tokens]
        if None in ids:
            raise RequestError("convert_tokens_to_string: a token is not in the vocabulary")
        return self.tokenizer.decode([i for i in ids if i is not None], skip_special=False)

    def add_tokens(self, new_tokens: str | Sequence[str], special_tokens: bool = False) -> int:
        """Return 0 where the vocabulary has them all; refuse others: the model has no row for them."""
        listed = [new_tokens] if isinstance(new_tokens, str) else list(new_tokens)
        missing = [str(t) for t in listed if str(t) not in self._ids]
        if missing:
            raise UnsupportedError(
                f"{missing[0]!r} is not in the vocabulary, and the model has no row for a new token"
            )
        return 0

    def add_special_tokens(self, special_tokens_dict: Mapping[str, Any]) -> int:
        """Name tokens of the vocabulary: ``{"pad_token": "<pad>"}``; return 0, as none is new."""
        for name, value in special_tokens_dict.items():
            if name in ("additional_special_tokens", "extra_special_tokens"):
                self.add_tokens(value, special_tokens=True)
            else:
                setattr(self, name, value)
        return 0

    def decode(
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> Any:
        """Return the text of ids: an integer, a list, an array or a tensor; a list for a batch.

        Args:
            token_ids: [n], or [batch, n].
            skip_special_tokens: Leave out control tokens.
            clean_up_tokenization_spaces: Take away spaces before punctuation and English endings; None:
                as the attribute says.
        """
        given = token_ids.tolist() if is_torch(token_ids) else token_ids
        if isinstance(given, int | np.integer):
            given = [given]
        rows = list(given)
        if rows and not isinstance(rows[0], int | np.integer):
            return [
                self.decode(row, skip_special_tokens, clean_up_tokenization_spaces) for row in rows
            ]
        types = self.tokenizer.vocabulary.types
        left_out = set(self.all_special_ids) if skip_special_tokens else set()
        kept = [int(i) for i in rows if int(i) not in left_out]
        # transformers' vocabulary lacks the tokens that only fill up the model's table.
        used = [i for i in kept if not (0 <= i < len(types) and types[i] == UNUSED)]
        text = self.tokenizer.decode(used, skip_special=False)
        clean = clean_up_tokenization_spaces
        return (
            _cleaned(text)
            if clean or (clean is None and self.clean_up_tokenization_spaces)
            else text
        )

    def batch_decode(
        self,
        sequences: Iterable[Any],
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> list[str]:
        """Return :meth:`decode` of each."""
        return [
            self.decode(s, skip_special_tokens, clean_up_tokenization_spaces) for s in sequences
        ]

    def _text_of(self, token: int) -> str:
        if not 0 <= token < self.vocab_size:
            raise RequestError(f"token id {token} is outside the vocabulary of {self.vocab_size}")
        return self.tokenizer.vocabulary.texts[token]


def _cleaned(text: str) -> str:
    """Return a text without the spaces that WordPiece leaves, as transformers does it."""
    for ending in (".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"):
        if ending == "n't":  # between the marks and the endings, as the order counts
            text = text.replace(" ' ", "'")
        text = text.replace(f" {ending}", ending)
    return text


def _special_name(name: str) -> tuple[str | None, bool]:
    """Return the kind of special token that an attribute is about, and whether it is its id."""
    kind, _, rest = name.partition("_")
    is_one = kind in _NAMES and rest in ("token", "token_id")
    return (kind if is_one else None), rest == "token_id"
