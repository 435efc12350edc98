"""An engine as a ``transformers.PreTrainedModel``: forward passes, caches, transformers' own generation.

Only imported for callers who have torch and transformers.
"""

# transformers' own signatures are narrower than what it calls them with.
# mypy: disable-error-code="misc,override,no-untyped-call"

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import Cache, GenerationConfig, GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from oxibonsai import _core
from oxibonsai.devices import KvPages, Slots
from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.hf.arrays import as_columns, as_embeds
from oxibonsai.hf.config import LoadedConfig, count_parameters
from oxibonsai.hf.rows import Results, Rows
from oxibonsai.hf.transformers_base import EngineModel

# Text generation pipelines look up the names of classes.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["oxibonsai"] = "OxiBonsaiForCausalLM"
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["oxibonsai-front"] = "CausalLM"
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["oxibonsai-sees"] = "OxiBonsaiForImageTextToText"
MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES["oxibonsai"] = "OxiBonsaiForImageTextToText"

_IGNORED_LABEL = -100
# For stopping and assistants; where columns lie, which the cache knows.
_OF_GENERATE = {"tokenizer", "assistant_tokenizer", "cache_position", "synced_gpus"}


class EngineCache(Cache):
    """The ``past_key_values`` of texts whose keys and values lie in the engine.

    Columns count padding, as in transformers; only tokens that the attention mask shows are computed.

    Args:
        engine: Has the pages.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(layers=[])
        self._rows = Rows(engine)
        self._lengths: list[list[int]] = []  # tokens of each row up to each column

    def __deepcopy__(self, memo: dict[int, Any]) -> EngineCache:
        """Return a cache of the same texts, to go on from several times."""
        made = EngineCache(self._rows.engine)
        made._rows = self._rows.fork()
        made._lengths = [list(lengths) for lengths in self._lengths]
        return made

    def extend(
        self,
        ids: np.ndarray,
        mask: np.ndarray,
        run: Any,
        *,
        last_only: bool,
        embeds: np.ndarray | None = None,
    ) -> list[Results]:
        """Compute new columns: [batch, new] ids, of which the mask shows some, or their embeddings."""
        new = [row[shown].tolist() for row, shown in zip(ids, mask, strict=True)]
        own = None if embeds is None else [e[m] for e, m in zip(embeds, mask, strict=True)]
        results = self._rows.feed(new, run, last_only=last_only, embeds=own)
        if not self._lengths:
            self._lengths = [[] for _ in new]
        for lengths, shown in zip(self._lengths, mask, strict=True):
            before = lengths[-1] if lengths else 0
            lengths.extend((before + np.cumsum(shown)).tolist())
        return results

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return columns so far."""
        return len(self._lengths[0]) if self._lengths else 0

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """Return -1: there is no other bound than the context."""
        return -1

    @property
    def batch_size(self) -> int:
        """Return rows."""
        return len(self._lengths)

    @property
    def is_compileable(self) -> bool:
        """Whether torch could compile with it."""
        return False

    @property
    def is_croppable(self) -> bool:
        """Whether columns can be taken away again."""
        return True

    def activate_past_recording(self) -> None:
        """Do nothing: it can always be cropped."""

    def crop(self, tokens_to_remove: int) -> None:
        """Keep so many columns, or takes away so many where the number is negative."""
        keep = tokens_to_remove
        if keep <= 0:
            keep = self.get_seq_length() + keep
        for i, lengths in enumerate(self._lengths):
            del lengths[max(keep, 0) :]
            self._rows.crop(i, lengths[-1] if lengths else 0)

    def reorder_cache(self, beam_idx: Any) -> None:
        """Make row i what row ``beam_idx[i]`` was."""
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Any) -> None:
        """Make row i what row ``indices[i]`` was."""
        chosen = [int(i) for i in indices]
        self._rows.select(chosen)
        self._lengths = [list(self._lengths[i]) for i in chosen]

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row so many times, one after the other."""
        rows = range(len(self._lengths))
        self.batch_select_indices([i for i in rows for _ in range(repeats)])

    def reset(self) -> None:
        """Forget everything."""
        self._rows.clear()
        self._lengths = []


class OxiBonsaiForCausalLM(EngineModel, GenerationMixin):
    """A model that transformers, its pipelines and evaluation harnesses take for one of theirs.

    Args:
        engine: Runs it.
        config: As the model's front has it.
    """

    base_model_prefix = "model"
    _supports_sdpa = True
    _is_stateful = False

    def __init__(self, engine: Engine, config: LoadedConfig) -> None:
        super().__init__(config)
        self.engine = engine
        self.generation_config = GenerationConfig.from_dict(config.generation)

    def num_parameters(self, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
        """Return the weights of the model, none of which is trainable here."""
        checkpoint = self.engine.model.weights.checkpoint
        return 0 if only_trainable else count_parameters(checkpoint, exclude_embeddings)

    def resize_token_embeddings(
        self,
        new_num_tokens: int | None = None,
        pad_to_multiple_of: int | None = None,
        mean_resizing: bool = True,
    ) -> None:
        """Refuse any number of tokens but the model's: no row can be added or taken away."""
        rows = self.config.vocab_size
        wanted = rows if new_num_tokens is None else new_num_tokens
        wanted += -wanted % (pad_to_multiple_of or 1)
        if wanted != rows:
            raise UnsupportedError(
                f"the model has {rows} rows of embeddings, not {wanted}: they stay so here; do it in "
                "transformers, save the model, and load that"
            )

    def save_pretrained(self, save_directory: str | os.PathLike[str], **options: Any) -> None:
        """Do what :meth:`oxibonsai.hf.CausalLM.save_pretrained` does."""
        from oxibonsai.export import save_model

        save_model(self.engine.model.weights.checkpoint, save_directory, **options)

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: EngineCache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        position_ids: torch.Tensor | None = None,
        **passed_on: Any,
    ) -> Any:
        """Return logits after each token, in transformers' own output class.

        Args:
            input_ids: [batch, new].
            attention_mask: [batch, past and new]; where it is 0 nothing is computed, and the
                logits are 0.
            past_key_values: Of an earlier call.
            inputs_embeds: [batch, new, hidden], in place of ``input_ids``.
            labels: [batch, new]; -100 is left out of ``loss``, the mean cross-entropy of the next
                token.
            use_cache: Give ``past_key_values`` back; None: as the configuration says.
            output_hidden_states: Give the hidden states before each layer and after the last norm.
            output_attentions: Not available.
            return_dict: False: a tuple.
            logits_to_keep: Only the last so many, or those of these columns; 0: all.
            position_ids: Only those that the attention mask gives by itself.
            **passed_on: What ``generate`` hands to every model's forward pass, though it is none of
                its business; anything else is a TypeError.
        """
        for name in passed_on.keys() - _OF_GENERATE:
            raise TypeError(f"forward() got {name!r}, which is no argument of it")
        if output_attentions:
            raise UnsupportedError(
                "output_attentions is not available: attention is computed in tiles and its "
                "probabilities are never stored"
            )
        if (input_ids is None) is (inputs_embeds is None):
            raise RequestError("give input_ids or inputs_embeds, and not both")
        embeds = None if inputs_embeds is None else as_embeds(inputs_embeds)
        # With embeddings, ids of nothing are in their places.
        given: Any = input_ids if embeds is None else np.zeros(embeds.shape[:2], np.int64)
        if past_key_values is not None and not isinstance(past_key_values, EngineCache):
            raise UnsupportedError(
                f"past_key_values is a {type(past_key_values).__name__}; it must be one that this "
                "model gave back"
            )
        if use_cache is None:
            use_cache = bool(getattr(self.config, "use_cache", True))
        cache = EngineCache(self.engine) if past_key_values is None else past_key_values
        ids, mask = as_columns(given, attention_mask, cache.get_seq_length())
        _check_positions(position_ids, attention_mask, mask, cache.get_seq_length())
        last_only = (
            isinstance(logits_to_keep, int)
            and logits_to_keep == 1
            and not output_hidden_states
            and labels is None
            and bool(mask[:, -1].all())
        )
        run = self._run_states if output_hidden_states else self._run
        results = cache.extend(ids, mask, run, last_only=last_only, embeds=embeds)
        states = _spread(results, mask, last_only)
        logits = torch.from_numpy(states.pop("logits"))
        if not last_only:
            logits = _kept(logits, logits_to_keep)
        hidden = tuple(torch.from_numpy(s) for s in states.values()) or None
        output = CausalLMOutputWithPast(
            loss=None if labels is None else _loss(logits, labels),
            logits=logits,
            past_key_values=cache if use_cache else None,
            hidden_states=hidden,
        )
        if return_dict is None:
            return_dict = bool(getattr(self.config, "return_dict", True))
        return output if return_dict else output.to_tuple()

    def _run(
        self, batch: _core.Batch, pools: Sequence[KvPages], slots: Slots | None, embedded: bool
    ) -> Results:
        return {"logits": self.engine.model.run(batch, pools, slots, images=embedded)}

    def _run_states(
        self, batch: _core.Batch, pools: Sequence[KvPages], slots: Slots | None, embedded: bool
    ) -> Results:
        if embedded:
            raise UnsupportedError("output_hidden_states does not go with inputs_embeds")
        logits, states = self.engine.model.run_states(batch, pools, slots)
        return {"logits": logits, **{f"state.{i}": s for i, s in enumerate(states)}}

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *_: Any, **__: Any
    ) -> None:
        """Prepare the engine's cache in place of transformers' own."""
        if generation_config.cache_implementation is not None:
            raise UnsupportedError(
                f"cache_implementation={generation_config.cache_implementation!r} is not available: "
                "keys and values lie in the engine (load the model with kv_type=...)"
            )
        if model_kwargs.get("past_key_values") is None and generation_config.use_cache is not False:
            model_kwargs["past_key_values"] = EngineCache(self.engine)


