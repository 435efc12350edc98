"""Texts to batches of ids with the arguments of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.hf.arrays import tensor
from oxibonsai.hf.batch import (
    UNKNOWN_LENGTH,
    Limits,
    Padding,
    as_batch,
    finished,
    framed_row,
    padded,
    windows,
)
from oxibonsai.hf.encoding import BatchEncoding, Row
from oxibonsai.hf.special_tokens import SpecialTokens
from oxibonsai.tokenizer import Tokenizer
from oxibonsai.tokenizer.files.settings import Side, TokenizerSettings
from oxibonsai.tokenizer.offsets import Offset

Texts = str | Sequence[str]
TextsOrPairs = Texts | Sequence[Sequence[str]]


class TextEncoder(SpecialTokens):
    """Encodes texts and pairs, and pads what it has encoded.

    Args:
        tokenizer: The model's.
        model_max_length: The default of ``max_length``; None: the file does not say it.
        settings: What a folder says beside ``tokenizer.json``; None: the tokenizer is of a GGUF file.

    Attributes:
        model_max_length: As given.
        padding_side: Where padding goes: on the left, as generation wants it, unless texts end with a
            token of their own, as an encoder's do.
        truncation_side: Where tokens are taken away.
        model_input_names: Columns of every encoding.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        model_max_length: int | None,
        settings: TokenizerSettings | None = None,
    ) -> None:
        super().__init__(tokenizer, settings)
        self.model_max_length = UNKNOWN_LENGTH if model_max_length is None else model_max_length
        self.padding_side: Side = "right" if tokenizer.vocabulary.add_eos else "left"
        self.truncation_side: Side = "right"
        self.model_input_names = ["input_ids", "attention_mask"]
        if settings is not None:
            self.padding_side = settings.padding_side or self.padding_side
            self.truncation_side = settings.truncation_side or "right"
            self.model_input_names = settings.model_input_names or self.model_input_names

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """Return the number of tokens that frame a text or a pair."""
        return sum(token is not None for token, _ in self.tokenizer.frame(pair=pair))

    def build_inputs_with_special_tokens(
        self, token_ids_0: list[int], token_ids_1: list[int] | None = None
    ) -> list[int]:
        """Return the ids of one text or two between the tokens that frame them."""
        parts = iter([token_ids_0, token_ids_1 or []])
        frame = self.tokenizer.frame(pair=token_ids_1 is not None)
        return [i for t, _ in frame for i in (next(parts) if t is None else [t])]

    def tokenize(self, text: str, add_special_tokens: bool = False) -> list[str]:
        """Return the tokens of a text, as the vocabulary spells them."""
        found: list[str] = self.convert_ids_to_tokens(self.encode(text, add_special_tokens))
        return found

    def encode(
        self, text: str, add_special_tokens: bool = True, text_pair: str | None = None, **more: Any
    ) -> Any:
        """Return ids of a text; the text of special tokens in it becomes those tokens, as in transformers.

        Args:
            text: One text.
            add_special_tokens: Put a bos first where the model wants one.
            text_pair: A second text.
            **more: As in calling the tokenizer.
        """
        return self(text, text_pair, add_special_tokens=add_special_tokens, **more)["input_ids"]

    def __call__(
        self,
        text: TextsOrPairs,
        text_pair: Texts | None = None,
        *,
        add_special_tokens: bool = True,
        padding: Padding = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        stride: int = 0,
        pad_to_multiple_of: int | None = None,
        padding_side: Side | None = None,
        return_tensors: str | None = None,
        return_attention_mask: bool | None = None,
        return_token_type_ids: bool | None = None,
        return_overflowing_tokens: bool = False,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        verbose: bool = True,
    ) -> BatchEncoding:
        """Return ``{"input_ids": ..., "attention_mask": ...}`` for one text or several.

        Args:
            text: One text (lists [n], tensors [1, n]) or several (lists of lists, tensors
                [batch, n]), or a list of pairs of texts.
            text_pair: A second text for each.
            add_special_tokens: Put a bos first where the model wants one.
            padding: True or ``"longest"``: fill up to the longest text; ``"max_length"``: to that.
            truncation: Cut longer texts to ``max_length``; None: if only ``max_length`` is given.
                ``"only_first"`` and ``"only_second"`` cut one text of a pair.
            max_length: Tokens; default: the model's context.
            stride: With return_overflowing_tokens: tokens that two rows of one text share.
            pad_to_multiple_of: Fill up to a multiple of so many.
            padding_side: In place of the attribute.
            return_tensors: None for lists, ``"np"`` or ``"pt"``.
            return_attention_mask: False leaves it out.
            return_token_type_ids: Add which text of a pair each token is of; None: if it is one of
                ``model_input_names``.
            return_overflowing_tokens: What truncation leaves out of a text gets rows of its own; the
                column ``overflow_to_sample_mapping`` has the number of each row's text. Not for pairs.
            return_special_tokens_mask: Add where tokens are not of a text.
            return_offsets_mapping: Add the characters of each token's text.
            return_length: Add how many tokens each row has.
            verbose: Accepted; nothing is said in either case.
        """
        is_one = isinstance(text, str)
        texts: list[Any] = [text] if isinstance(text, str) else list(text)
        if text_pair is None and texts and all(isinstance(t, list | tuple) for t in texts):
            if any(len(t) != 2 for t in texts):
                raise RequestError("text is a list of lists; each must be a pair of texts")
            texts, text_pair = [t[0] for t in texts], [t[1] for t in texts]
        pairs: list[str] | None = None
        if text_pair is not None:
            pairs = [text_pair] if isinstance(text_pair, str) else list(text_pair)
            if len(pairs) != len(texts):
                raise RequestError(f"text has {len(texts)} texts, text_pair {len(pairs)}")
        if truncation is None:
            truncation = max_length is not None and padding is False
        limits = self._limits(padding, truncation, max_length, pad_to_multiple_of, padding_side)
        frame = self.tokenizer.frame(pair=pairs is not None)
        if not add_special_tokens:
            frame = [part for part in frame if part[0] is None]
        rows, numbers = [], []
        for i, first in enumerate(texts):
            both = [first] if pairs is None else [first, pairs[i]]
            parts = [self._part(t, return_offsets_mapping) for t in both]
            pieces = [parts]
            if return_overflowing_tokens:
                if pairs is not None:
                    raise UnsupportedError("return_overflowing_tokens is not available for pairs")
                pieces = [[piece] for piece in windows(*parts[0], frame, limits, stride)]
            rows += [framed_row(piece, frame, limits) for piece in pieces]
            numbers += [i] * len(pieces)
        columns: dict[str, list[list[Any]]] = {"input_ids": [r.ids for r in rows]}
        if return_token_type_ids is None:
            return_token_type_ids = "token_type_ids" in self.model_input_names
        if return_token_type_ids:
            columns["token_type_ids"] = [r.types for r in rows]
        if return_attention_mask is not False:
            columns["attention_mask"] = [[1] * len(r.ids) for r in rows]
        if return_special_tokens_mask:
            columns["special_tokens_mask"] = [[int(s is None) for s in r.sequences] for r in rows]
        if return_offsets_mapping:
            columns["offset_mapping"] = [list(r.offsets) for r in rows]
        if return_overflowing_tokens:
            is_one = False
        encoding = self._encoding(columns, rows, limits, is_one, return_tensors)
        if return_overflowing_tokens:
            mapping = numbers if return_tensors is None else tensor(numbers, return_tensors)
            encoding["overflow_to_sample_mapping"] = mapping
        if return_length:
            lengths = [len(ids) for ids in padded(columns, limits)[0]["input_ids"]]
            encoding["length"] = lengths[0] if is_one and return_tensors is None else lengths
        return encoding

    def pad(
        self,
        encoded_inputs: Any,
        padding: Padding = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: Side | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: str | None = None,
        verbose: bool = True,
    ) -> BatchEncoding:
        """Fill up what the tokenizer gave before: one encoding, or a list of them.

        Args:
            encoded_inputs: A dict of columns, or a list of dicts, with ``input_ids``.
            padding, max_length, pad_to_multiple_of, padding_side, return_tensors: As in calling it.
            return_attention_mask: False leaves it out.
            verbose: Accepted; nothing is said in either case.
        """
        columns, is_one = as_batch(encoded_inputs)
        if return_attention_mask is False:
            columns.pop("attention_mask", None)
        elif "attention_mask" not in columns:
            columns["attention_mask"] = [[1] * len(row) for row in columns["input_ids"]]
        limits = self._limits(padding, False, max_length, pad_to_multiple_of, padding_side)
        return self._encoding(columns, [], limits, is_one, return_tensors)

    def _part(self, text: Any, wants_places: bool) -> tuple[list[int], list[Offset]]:
        if not isinstance(text, str):
            raise RequestError(f"a text is {text!r}; it must be a string")
        if wants_places:
            return self.tokenizer.encode_with_offsets(text, parse_special=True)
        return self.tokenizer.encode(text, add_special=False, parse_special=True), []

    def _limits(
        self,
        padding: Padding,
        truncation: bool | str,
        max_length: int | None,
        pad_to_multiple_of: int | None,
        padding_side: Side | None,
    ) -> Limits:
        pad = self.pad_token_id if self.pad_token_id is not None else (self.eos_token_id or 0)
        return Limits(
            padding,
            truncation,
            max_length,
            pad_to_multiple_of,
            padding_side or self.padding_side,
            self.truncation_side,
            self.model_max_length,
            pad,
        )

    def _encoding(
        self,
        columns: dict[str, list[list[Any]]],
        rows: Sequence[Row],
        limits: Limits,
        is_one: bool,
        kind: str | None,
    ) -> BatchEncoding:
        full, width = padded(columns, limits)
        for row in rows:
            lacking = max(0, width - len(row.ids))
            left = lacking if limits.padding_side == "left" else 0
            right = lacking - left
            row.ids = [limits.pad_id] * left + row.ids + [limits.pad_id] * right
            row.sequences = [None] * left + row.sequences + [None] * right
            if row.offsets:
                row.offsets = [(0, 0)] * left + row.offsets + [(0, 0)] * right
        texts = self.tokenizer.vocabulary.texts
        return finished(full, is_one=is_one, kind=kind, rows=rows, texts=texts)
