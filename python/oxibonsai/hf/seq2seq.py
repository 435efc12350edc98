"""``AutoModelForSeq2SeqLM``: a decoder behind an encoder, with Hugging Face's interface."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.hf import generation
from oxibonsai.hf.arrays import as_columns, as_ids, like
from oxibonsai.hf.generation import Streamer
from oxibonsai.hf.loaded_model import LoadedModel
from oxibonsai.hf.outputs import Seq2SeqOutput

_IGNORED_LABEL = -100
_REFUSED = {
    "decoder_attention_mask": "pad the decoder's texts on the right, where nothing reads it",
    "encoder_outputs": "give input_ids",
    "past_key_values": "call generate(), which keeps what is computed",
    "inputs_embeds": "give input_ids",
    "decoder_inputs_embeds": "give decoder_input_ids",
    "output_attentions": "attention is computed in tiles and its probabilities are never stored",
    "output_hidden_states": "the states of the layers are not kept",
}


class Seq2SeqLM(LoadedModel):
    """A model with an encoder and a decoder; made by ``AutoModelForSeq2SeqLM``.

    Needs neither torch nor transformers.
    """

    auto_class = "AutoModelForSeq2SeqLM"

    def __call__(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        decoder_input_ids: Any = None,
        *,
        labels: Any = None,
        return_dict: bool | None = None,
        **others: Any,
    ) -> Any:
        """Return the logits after every token of the decoder. Those of a text depend on that text alone.

        Args:
            input_ids: [batch, n], which the encoder reads; numpy, torch or nested lists.
            attention_mask: Same shape; 0 marks padding, which is left out.
            decoder_input_ids: [batch, m]; None: the labels, behind the decoder's start token.
            labels: [batch, m]; -100 is left out of ``loss``, the mean cross-entropy of the labels.
            return_dict: False: a tuple.
            **others: Further arguments of transformers' models, which are refused by name.

        Raises:
            RequestError: Shapes don't fit each other; a text is empty, too long or holds a wrong id.
            UnsupportedError: An argument asks for what is not available.
        """
        _refuse(others)
        if input_ids is None:
            raise RequestError("input_ids is missing")
        ids, mask = as_columns(input_ids, attention_mask, 0)
        given = None if labels is None else as_ids(labels, "labels")
        if decoder_input_ids is not None:
            decoded = as_ids(decoder_input_ids, "decoder_input_ids")
        elif given is not None:
            decoded = self._shifted(given)
        else:
            raise RequestError("give decoder_input_ids or labels: the decoder needs a text")
        if len(decoded) != len(ids):
            raise RequestError(f"there are {len(ids)} texts, and {len(decoded)} for the decoder")
        texts = [row[shown].tolist() for row, shown in zip(ids, mask, strict=True)]
        logits = np.stack(self.engine.decoder_logits(texts, decoded.tolist()))
        loss = None
        if given is not None:
            loss = like(np.array(_loss(logits, given), np.float32), input_ids)
        output = Seq2SeqOutput(loss, like(logits, input_ids))
        return output.to_tuple() if return_dict is False else output

    forward = __call__

    @property
    def _start(self) -> int:
        decoder = self.engine.model.config.decoder
        assert decoder is not None  # a model of this class has one
        return decoder.start_token_id

    def _shifted(self, labels: Any) -> Any:
        """Return what the decoder reads where it is to give the labels."""
        pad = self.config.generation.get("pad_token_id") or 0
        first = np.full((len(labels), 1), self._start, np.int64)
        return np.hstack([first, np.where(labels == _IGNORED_LABEL, pad, labels)[:, :-1]])

    def generate(
        self,
        inputs: Any = None,
        generation_config: Any = None,
        *,
        input_ids: Any = None,
        attention_mask: Any = None,
        seed: int | None = None,
        streamer: Streamer | None = None,
        **options: Any,
    ) -> Any:
        """Return what the decoder says of texts, with the meanings and defaults of transformers.

        Args:
            inputs: Integers [n] or [batch, n] for the encoder; numpy, torch or nested lists.
            generation_config: A ``GenerationConfig``; what is given beside it goes before.
            input_ids: Another name for ``inputs``.
            attention_mask: Same shape; 0 marks padding, which is left out.
            seed: As of :meth:`oxibonsai.hf.CausalLM.generate`.
            streamer: Gets the start token, then every token; for one sequence.
            **options: Lengths, sampling, penalties and stop strings of transformers' ``generate``.

        Returns:
            [batch * num_return_sequences, 1 + new], from the decoder's start token on, padded on the
            right, of the kind that came in (lists give numpy, int64).

        Raises:
            RequestError: An argument is out of range, or a text does not fit the context.
            UnsupportedError: An option needs transformers' own loop, or beams.
        """
        ids = inputs if input_ids is None else input_ids
        if ids is None:
            raise RequestError("input_ids is missing: the encoder needs a text")
        given = {} if generation_config is None else generation_config.to_diff_dict()
        asked = {**self.config.generation, **given, **options}
        start = asked.pop("decoder_start_token_id", None)
        if start not in (None, self._start):
            raise UnsupportedError(
                f"decoder_start_token_id is {start}; this model's decoder starts with {self._start}"
            )
        if not generation.is_native(asked) or (asked.get("num_beams") or 1) > 1:
            raise UnsupportedError(
                "a model with an encoder and a decoder generates with lengths, sampling, penalties and "
                "stop strings, one text at a time: leave out other options, and num_beams"
            )
        values = generation.completed(asked)
        ends = generation.end_ids(values["eos_token_id"], self.engine.eos_ids)
        read = generation.read_prompts(ids, attention_mask, values, ends)
        # The result begins with what the decoder does, and penalties count no token of the encoder.
        prompts = replace(read, rows=[[self._start] for _ in read.rows], width=1, uncounted=True)
        return generation.generate(
            self.engine, prompts, values, ends, seed=seed, streamer=streamer, assistant=None
        )


def _refuse(others: Mapping[str, Any]) -> None:
    for name, value in others.items():
        if name == "use_cache":  # nothing of a call is kept
            continue
        if name not in _REFUSED:
            raise TypeError(f"forward() got {name!r}, which is no argument of it")
        if value is not None and value is not False:
            raise UnsupportedError(f"{name} is not available: {_REFUSED[name]}")


def _loss(logits: Any, labels: Any) -> float:
    """Return the mean cross-entropy of the labels, those that are ignored left out."""
    if labels.shape != logits.shape[:2]:
        raise RequestError(
            f"labels have shape {labels.shape}; the decoder's texts have {logits.shape[:2]}"
        )
    kept = labels != _IGNORED_LABEL
    x, wanted = logits[kept].astype(np.float64), labels[kept]
    if ((wanted < 0) | (wanted >= x.shape[1])).any():
        raise RequestError(f"labels are 0 to {x.shape[1] - 1}, or {_IGNORED_LABEL}")
    surprisal = np.logaddexp.reduce(x, axis=1) - x[np.arange(len(x)), wanted]
    return float(np.mean(surprisal)) if len(x) else float("nan")


class AutoModelForSeq2SeqLM:
    """Loads models with an encoder and a decoder."""

    @staticmethod
    def from_pretrained(source: str | os.PathLike[str] | None = None, **options: Any) -> Seq2SeqLM:
        """Return a model with an encoder and a decoder, such as T5.

        Args:
            source: As for ``AutoModelForCausalLM``.
            **options: As for ``AutoModelForCausalLM``.

        Raises:
            UnsupportedError: The model has no encoder, or as there.
        """
        return Seq2SeqLM.load(source, options)