class OxiBonsaiForImageTextToText(OxiBonsaiForCausalLM):
    """A model that sees, which transformers' pipelines take for one of theirs.

    Args:
        front: An :class:`oxibonsai.hf.ImageTextToText`, which runs what has images.
    """

    def __init__(self, front: Any) -> None:
        super().__init__(front.engine, front.config)
        self.front = front

    def forward(self, *args: Any, pixel_values: Any = None, **inputs: Any) -> Any:
        """Return logits after each token; see :meth:`oxibonsai.hf.ImageTextToText.__call__`."""
        if pixel_values is None:
            return super().forward(*args, **inputs)
        return self.front(*args, pixel_values=pixel_values, **inputs)

    def generate(self, inputs: Any = None, generation_config: Any = None, **options: Any) -> Any:
        """Continue prompts; see :meth:`oxibonsai.hf.ImageTextToText.generate`."""
        if options.get("pixel_values") is None:
            return super().generate(inputs, generation_config, **options)
        return self.front.generate(inputs, generation_config, **options)


def _spread(results: list[Results], mask: np.ndarray, last_only: bool) -> dict[str, np.ndarray]:
    """Return results by column: [batch, new, values], 0 where the mask hides a column."""
    names = next((list(r) for r in results if r), None)
    if names is None:
        raise RequestError("attention_mask hides every token of the batch")
    if last_only:
        return {n: np.stack([r[n] for r in results]) for n in names}
    spread = {}
    for n in names:
        width = next(r[n].shape[1] for r in results if r)
        values = np.zeros((*mask.shape, width), dtype=np.float32)
        for row, shown, result in zip(values, mask, results, strict=True):
            if result:
                row[shown] = result[n]
        spread[n] = values
    return spread


def _kept(logits: torch.Tensor, keep: int | torch.Tensor) -> torch.Tensor:
    return logits[:, -keep:] if isinstance(keep, int) else logits[:, keep]


def _loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return mean cross-entropy of each next token, in float32."""
    following = torch.nn.functional.pad(labels, (0, 1), value=_IGNORED_LABEL)[:, 1:]
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), following.flatten(), ignore_index=_IGNORED_LABEL
    )


def _check_positions(
    given: torch.Tensor | None, attention_mask: Any, mask: np.ndarray, past: int
) -> None:
    if given is None:
        return
    shown = mask
    before = np.full((len(mask), 1), past)
    if attention_mask is not None:
        whole = np.asarray(attention_mask.cpu()).astype(bool)
        before = whole[:, : whole.shape[1] - mask.shape[1]].sum(axis=1, keepdims=True)
    expected = before + np.cumsum(shown, axis=1) - 1
    wanted = np.broadcast_to(np.asarray(given.cpu()), mask.shape)
    if not np.array_equal(wanted[shown], expected[shown]):
        raise UnsupportedError(
            "position_ids must count the tokens of each text from 0: others are not available"
        )
