"""Tokenizers with Hugging Face's names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from oxibonsai.chat import load_template
from oxibonsai.chat_template import ChatTemplate, Span
from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.hf.arrays import is_torch, tensor
from oxibonsai.hf.conversation import (
    Conversation,
    Tool,
    as_conversations,
    as_schemas,
    check_variables,
    prepare_messages,
    render_open,
    token_mask,
)
from oxibonsai.opening import open_model
from oxibonsai.tokenizer import Tokenizer

Padding = bool | Literal["longest", "max_length", "do_not_pad"]
Side = Literal["left", "right"]
_TRUNCATIONS = (True, "longest_first", "only_first")


class Encoding(dict[str, Any]):
    """What a tokenizer gives: a dict whose entries are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def to(self, device: Any) -> Encoding:
        """Moves the torch tensors to a device."""
        moved = {name: v.to(device) if is_torch(v) else v for name, v in self.items()}
        return Encoding(moved)


class PreTrainedTokenizer:
    """A tokenizer with Hugging Face's names; made by ``AutoTokenizer``.

    Args:
        tokenizer: The model's.
        chat_template: Its chat format, if it has one.
        model_max_length: Positions that the model was trained on, if the file says so: the default
            of ``max_length``.

    Attributes:
        chat_template: Jinja source; None where the model has none.
        padding_side: Where padding goes; on the left, as generation wants it.
        truncation_side: Where tokens are taken away.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        chat_template: ChatTemplate | None,
        model_max_length: int | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.chat_template = None if chat_template is None else chat_template.source
        self.model_max_length = model_max_length
        self.padding_side: Side = "left"
        self.truncation_side: Side = "right"
        self.vocab_size = tokenizer.vocab_size
        self.bos_token_id = tokenizer.bos_id
        self.eos_token_id = tokenizer.eos_id
        self.pad_token_id = tokenizer.pad_id
        self.unk_token_id = tokenizer.unk_id
        self.all_special_ids = sorted(tokenizer.special_ids)

    def __len__(self) -> int:
        return self.vocab_size

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids of a text; the text of special tokens in it becomes those tokens, as in transformers."""
        return self.tokenizer.encode(text, add_special=add_special_tokens, parse_special=True)

    def __call__(
        self,
        text: str | Sequence[str],
        *,
        return_tensors: str | None = None,
        add_special_tokens: bool = True,
        padding: Padding = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
    ) -> Encoding:
        """``{"input_ids": ..., "attention_mask": ...}`` for one text or several.

        Args:
            text: One text (lists [n], tensors [1, n]) or several (lists of lists, tensors
                [batch, n]).
            return_tensors: None for lists, ``"np"`` or ``"pt"``.
            add_special_tokens: Put a bos first where the model wants one.
            padding: True or ``"longest"``: fill up to the longest text; ``"max_length"``: to that.
            truncation: Cut longer texts to ``max_length``; None: if only ``max_length`` is given.
            max_length: Tokens; default: the model's context.
        """
        texts = [text] if isinstance(text, str) else list(text)
        rows = {"input_ids": [self.encode(t, add_special_tokens) for t in texts]}
        if truncation is None:
            truncation = max_length is not None and padding is False
        return self._encoding(
            rows, isinstance(text, str), return_tensors, padding, truncation, max_length
        )

    def _encoding(
        self,
        columns: dict[str, list[list[int]]],
        is_one: bool,
        return_tensors: str | None,
        padding: Padding,
        truncation: bool | str,
        max_length: int | None,
    ) -> Encoding:
        """Rows of ids and what goes along with them, cut, filled up and with an attention mask."""
        if truncation not in (False, "do_not_truncate"):
            if truncation not in _TRUNCATIONS:
                raise RequestError(f"truncation is {truncation!r}; it must be True or False")
            most = self._max_length("truncation", max_length)
            columns = {name: [self._cut(r, most) for r in rows] for name, rows in columns.items()}
        ids = columns["input_ids"]
        columns = {
            "input_ids": ids,
            "attention_mask": [[1] * len(row) for row in ids],
            **columns,
        }
        width = self._width(ids, padding, max_length)
        pad = self.pad_token_id if self.pad_token_id is not None else (self.eos_token_id or 0)
        padded = {
            name: [self._fill(row, pad if name == "input_ids" else 0, width) for row in rows]
            for name, rows in columns.items()
        }
        if return_tensors is not None:
            return Encoding({name: tensor(rows, return_tensors) for name, rows in padded.items()})
        return Encoding({name: rows[0] if is_one else rows for name, rows in padded.items()})

    def _max_length(self, what: str, given: int | None) -> int:
        length = self.model_max_length if given is None else given
        if length is None:
            raise RequestError(f"{what} needs max_length: this file does not say the model's")
        if length < 0:
            raise RequestError(f"max_length is {length}; it must be at least 0")
        return length

    def _width(self, rows: list[list[int]], padding: Padding, max_length: int | None) -> int:
        """Tokens that rows are filled up to."""
        if padding in (False, "do_not_pad"):
            return 0
        if padding in (True, "longest"):
            return max((len(row) for row in rows), default=0)
        if padding == "max_length":
            return self._max_length("padding='max_length'", max_length)
        raise RequestError(
            f"padding is {padding!r}; it must be True, False, 'longest', 'max_length' or 'do_not_pad'"
        )

    def _cut(self, row: list[int], most: int) -> list[int]:
        if len(row) <= most:
            return row
        return row[:most] if self.truncation_side == "right" else row[len(row) - most :]

    def _fill(self, row: list[int], value: int, width: int) -> list[int]:
        filling = [value] * max(0, width - len(row))
        return row + filling if self.padding_side == "right" else filling + row

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **_: Any) -> str:
        """Text of ids: an integer, a list, an array or a tensor."""
        flat = np.asarray(token_ids.cpu() if is_torch(token_ids) else token_ids).reshape(-1)
        return self.tokenizer.decode(flat.tolist(), skip_special=skip_special_tokens)

    def batch_decode(
        self, sequences: Iterable[Any], skip_special_tokens: bool = False
    ) -> list[str]:
        """:meth:`decode` of each."""
        return [self.decode(s, skip_special_tokens) for s in sequences]

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        """Texts of the vocabulary, as the file spells them."""
        return [self.tokenizer.vocabulary.texts[i] for i in ids]

    def apply_chat_template(
        self,
        conversation: Conversation | Sequence[Conversation],
        *,
        tools: Sequence[Tool] | None = None,
        documents: Sequence[dict[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        tokenize: bool = True,
        sanitize_control_tokens: bool = False,
        padding: Padding = False,
        truncation: bool | str = False,
        max_length: int | None = None,
        return_tensors: str | None = None,
        return_dict: bool = True,
        return_assistant_tokens_mask: bool = False,
        **variables: Any,
    ) -> Any:
        """The prompt of a conversation, or of each of several, as transformers 5 makes it.

        Args:
            conversation: Messages with ``role`` and ``content``, or a list of such lists.
            tools: JSON schemas, or functions with type hints and a docstring.
            documents: ``{"title": ..., "text": ...}``, for templates that know them.
            chat_template: Jinja source in place of the model's.
            add_generation_prompt: End with the head of the assistant's turn.
            continue_final_message: End within the last message, in its content or in the field of
                this name, for the model to go on.
            tokenize: Give ids; False: the text.
            sanitize_control_tokens: Not available: True is refused.
            padding, truncation, max_length, return_tensors: As in calling the tokenizer.
            return_dict: ``{"input_ids": ..., "attention_mask": ...}``; False: the ids alone.
            return_assistant_tokens_mask: Add ``assistant_masks``: 1 for each token of what the
                template has within ``{% generation %}``.
            **variables: Of the template, such as ``enable_thinking``.

        Raises:
            TypeError: A further keyword is no variable of the template.
            RequestError: The arguments or the messages make no sense.
        """
        if sanitize_control_tokens:
            raise UnsupportedError(
                "sanitize_control_tokens=True is not available; take control tokens out of the "
                "messages"
            )
        masked = return_assistant_tokens_mask
        if masked and not (tokenize and return_dict):
            raise RequestError("return_assistant_tokens_mask needs tokenize and return_dict")
        if continue_final_message and (add_generation_prompt or masked):
            other = "add_generation_prompt" if add_generation_prompt else "an assistant mask"
            raise RequestError(f"continue_final_message excludes {other}: the turn is not over")
        template = self._choose_template(chat_template, variables)
        own = set(type(self).apply_chat_template.__annotations__) - {"return", "variables"}
        check_variables(template, set(variables), own)
        if masked and not template.marks_generation:
            raise RequestError(
                "return_assistant_tokens_mask needs a chat template that has {% generation %} around "
                "what the assistant says; this one has not"
            )
        conversations, is_batch = as_conversations(conversation)
        options: dict[str, Any] = {
            "tools": as_schemas(tools),
            "add_generation_prompt": add_generation_prompt,
            "variables": {"documents": documents, **variables},
        }
        texts: list[str] = []
        masks: list[list[Span]] = []
        for messages in map(prepare_messages, conversations):
            if continue_final_message:
                field = "content" if continue_final_message is True else continue_final_message
                texts.append(render_open(template, messages, field, options))
            else:
                text, spans = template.render_marked(messages, **options)
                texts.append(text)
                masks.append(spans)
        if not tokenize:
            return texts if is_batch else texts[0]
        columns = {"input_ids": [self.encode(text, add_special_tokens=False) for text in texts]}
        if masked:
            columns["assistant_masks"] = [
                token_mask(map(self.tokenizer.token_bytes, ids), text, spans)
                for ids, text, spans in zip(columns["input_ids"], texts, masks, strict=True)
            ]
        encoding = self._encoding(
            columns, not is_batch, return_tensors, padding, truncation, max_length
        )
        return encoding if return_dict else encoding["input_ids"]

    def _choose_template(self, source: str | None, variables: dict[str, Any]) -> ChatTemplate:
        """The template of a call; takes the texts of special tokens out of its variables."""
        source = self.chat_template if source is None else source
        if source is None:
            raise RequestError("this model has no chat template: give one as chat_template")
        tokens = {
            name: variables.pop(name, "" if token is None else self._text(token))
            for name, token in (("bos_token", self.bos_token_id), ("eos_token", self.eos_token_id))
        }
        template = _template(source, **tokens)
        for name, token in (("pad_token", self.pad_token_id), ("unk_token", self.unk_token_id)):
            if token is not None and name in template.variables:
                variables.setdefault(name, self._text(token))
        return template

    def _text(self, token: int) -> str:
        return self.tokenizer.vocabulary.texts[token]


@lru_cache(maxsize=8)
def _template(source: str, bos_token: str, eos_token: str) -> ChatTemplate:
    """Compiled once for all calls."""
    return ChatTemplate(source, bos_token=bos_token, eos_token=eos_token)


class AutoTokenizer:
    """Loads tokenizers."""

    @staticmethod
    def from_pretrained(
        source: str | os.PathLike[str] | None = None, *, quant_type: str = ""
    ) -> PreTrainedTokenizer:
        """The tokenizer of a model, also of a vocabulary-only GGUF."""
        checkpoint = open_model(source, quant_type, vocabulary_only=True)
        tokenizer = Tokenizer.from_gguf(checkpoint.file)
        template = load_template(checkpoint, tokenizer)
        return PreTrainedTokenizer(tokenizer, template, checkpoint.trained_context)
