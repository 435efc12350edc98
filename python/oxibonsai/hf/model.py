"""Models with Hugging Face's ``generate``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from oxibonsai.engine import Engine, beam_search, load, submit_samples
from oxibonsai.engine import Sequence as EngineSequence
from oxibonsai.engine.beam_search import EarlyStopping
from oxibonsai.errors import RequestError
from oxibonsai.hf.arrays import as_rows, like
from oxibonsai.sampling import SamplingParams

_DEFAULT_NEW_TOKENS = 20  # as transformers has it


class Streamer(Protocol):
    """What transformers' ``TextStreamer`` and ``TextIteratorStreamer`` offer."""

    def put(self, value: Any) -> None:
        """Takes the prompt first, then each token."""

    def end(self) -> None:
        """Nothing more will come."""


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
        rows = as_rows(ids)
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
            seed: Of the draws; None: from torch's generator where torch is imported, so that
                ``torch.manual_seed`` and ``transformers.set_seed`` decide, else a random one.
            streamer: Gets the prompt, then every token; for one sequence.

        Returns:
            [batch * num_return_sequences, prompt + new], prompts included, padded on the right, of
            the kind that came in (lists give numpy, int64).

        Raises:
            RequestError: An argument is out of range, or a prompt does not fit the context.
        """
        rows = as_rows(input_ids)
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
            streamer.put(like(np.array(rows, dtype=np.int64), input_ids))
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
        return like(np.array(full, dtype=np.int64), input_ids)

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
                own = params if params.seed is not None else replace(params, seed=_torch_seed())
                sequences += submit_samples(self.engine, prompt, own, n=samples)
            shown = 0
            while not all(s.finished for s in sequences):
                self.engine.step()
                if streamer is not None:
                    for token in sequences[0].generated[shown:]:
                        streamer.put(like(np.array([token], dtype=np.int64), example))
                    shown = sequences[0].num_generated
        finally:
            for s in sequences:
                self.engine.cancel(s)
        return [s.generated for s in sequences]


def _masked(rows: list[list[int]], attention_mask: Any) -> list[list[int]]:
    mask = as_rows(attention_mask)
    if [len(r) for r in mask] != [len(r) for r in rows]:
        raise RequestError("attention_mask has another shape than input_ids")
    return [[t for t, m in zip(r, k, strict=True) if m] for r, k in zip(rows, mask, strict=True)]


def _torch_seed() -> int | None:
    """The next number of torch's generator; None in a program without torch."""
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.randint(2**63 - 1, ()))


class AutoModelForCausalLM:
    """Loads models."""

    @staticmethod
    def from_pretrained(
        source: str | os.PathLike[str] | None = None, *, device_map: Any = None, **options: Any
    ) -> CausalLM:
        """A model by file, folder, ``hf:org/repo[:file or quant]`` or ``pip:package``.

        Args:
            source: What :func:`oxibonsai.load` takes; None for the default model.
            device_map: ``device`` of :func:`oxibonsai.load` under transformers' name: ``"auto"``,
                ``"cpu"``, ``"cuda"``, ``"cuda:1"`` ...; a card's number, or ``{"": one of these}``.
            **options: Further arguments of :func:`oxibonsai.load`.

        Raises:
            RequestError: ``device_map`` spreads a model over several devices, or ``device`` is given
                too.
        """
        if device_map is not None:
            if "device" in options:
                raise RequestError("device and device_map exclude each other: give one of them")
            options["device"] = _device_of(device_map)
        return CausalLM(load(source, **options))


def _device_of(device_map: Any) -> str:
    """The one device that transformers' argument names."""
    if isinstance(device_map, dict):
        if set(device_map) != {""}:
            raise RequestError(
                f"device_map is {device_map}; a model runs on one device: give its name"
            )
        device_map = device_map[""]
    if isinstance(device_map, int) and not isinstance(device_map, bool):
        return f"cuda:{device_map}"
    name = str(device_map)  # also of a torch.device
    return "metal" if name == "mps" else name
