"""A tokenizer's results: columns of ids, masks and offsets, with the names of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.hf.arrays import is_torch, tensor
from oxibonsai.tokenizer.offsets import Offset


@dataclass
class Row:
    """One encoded text or pair, special tokens included.

    Attributes:
        ids: Tokens.
        sequences: Which text a token is of, 0 or 1; None for one that frames them.
        types: As ``sequences``, for tokens that frame a text too.
        offsets: First character of each token in its text and the one after the last; none where
            they were not asked for.
    """

    ids: list[int]
    sequences: list[int | None]
    types: list[int]
    offsets: list[Offset] = field(default_factory=list)


class BatchEncoding(dict[str, Any]):
    """Columns by name, which are attributes too, and where each token comes from.

    Args:
        columns: ``input_ids``, ``attention_mask`` and what else was asked for.
        rows: Of each text, as they are after truncation and padding.
        texts: Of all tokens of the vocabulary.
    """

    def __init__(
        self,
        columns: dict[str, Any],
        rows: Sequence[Row] = (),
        texts: Sequence[str] = (),
    ) -> None:
        super().__init__(columns)
        self._rows = list(rows)
        self._texts = texts

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def data(self) -> dict[str, Any]:
        """The columns alone."""
        return dict(self)

    @property
    def is_fast(self) -> bool:
        """Whether tokens know their place in the text."""
        return True

    def to(
        self, device: Any = None, *, dtype: Any = None, non_blocking: bool = False
    ) -> BatchEncoding:
        """Move the torch tensors to a device, those of real numbers to a type, too."""
        for name, value in self.items():
            if is_torch(value):
                kind = dtype if value.is_floating_point() else None
                self[name] = value.to(device=device, dtype=kind, non_blocking=non_blocking)
        return self

    def convert_to_tensors(self, tensor_type: str | None = None) -> BatchEncoding:
        """List to arrays: ``"np"`` or ``"pt"``."""
        for name, value in self.items() if tensor_type is not None else ():
            self[name] = tensor(value, str(tensor_type))
        return self

    def tokens(self, batch_index: int = 0) -> list[str]:
        """Return the tokens of a text, as the vocabulary spells them."""
        return [self._texts[i] for i in self._row(batch_index).ids]

    def sequence_ids(self, batch_index: int = 0) -> list[int | None]:
        """Return for each token the text of its pair, None for special tokens."""
        return list(self._row(batch_index).sequences)

    def token_to_chars(self, batch_or_token_index: int, token_index: int | None = None) -> Any:
        """Return the first character of a token and the one after its last; None for a special token."""
        batch, token = (
            (0, batch_or_token_index)
            if token_index is None
            else (batch_or_token_index, token_index)
        )
        row = self._row(batch)
        return None if row.sequences[token] is None else self._offsets(row)[token]

    def char_to_token(
        self, batch_or_char_index: int, char_index: int | None = None, sequence_index: int = 0
    ) -> int | None:
        """Return the token that has a character; None where there is none."""
        batch, char = (
            (0, batch_or_char_index) if char_index is None else (batch_or_char_index, char_index)
        )
        row = self._row(batch)
        for i, (first, last) in enumerate(self._offsets(row)):
            if row.sequences[i] == sequence_index and first <= char < last:
                return i
        return None

    def word_ids(self, batch_index: int = 0) -> list[int | None]:
        """Raise an error: words are no part of what the vocabulary keeps."""
        raise UnsupportedError("word_ids is not available: use return_offsets_mapping=True")

    def _row(self, index: int) -> Row:
        if not 0 <= index < len(self._rows):
            raise RequestError(f"there is no text {index}; the batch has {len(self._rows)}")
        return self._rows[index]

    @staticmethod
    def _offsets(row: Row) -> list[Offset]:
        if len(row.offsets) != len(row.ids):
            raise RequestError("places of tokens are known with return_offsets_mapping=True")
        return row.offsets


def truncated_lengths(first: int, second: int, most: int, strategy: str) -> tuple[int, int]:
    """Return tokens kept of two texts so that both together have at most so many.

    Args:
        first, second: Tokens that they have; 0 where there is no second.
        most: Tokens of both.
        strategy: ``"longest_first"``, ``"only_first"`` or ``"only_second"``.
    """
    if first + second <= most:
        return first, second
    if strategy == "only_first":
        if second >= most:
            raise RequestError("truncation='only_first' leaves nothing of the first text")
        return most - second, second
    if strategy == "only_second":
        if first >= most:
            raise RequestError("truncation='only_second' leaves nothing of the second text")
        return first, most - first
    if second == 0:
        return most, 0
    short, long = min(first, second), max(first, second)
    long = short if short > most else max(short, most - short)
    if short + long > most:
        short = most // 2
        long = short + most % 2
    return (short, long) if first <= second else (long, short)
