"""Models with Hugging Face's interface."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.engine import load
from oxibonsai.errors import RequestError, needs_extra
from oxibonsai.hf import generation
from oxibonsai.hf.arrays import as_embeds, as_rows, is_torch
from oxibonsai.hf.generation import Streamer
from oxibonsai.hf.loaded_model import LoadedModel, check_transformers
from oxibonsai.hf.tokenizer import PreTrainedTokenizer


class CausalLM(LoadedModel):
    """A model with Hugging Face's names; made by ``AutoModelForCausalLM``.

    Generation that the engine knows runs there as one batch, and needs neither torch nor
    transformers. All else of a ``PreTrainedModel`` comes from :attr:`transformers_model`, which is
    made when it is first needed.

    Arguments and attributes are those of :class:`LoadedModel`.
    """

    auto_class = "AutoModelForCausalLM"

    @cached_property
    def transformers_model(self) -> Any:
        """Return this engine as a ``transformers.PreTrainedModel``, for pipelines and harnesses.

        Raises:
            UnsupportedError: torch or transformers are not installed.
        """
        check_transformers("engine.generate, engine.logits and plain generate() work without")
        from oxibonsai.hf.transformers_model import OxiBonsaiForCausalLM

        return OxiBonsaiForCausalLM(self.engine, self.config)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.transformers_model, name)

    def __call__(self, input_ids: Any = None, **inputs: Any) -> Any:
        """Return logits and more in transformers' output class.

        See :meth:`oxibonsai.hf.transformers_model.OxiBonsaiForCausalLM.forward`.
        """
        return self.transformers_model(input_ids, **inputs)

    forward = __call__

    def logits(self, ids: Any) -> npt.NDArray[np.float32]:
        """Return logits after every token: float32 [n, vocabulary], for ids [n] or [1, n]."""
        rows = as_rows(ids)
        if len(rows) != 1:
            raise RequestError("logits() takes one sequence; call engine.logits_batch for several")
        return self.engine.logits(rows[0])

    def load_adapter(self, adapter: str | os.PathLike[str], scale: float = 1.0) -> None:
        """Add a low-rank adapter, as PEFT's method of this name: the weights are packed again.

        Args:
            adapter: A folder that PEFT saved, or llama.cpp's GGUF file.
            scale: Factor of the adapter.

        Raises:
            FormatError: It is damaged, or for another model.
        """
        before = self._options.get("lora")
        listed = [] if before is None else before if isinstance(before, list) else [before]
        options = {**self._options, "lora": [*listed, (os.fspath(adapter), scale)]}
        self.engine = load(self.name_or_path, **options)
        self._options = options
        self.__dict__.pop("transformers_model", None)

    def trainable(self, adapter: Any = None, *, dtype: str = "float32") -> Any:
        """Return transformers' model with this one's weights, frozen and packed, for any ``Trainer``.

        Its linear layers are :class:`oxibonsai.hf.torch.QuantLinear`, so that the weights stay in the
        file's types; what is trained is an adapter. The folder that PEFT saves of it is what
        :meth:`load_adapter`, ``oxibonsai serve --lora`` and requests take.

        Args:
            adapter: A ``peft.LoraConfig`` or another of PEFT's; None: no adapter is added.
            dtype: Of what is computed: ``"float32"`` or ``"bfloat16"``.

        Returns:
            A ``peft.PeftModel``, or without an adapter a ``transformers.PreTrainedModel``.

        Raises:
            RequestError: There is no such dtype, or the model has adapters already.
            UnsupportedError: transformers or PEFT is not installed, or transformers lacks the
                architecture or a place for something in the file.
        """
        if self._options.get("lora"):
            raise RequestError("the model has adapters: load it without lora to train another")
        with needs_extra("finetune"):
            from oxibonsai.hf.trainable import trainable_model

        checkpoint = self.engine.model.weights.checkpoint
        return trainable_model(checkpoint, adapter, dtype, self.name_or_path)

    def generate(
        self,
        inputs: Any = None,
        generation_config: Any = None,
        *,
        input_ids: Any = None,
        inputs_embeds: Any = None,
        attention_mask: Any = None,
        seed: int | None = None,
        streamer: Streamer | None = None,
        assistant_model: Any = None,
        **options: Any,
    ) -> Any:
        """Continue prompts, with the meanings and defaults of transformers.

        Lengths, sampling, penalties, beams, stop strings, time limits and an oxibonsai assistant
        run in the engine, as one batch. With anything else (``logits_processor``,
        ``stopping_criteria``, ``return_dict_in_generate``, ``output_scores``, ``bad_words_ids``,
        ``past_key_values`` ...) transformers' own loop calls the engine for each token; draws are
        then torch's.

        Args:
            inputs: Integers [n] or [batch, n]; numpy, torch or nested lists. None: the model's bos.
            generation_config: A ``GenerationConfig``; what is given beside it goes before.
            input_ids: Another name for ``inputs``.
            inputs_embeds: [n, hidden] or [batch, n, hidden] in their place; the result then has the new
                tokens alone.
            attention_mask: Same shape; 0 marks padding, which is left out.
            seed: Of the draws; None: from torch's generator where torch is imported, so that
                ``torch.manual_seed`` and ``transformers.set_seed`` decide, else a random one.
            streamer: Gets the prompt, then every token; for one sequence.
            assistant_model: A smaller model that proposes tokens: a :class:`CausalLM` (which also
                draws the same as without) or one of transformers.
            **options: Of transformers' ``generate`` and ``GenerationConfig``.

        Returns:
            [batch * num_return_sequences, prompt + new], prompts included, padded on the right, of
            the kind that came in (lists give numpy, int64); or what transformers gives for
            ``return_dict_in_generate``.

        Raises:
            RequestError: An argument is out of range, or a prompt does not fit the context.
            UnsupportedError: An option needs transformers, which is not installed.
        """
        ids = inputs if input_ids is None else input_ids
        if ids is not None and inputs_embeds is not None:
            raise RequestError("give input_ids or inputs_embeds, and not both")
        asked = {**self._defaults(generation_config), **options}
        own_assistant = assistant_model is None or isinstance(assistant_model, CausalLM)
        if not (own_assistant and generation.is_native(asked)):
            given = {
                "inputs": ids,
                "inputs_embeds": inputs_embeds,
                "attention_mask": attention_mask,
            }
            return self._transformers_loop(
                given, generation_config, seed, streamer, assistant_model, options
            )
        values = generation.completed(asked)
        ends = generation.end_ids(values["eos_token_id"], self.engine.eos_ids)
        if inputs_embeds is None:
            prompts = generation.read_prompts(ids, attention_mask, values, ends)
        else:
            prompts = generation.read_embeds(self.engine, inputs_embeds, attention_mask)
        return generation.generate(
            self.engine,
            prompts,
            values,
            ends,
            seed=seed,
            streamer=streamer,
            assistant=None if assistant_model is None else assistant_model.engine,
        )

    def _defaults(self, generation_config: Any) -> dict[str, Any]:
        """Return the model's defaults, and over them those of a given configuration."""
        own = dict(self.config.generation)
        if "transformers_model" in self.__dict__:  # where a caller may have changed them
            own = self.transformers_model.generation_config.to_diff_dict()
        given = {} if generation_config is None else generation_config.to_diff_dict()
        return {**own, **given}

    def _transformers_loop(
        self,
        given: dict[str, Any],
        generation_config: Any,
        seed: int | None,
        streamer: Streamer | None,
        assistant_model: Any,
        options: dict[str, Any],
    ) -> Any:
        model = self.transformers_model
        with needs_extra("hf"):
            import torch

        asked_with = (given["inputs"], given["inputs_embeds"])
        asked = {**self._defaults(generation_config), **options}
        if all(asked.get(name) is None for name in ("max_new_tokens", "max_length")):
            options = {**options, "max_new_tokens": generation.DEFAULT_NEW_TOKENS}
        if isinstance(assistant_model, CausalLM):
            assistant_model = assistant_model.transformers_model
        if assistant_model is not None:
            options = {**options, "assistant_model": assistant_model}
        for name in ("tokenizer", "assistant_tokenizer"):
            if isinstance(options.get(name), PreTrainedTokenizer):
                options = {**options, name: options[name].transformers_tokenizer}
        if given["inputs_embeds"] is not None:
            given = {**given, "inputs_embeds": as_embeds(given["inputs_embeds"])}
        tensors = {
            name: value if is_torch(value) else torch.from_numpy(np.atleast_2d(np.asarray(value)))
            for name, value in given.items()
            if value is not None
        }
        with torch.random.fork_rng(enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            result = model.generate(
                **tensors, generation_config=generation_config, streamer=streamer, **options
            )
        if isinstance(result, torch.Tensor) and not any(map(is_torch, asked_with)):
            return result.numpy()
        return result


class AutoModelForCausalLM:
    """Loads models."""

    @staticmethod
    def from_pretrained(source: str | os.PathLike[str] | None = None, **options: Any) -> CausalLM:
        """Load a model by file, folder, ``org/repo``, ``hf:org/repo[:file or quant]`` or ``pip:package``.

        Args:
            source: What :func:`oxibonsai.load` takes, or a repository as transformers names it;
                None for the default model.
            **options: Arguments of :func:`oxibonsai.load`; of transformers ``gguf_file``,
                ``subfolder``, ``revision``, ``token``, ``cache_dir``, ``local_files_only`` and
                ``force_download`` say where the files are; ``device_map`` is ``device`` under another
                name: ``"auto"``, ``"cpu"``, ``"cuda"``, a card's number, or ``{"": one of these}``;
                ``dtype``, ``trust_remote_code`` and the like are taken, with a warning or an error
                where they ask for what is not so.

        Raises:
            SourceError: No such model.
            UnsupportedError: An argument asks for what is not available.
        """
        return CausalLM.load(source, options)
