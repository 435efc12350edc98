"""Tokenizers with Hugging Face's interface."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from oxibonsai.chat import load_template
from oxibonsai.chat_template import ChatTemplate, Span, compiled_template
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import RequestError, UnsupportedError, needs_extra
from oxibonsai.files.json_object import read_object
from oxibonsai.files.whole_file import written_whole
from oxibonsai.hf.batch import Padding, framed_row
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
from oxibonsai.hf.encoder import TextEncoder
from oxibonsai.hf.pretrained import locate
from oxibonsai.loading import open_model
from oxibonsai.tokenizer import Tokenizer
from oxibonsai.tokenizer.files.chat_templates import chat_templates
from oxibonsai.tokenizer.files.loading import (
    open_with_settings,
    read_tokenizer_files,
    tokenizer_folder,
)
from oxibonsai.tokenizer.files.saving import tokenizer_files
from oxibonsai.tokenizer.files.settings import Side, TokenizerSettings


class PreTrainedTokenizer(TextEncoder):
    """A tokenizer with the names of transformers; made by ``AutoTokenizer``.

    Args:
        tokenizer: The model's.
        chat_template: Its chat format, if it has one; or several, by their names.
        model_max_length: Positions that the model was trained on, if the file says so: the default
            of ``max_length``.
        checkpoint: Where it comes from, for :meth:`save_pretrained`.
        folder: Where it comes from, if that is no GGUF file.
        name_or_path: What it was loaded from.

    Attributes:
        chat_template: Jinja source, or several by their names; None where the model has none.
        name_or_path: As given.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        chat_template: ChatTemplate | dict[str, str] | None,
        model_max_length: int | None = None,
        *,
        checkpoint: Checkpoint | None = None,
        folder: str | os.PathLike[str] | None = None,
        settings: TokenizerSettings | None = None,
        name_or_path: str = "",
    ) -> None:
        super().__init__(tokenizer, model_max_length, settings)
        self.chat_template: str | dict[str, str] | None
        if isinstance(chat_template, ChatTemplate):
            self.chat_template = chat_template.source
        elif chat_template is not None and chat_template.keys() == {"default"}:
            self.chat_template = chat_template["default"]
        else:
            self.chat_template = chat_template or None
        self.name_or_path = name_or_path
        self._checkpoint, self._folder = checkpoint, None if folder is None else Path(folder)

    def __repr__(self) -> str:
        return (
            f"PreTrainedTokenizer({self.name_or_path!r}, vocab_size={self.vocab_size}, "
            f"model_max_length={self.model_max_length}, padding_side={self.padding_side!r}, "
            f"special_tokens={self.special_tokens_map})"
        )

    def __reduce__(self) -> Any:
        return _load_again, (self.name_or_path, self.padding_side, self.truncation_side)

    @cached_property
    def transformers_tokenizer(self) -> Any:
        """Return the same vocabulary as a ``transformers.PreTrainedTokenizerFast``.

        For code that asks for that type. Raises UnsupportedError where the vocabulary has no form in
        ``tokenizer.json``.
        """
        import tempfile

        with needs_extra("hf"):
            from transformers import PreTrainedTokenizerFast

        with tempfile.TemporaryDirectory(prefix="oxibonsai-") as folder:
            self.save_pretrained(folder)
            made = PreTrainedTokenizerFast.from_pretrained(folder)
        made.padding_side = self.padding_side
        made.chat_template = self.chat_template
        return made

    def save_pretrained(self, folder: str | os.PathLike[str]) -> tuple[str, ...]:
        """Write ``tokenizer.json``, its configuration and the chat template into a folder.

        Of a tokenizer that was loaded from a folder, that folder's files.

        Returns:
            Paths of the files.
        """
        place = Path(folder)
        if self._folder is not None:
            texts = read_tokenizer_files(self._folder)
        elif self._checkpoint is not None:
            texts = {
                name: text.encode() for name, text in tokenizer_files(self._checkpoint).items()
            }
        else:
            raise RequestError("this tokenizer was not loaded from a file")
        place.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (place / name).parent.mkdir(exist_ok=True)
            with written_whole(place / name) as file:
                file.write(text)
        return tuple(str(place / name) for name in texts)

    def get_chat_template(self, chat_template: str | None = None, tools: Any = None) -> str:
        """Return Jinja source of the chat format."""
        return self._choose_template(chat_template, {}, tools).source

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
        """Return the prompt of a conversation, or of each of several, as transformers 5 makes it.

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
        template = self._choose_template(chat_template, variables, tools)
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
        spans: list[list[Span]] = []
        for messages in map(prepare_messages, conversations):
            if continue_final_message:
                field = "content" if continue_final_message is True else continue_final_message
                texts.append(render_open(template, messages, field, options))
            else:
                text, marked = template.render_marked(messages, **options)
                texts.append(text)
                spans.append(marked)
        if not tokenize:
            return texts if is_batch else texts[0]
        limits = self._limits(padding, truncation, max_length, None, None)
        ids = [self._part(text, False)[0] for text in texts]
        cut = [framed_row([(row, [])], [(None, 0)], limits).ids for row in ids]
        columns: dict[str, list[list[Any]]] = {"input_ids": cut}
        columns["attention_mask"] = [[1] * len(row) for row in cut]
        if masked:
            masks = [
                token_mask(self._part(text, True)[1], marked)
                for text, marked in zip(texts, spans, strict=True)
            ]
            columns["assistant_masks"] = [
                limits.cut(m, len(c)) for m, c in zip(masks, cut, strict=True)
            ]
        encoding = self._encoding(columns, [], limits, not is_batch, return_tensors)
        return encoding if return_dict else encoding["input_ids"]

    def _choose_template(
        self, source: str | None, variables: dict[str, Any], tools: Any
    ) -> ChatTemplate:
        """Return the template of a call; takes the texts of special tokens out of its variables."""
        own = self.chat_template
        if isinstance(own, dict):
            name = source or ("tool_use" if tools is not None and "tool_use" in own else "default")
            source = own.get(name, source)
            if source is None:
                raise RequestError(
                    f"this tokenizer has the chat templates {', '.join(sorted(own))}, and none is "
                    "'default': name one as chat_template"
                )
        elif source is None:
            source = own
        if source is None:
            raise RequestError("this model has no chat template: give one as chat_template")
        tokens = {
            name: variables.pop(name, "" if text is None else text)
            for name, text in (("bos_token", self.bos_token), ("eos_token", self.eos_token))
        }
        template = compiled_template(source, **tokens)
        for name, text in (("pad_token", self.pad_token), ("unk_token", self.unk_token)):
            if text is not None and name in template.variables:
                variables.setdefault(name, text)
        return template


def _load_again(source: str, padding_side: Side, truncation_side: Side) -> PreTrainedTokenizer:
    return AutoTokenizer.from_pretrained(
        source, padding_side=padding_side, truncation_side=truncation_side
    )


class AutoTokenizer:
    """Loads tokenizers."""

    @staticmethod
    def from_pretrained(
        source: str | os.PathLike[str] | None = None,
        *,
        quant_type: str = "",
        padding_side: Side | None = None,
        truncation_side: Side | None = None,
        use_fast: bool = True,
        trust_remote_code: bool = False,
        **options: Any,
    ) -> PreTrainedTokenizer:
        """Return the tokenizer of a model, also of a vocabulary-only GGUF or of a folder without a model.

        A folder's ``tokenizer.json`` is done as it says, with what ``tokenizer_config.json``,
        ``special_tokens_map.json``, ``added_tokens.json`` and ``chat_template.jinja`` add.

        Args:
            source: As for ``AutoModelForCausalLM``; or a folder with the files of a tokenizer.
            quant_type: Layout of tensors of type id 42, where the file leaves it open.
            padding_side: Where padding goes, ``"left"`` or ``"right"``; None: as the folder says; else
                left for models that continue texts, right for others.
            truncation_side: Where a text is cut, ``"left"`` or ``"right"``; None: as the folder says, or
                right.
            use_fast: There is one tokenizer.
            trust_remote_code: No code of a repository is ever run.
            **options: Where the files are, as for ``AutoModelForCausalLM``.
        """
        place = locate(source, options)
        if options:
            raise TypeError(f"from_pretrained() got {next(iter(options))!r}, which is unknown")
        folder = tokenizer_folder(place)
        made = _of_model(place, quant_type) if folder is None else _of_folder(folder, place or "")
        made.padding_side = padding_side or made.padding_side
        made.truncation_side = truncation_side or made.truncation_side
        return made


def _of_folder(folder: Path, name: str) -> PreTrainedTokenizer:
    holds_model = (folder / "config.json").is_file()
    config = read_object(folder / "config.json") if holds_model else {}
    positions = config.get("max_position_embeddings")
    tokenizer, settings = open_with_settings(folder)
    length = settings.model_max_length
    made = PreTrainedTokenizer(
        tokenizer,
        chat_templates(folder),
        positions if length is None and isinstance(positions, int) else length,
        folder=folder,
        settings=settings,
        name_or_path=name,
    )
    if not holds_model:  # it is not known that the model continues texts
        made.padding_side = settings.padding_side or "right"
    return made


def _of_model(place: str | None, quant_type: str) -> PreTrainedTokenizer:
    checkpoint = open_model(place, quant_type, vocabulary_only=True)
    tokenizer = Tokenizer.from_gguf(checkpoint.file)
    made = PreTrainedTokenizer(
        tokenizer,
        load_template(checkpoint, tokenizer),
        checkpoint.trained_context,
        checkpoint=checkpoint,
        name_or_path=place or "",
    )
    if checkpoint.file.text("tokenizer.ggml.model") == "bert":  # whose models know token types
        made.model_input_names.insert(1, "token_type_ids")
    return made
