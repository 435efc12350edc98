"""The Hugging Face style front: ``AutoModelForCausalLM`` and ``AutoTokenizer``.

numpy or torch in, the same kind out; torch is only imported by a caller who passes a tensor.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from oxibonsai.chat_template import ChatTemplate, Message
from oxibonsai.engine import Engine, beam_search, load, submit_samples
from oxibonsai.engine import Sequence as EngineSequence
from oxibonsai.engine.beam_search import EarlyStopping
from oxibonsai.engine.loading import load_chat_template
from oxibonsai.errors import RequestError
from oxibonsai.model_source import open_model
from oxibonsai.sampling import SamplingParams
from oxibonsai.tokenizer import Tokenizer

_DEFAULT_NEW_TOKENS = 20  # as transformers has it


class Streamer(Protocol):
    """What transformers' ``TextStreamer`` and ``TextIteratorStreamer`` offer."""

    def put(self, value: Any) -> None:
        """Takes the prompt first, then each token."""

    def end(self) -> None:
        """Nothing more will come."""


def _is_torch(value: Any) -> bool:
    return type(value).__module__.split(".")[0] == "torch"


def _rows(ids: Any) -> list[list[int]]:
    """Token ids as one list a sequence, from [n] or [batch, n] of any kind."""
    array = np.asarray(ids.cpu() if _is_torch(ids) else ids)
    if array.size == 0:
        raise RequestError("input_ids is empty: there is nothing to continue")
    if array.ndim not in (1, 2) or not np.issubdtype(array.dtype, np.integer):
        raise RequestError(
            f"input_ids has shape {array.shape} and type {array.dtype}; it must be integers [n] or "
            "[batch, n]"
        )
    rows: list[list[int]] = np.atleast_2d(array).tolist()
    return rows


def _like(values: npt.NDArray[Any], example: Any) -> Any:
    if not _is_torch(example):
        return values
    import torch

    return torch.from_numpy(values).to(example.device)


