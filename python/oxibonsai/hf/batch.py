"""Encoded texts to a batch: truncated, framed by special tokens, padded, with their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from oxibonsai.errors import RequestError
from oxibonsai.hf.arrays import is_torch, tensor
from oxibonsai.hf.encoding import BatchEncoding, Row, truncated_lengths
from oxibonsai.tokenizer.files.settings import Side
from oxibonsai.tokenizer.offsets import Offset
from oxibonsai.tokenizer.tokenizer import Frame

Padding = bool | Literal["longest", "max_length", "do_not_pad"]

UNKNOWN_LENGTH = int(1e30)  # of a model whose file does not say it, as in transformers
_TRUNCATIONS = ("longest_first", "only_first", "only_second")
# What a column has where there is padding; that of ids is the pad token.
_FILLING: dict[str, Any] = {
    "attention_mask": 0,
    "token_type_ids": 0,
    "special_tokens_mask": 1,
    "offset_mapping": (0, 0),
    "assistant_masks": 0,
    "labels": -100,
}


@dataclass(frozen=True)
class Limits:
    """How long rows are and may be.

    Attributes:
        padding, truncation, max_length, pad_to_multiple_of: As transformers has them.
        padding_side, truncation_side: Where tokens are added or taken away.
        model_max_length: The default of ``max_length``.
        pad_id: Fills up ids.
    """

    padding: Padding
    truncation: bool | str
    max_length: int | None
    pad_to_multiple_of: int | None
    padding_side: Side
    truncation_side: Side
    model_max_length: int
    pad_id: int

    @property
    def strategy(self) -> str | None:
        """How to truncate; None: not at all."""
        if self.truncation in (False, "do_not_truncate"):
            return None
        if self.truncation is True:
            return "longest_first"
        if self.truncation not in _TRUNCATIONS:
            raise RequestError(
                f"truncation is {self.truncation!r}; it must be True, False, "
                f"{', '.join(map(repr, _TRUNCATIONS))}"
            )
        return self.truncation

    def length(self, what: str) -> int:
        """Return ``max_length``, or the model's."""
        length = self.model_max_length if self.max_length is None else self.max_length
        if length >= UNKNOWN_LENGTH:
            raise RequestError(f"{what} needs max_length: this file does not say the model's")
        if length < 0:
            raise RequestError(f"max_length is {length}; it must be at least 0")
        return length

    def width(self, longest: int) -> int:
        """Return the tokens that rows are filled up to."""
        if self.padding in (False, "do_not_pad"):
            return 0
        if self.padding in (True, "longest"):
            width = longest
        elif self.padding == "max_length":
            width = self.length("padding='max_length'")
        else:
            raise RequestError(
                f"padding is {self.padding!r}; it must be True, False, 'longest', 'max_length' or "
                "'do_not_pad'"
            )
        multiple = self.pad_to_multiple_of
        return -(-width // multiple) * multiple if multiple else width

    def cut(self, items: list[Any], most: int) -> list[Any]:
        """Return the first or last items."""
        if len(items) <= most:
            return items
        return items[:most] if self.truncation_side == "right" else items[len(items) - most :]


def framed_row(
    parts: Sequence[tuple[list[int], list[Offset]]],
    frame: Frame,
    limits: Limits,
) -> Row:
    """Return one or two encoded texts, truncated, between their special tokens.

    Args:
        parts: Ids of each text, and their places where those are wanted.
        frame: Special tokens around them.
        limits: How long it may be.
    """
    if limits.strategy is not None:
        most = limits.length("truncation") - sum(token is not None for token, _ in frame)
        if most < 0:
            raise RequestError("max_length leaves no room for the special tokens")
        sizes = [len(ids) for ids, _ in parts]
        kept = truncated_lengths(sizes[0], sum(sizes[1:]), most, limits.strategy)
        parts = [
            (limits.cut(ids, n), limits.cut(places, n))
            for (ids, places), n in zip(parts, kept, strict=False)
        ]
    row, left = Row([], [], []), iter(parts)
    wants_places = all(len(places) == len(ids) for ids, places in parts)
    for token, kind in frame:
        ids, places = next(left) if token is None else ([token], [(0, 0)])
        row.ids += ids
        row.types += [kind] * len(ids)
        row.sequences += [kind if token is None else None] * len(ids)
        row.offsets += places if wants_places else []
    return row


def windows(
    ids: list[int], places: list[Offset], frame: Frame, limits: Limits, stride: int
) -> list[tuple[list[int], list[Offset]]]:
    """Return a text in pieces that fit, each of which begins with the last tokens of the one before.

    Args:
        ids, places: Of the whole text.
        frame: Special tokens around each piece.
        limits: How long a piece may be.
        stride: Tokens that neighbours share.
    """
    if limits.strategy is None:
        raise RequestError("return_overflowing_tokens needs truncation=True")
    most = limits.length("truncation") - sum(token is not None for token, _ in frame)
    if not 0 <= stride < most:
        raise RequestError(f"stride is {stride}; it must be below the {most} tokens of a window")
    starts = [0, *range(most - stride, max(len(ids) - stride, 0), most - stride)]
    spans = [(start, min(start + most, len(ids))) for start in starts]
    if limits.truncation_side == "left":
        spans = [(len(ids) - last, len(ids) - first) for first, last in spans]
    return [(ids[a:b], places[a:b]) for a, b in spans]


def padded(
    columns: Mapping[str, list[list[Any]]], limits: Limits
) -> tuple[dict[str, list[list[Any]]], int]:
    """Return rows filled up, and to how many tokens."""
    width = limits.width(max((len(row) for row in columns["input_ids"]), default=0))
    result = {}
    for name, rows in columns.items():
        value = limits.pad_id if name == "input_ids" else _FILLING.get(name, 0)
        result[name] = [fill(row, value, width, limits.padding_side) for row in rows]
    return result, width


def fill(row: list[Any], value: Any, width: int, side: Side) -> list[Any]:
    """Return a row with as many values added as it lacks."""
    filling = [value] * max(0, width - len(row))
    return row + filling if side == "right" else filling + row


def finished(
    columns: dict[str, list[list[Any]]],
    *,
    is_one: bool,
    kind: str | None,
    rows: Sequence[Row] = (),
    texts: Sequence[str] = (),
) -> BatchEncoding:
    """List or tensors; of one text [n] for lists, [1, n] for tensors."""
    if kind is not None:
        return BatchEncoding({n: tensor(rows_, kind) for n, rows_ in columns.items()}, rows, texts)
    plain = {n: rows_[0] if is_one else rows_ for n, rows_ in columns.items()}
    return BatchEncoding(plain, rows, texts)


def as_batch(given: Any) -> tuple[dict[str, list[list[Any]]], bool]:
    """Return the columns of lists out of what a tokenizer gave before, and whether it is one text alone."""
    if not isinstance(given, Mapping):
        given = {name: [item[name] for item in given] for name in given[0]} if given else {}
    if "input_ids" not in given:
        raise RequestError("pad() takes what the tokenizer gave, with input_ids")
    columns = {name: _lists(value) for name, value in given.items()}
    ids = columns["input_ids"]
    is_one = not ids or not isinstance(ids[0], list)
    return ({name: [value] for name, value in columns.items()} if is_one else columns), is_one


def _lists(value: Any) -> list[Any]:
    if is_torch(value) or hasattr(value, "tolist"):
        plain: list[Any] = value.tolist()
        return plain
    return [_lists(v) if is_torch(v) or hasattr(v, "tolist") else v for v in value]