class CausalLM:
    """A model with Hugging Face's ``generate``; made by ``AutoModelForCausalLM``."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.config = engine.model.config

    def save_pretrained(
        self,
        folder: str | os.PathLike[str],
        *,
        format: Literal["safetensors", "gguf"] = "safetensors",
        dtype: str = "float32",
    ) -> None:
        """Writes the model into a folder; see :func:`oxibonsai.export.save_model`."""
        from oxibonsai.export import save_model

        save_model(self.engine.model.weights.checkpoint, folder, format=format, dtype=dtype)

    def logits(self, ids: Any) -> npt.NDArray[np.float32]:
        """Logits after every token: float32 [n, vocabulary], for ids [n] or [1, n]."""
        rows = _rows(ids)
        if len(rows) != 1:
            raise RequestError("logits() takes one sequence; call engine.logits_batch for several")
        return self.engine.logits(rows[0])

    def generate(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        *,
        max_new_tokens: int | None = None,
        max_length: int | None = None,
        do_sample: bool = False,
        temperature: float = 1.0,
        top_k: int = 50,
        top_p: float = 1.0,
        min_p: float = 0.0,
        typical_p: float = 1.0,
        repetition_penalty: float = 1.0,
        num_return_sequences: int = 1,
        num_beams: int = 1,
        length_penalty: float = 1.0,
        early_stopping: EarlyStopping = False,
        eos_token_id: int | Sequence[int] | None = None,
        pad_token_id: int | None = None,
        seed: int | None = None,
        streamer: Streamer | None = None,
    ) -> Any:
        """Continues prompts, with the meanings and defaults of transformers.

        Args:
            input_ids: Integers [n] or [batch, n]; numpy, torch or nested lists.
            attention_mask: Same shape; 0 marks padding, which is left out.
            max_new_tokens: New tokens at most; default 20.
            max_length: Prompt and new tokens together; ``max_new_tokens`` goes before.
            do_sample: Draw from the distribution; else the most likely token, always.
            temperature, top_k, top_p, min_p, typical_p: Only used with ``do_sample``.
            repetition_penalty: Over prompt and new tokens.
            num_return_sequences: Texts for each prompt, one after the other.
            num_beams: Search the likeliest text with so many beams; not with ``do_sample``.
            length_penalty, early_stopping: Of beam search; see
                :func:`oxibonsai.engine.beam_search`.
            eos_token_id: Ids that end a sequence; default: the model's own.
            pad_token_id: Fills up sequences that end early; default: the first eos id.
            seed: Of the draws.
            streamer: Gets the prompt, then every token; for one sequence.

        Returns:
            [batch * num_return_sequences, prompt + new], prompts included, padded on the right, of
            the kind that came in (lists give numpy, int64).

        Raises:
            RequestError: An argument is out of range, or a prompt does not fit the context.
        """
        rows = _rows(input_ids)
        if streamer is not None and (len(rows) > 1 or num_return_sequences > 1 or num_beams > 1):
            raise RequestError("a streamer takes one sequence, not a batch, samples or beams")
        prompts = rows if attention_mask is None else _masked(rows, attention_mask)
        width = len(rows[0])
        limit = max_new_tokens
        if limit is None:
            limit = _DEFAULT_NEW_TOKENS if max_length is None else max_length - width
        ends = self._ends(eos_token_id)
        params = SamplingParams(
            max_tokens=limit,
            temperature=temperature if do_sample else 0.0,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            repetition_penalty=repetition_penalty,
            repetition_window=-1,
            seed=seed,
            ignore_eos=True,
            stop_token_ids=tuple(sorted(ends)),
        )
        if do_sample and temperature <= 0.0:
            raise RequestError(f"temperature is {temperature}; with do_sample it must be above 0")
        if streamer is not None:
            streamer.put(_like(np.array(rows, dtype=np.int64), input_ids))
        if num_beams > 1:
            if do_sample:
                raise RequestError("num_beams goes without do_sample: beams are not drawn")
            search = partial(
                beam_search,
                self.engine,
                width=num_beams,
                max_new_tokens=limit,
                length_penalty=length_penalty,
                early_stopping=early_stopping,
                stop_token_ids=params.stop_token_ids,
                n=num_return_sequences,
            )
            new = [beam.tokens for prompt in prompts for beam in search(prompt)]
        else:
            new = self._run(prompts, params, num_return_sequences, streamer, input_ids)
        if streamer is not None:
            streamer.end()
        pad = pad_token_id if pad_token_id is not None else min(ends, default=0)
        longest = max(map(len, new))
        repeated = [r for r in rows for _ in range(num_return_sequences)]
        full = [r + n + [pad] * (longest - len(n)) for r, n in zip(repeated, new, strict=True)]
        return _like(np.array(full, dtype=np.int64), input_ids)

    def _ends(self, eos_token_id: int | Sequence[int] | None) -> frozenset[int]:
        if eos_token_id is None:
            return self.engine.eos_ids
        if isinstance(eos_token_id, int):
            return frozenset({eos_token_id})
        return frozenset(eos_token_id)

    def _run(
        self,
        prompts: list[list[int]],
        params: SamplingParams,
        samples: int,
        streamer: Streamer | None,
        example: Any,
    ) -> list[list[int]]:
        """New tokens of every sample of every prompt, stepped together."""
        sequences: list[EngineSequence] = []
        try:
            for prompt in prompts:
                sequences += submit_samples(self.engine, prompt, params, n=samples)
            shown = 0
            while not all(s.finished for s in sequences):
                self.engine.step()
                if streamer is not None:
                    for token in sequences[0].generated[shown:]:
                        streamer.put(_like(np.array([token], dtype=np.int64), example))
                    shown = sequences[0].num_generated
        finally:
            for s in sequences:
                self.engine.cancel(s)
        return [s.generated for s in sequences]


def _masked(rows: list[list[int]], attention_mask: Any) -> list[list[int]]:
    mask = _rows(attention_mask)
    if [len(r) for r in mask] != [len(r) for r in rows]:
        raise RequestError("attention_mask has another shape than input_ids")
    return [[t for t, m in zip(r, k, strict=True) if m] for r, k in zip(rows, mask, strict=True)]


class AutoModelForCausalLM:
    """Loads models."""

    @staticmethod
    def from_pretrained(source: str | os.PathLike[str] | None = None, **options: Any) -> CausalLM:
        """A model by file, folder, ``hf:org/repo[:file or quant]`` or ``pip:package``.

        Args:
            source: What :func:`oxibonsai.load` takes; None for the default model.
            **options: Further arguments of :func:`oxibonsai.load`.
        """
        return CausalLM(load(source, **options))


class PreTrainedTokenizer:
    """A tokenizer with Hugging Face's names; made by ``AutoTokenizer``."""

    def __init__(self, tokenizer: Tokenizer, chat_template: ChatTemplate | None) -> None:
        self.tokenizer = tokenizer
        self._template = chat_template
        self.chat_template = None if chat_template is None else chat_template.source
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
        padding: bool = False,
    ) -> dict[str, Any]:
        """``{"input_ids": ..., "attention_mask": ...}`` for one text or several.

        Args:
            text: One text (lists [n], tensors [1, n]) or several (lists of lists, tensors
                [batch, n]).
            return_tensors: None for lists, ``"np"`` or ``"pt"``.
            add_special_tokens: Put a bos first where the model wants one.
            padding: Fill up on the left to the longest text.
        """
        texts = [text] if isinstance(text, str) else list(text)
        ids = [self.encode(t, add_special_tokens) for t in texts]
        longest = max((len(i) for i in ids), default=0) if padding else 0
        pad = self.pad_token_id if self.pad_token_id is not None else (self.eos_token_id or 0)
        fill = [max(0, longest - len(i)) for i in ids]
        padded = [[pad] * f + i for f, i in zip(fill, ids, strict=True)]
        mask = [[0] * f + [1] * len(i) for f, i in zip(fill, ids, strict=True)]
        if return_tensors is None:
            if isinstance(text, str):
                return {"input_ids": padded[0], "attention_mask": mask[0]}
            return {"input_ids": padded, "attention_mask": mask}
        return {
            "input_ids": _tensor(padded, return_tensors),
            "attention_mask": _tensor(mask, return_tensors),
        }

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **_: Any) -> str:
        """Text of ids: an integer, a list, an array or a tensor."""
        flat = np.asarray(token_ids.cpu() if _is_torch(token_ids) else token_ids).reshape(-1)
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
        conversation: Sequence[Message],
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        tokenize: bool = True,
        return_tensors: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """The prompt of a conversation, as text or as ids."""
        if self._template is None:
            raise RequestError("this model has no chat template")
        text = self._template.render(
            conversation, tools=tools, add_generation_prompt=add_generation_prompt, **kwargs
        )
        if not tokenize:
            return text
        ids = self.encode(text, add_special_tokens=False)
        return ids if return_tensors is None else _tensor([ids], return_tensors)


def _tensor(rows: list[list[int]], kind: str) -> Any:
    if len({len(r) for r in rows}) > 1:
        raise RequestError("texts of different lengths make no tensor; pass padding=True")
    array = np.array(rows, dtype=np.int64)
    if kind == "np":
        return array
    if kind == "pt":
        import torch

        return torch.from_numpy(array)
    raise RequestError(f"return_tensors is {kind!r}; it must be 'np' or 'pt'")


class AutoTokenizer:
    """Loads tokenizers."""

    @staticmethod
    def from_pretrained(
        source: str | os.PathLike[str] | None = None, *, quant_type: str = ""
    ) -> PreTrainedTokenizer:
        """The tokenizer of a model, also of a vocabulary-only GGUF."""
        checkpoint = open_model(source, quant_type, vocabulary_only=True)
        tokenizer = Tokenizer.from_gguf(checkpoint.file)
        return PreTrainedTokenizer(tokenizer, load_chat_template(checkpoint, tokenizer))
