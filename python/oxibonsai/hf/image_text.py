"""``AutoModelForImageTextToText``: a model that sees, with Hugging Face's interface."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.hf import generation
from oxibonsai.hf.arrays import as_columns as as_ids_and_mask
from oxibonsai.hf.arrays import like
from oxibonsai.hf.loaded_model import check_transformers
from oxibonsai.hf.model import CausalLM
from oxibonsai.hf.outputs import ImageTextOutput
from oxibonsai.hf.pixels import as_grids
from oxibonsai.hf.processor import Processor
from oxibonsai.hf.tokenizer import AutoTokenizer
from oxibonsai.models import ModelConfig
from oxibonsai.output.messages import NO_IMAGES
from oxibonsai.vision import ImageEmbedding, ImageReader, PlacedImage

Placed = tuple[PlacedImage, ...]
# Columns of a processor that say again what the placeholders among the ids say.
_NEEDLESS = ("token_type_ids", "mm_token_type_ids")


class ImageTextToText(CausalLM):
    """A model with Hugging Face's names that takes images, too.

    ``AutoModelForImageTextToText`` makes it.

    Calls with ``pixel_values`` run in the engine; all else is as of :class:`CausalLM`.
    """

    auto_class = "AutoModelForImageTextToText"

    @classmethod
    def _runs(cls, dimensions: ModelConfig) -> bool:
        return CausalLM._runs(dimensions)  # whether it has a tower, its reader says

    @cached_property
    def transformers_model(self) -> Any:
        """Do what the property of :class:`CausalLM` does, for a model that sees."""
        check_transformers("engine.generate, engine.logits and plain generate() work without")
        from oxibonsai.hf.transformers_model import OxiBonsaiForImageTextToText

        return OxiBonsaiForImageTextToText(self)

    @property
    def image_reader(self) -> ImageReader:
        """Return the model's reader of images; RequestError where it has no tower."""
        if self.engine.image_reader is None:
            raise RequestError(NO_IMAGES)
        return self.engine.image_reader

    def __call__(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        pixel_values: Any = None,
        image_grid_thw: Any = None,
        image_sizes: Any = None,
        pixel_attention_mask: Any = None,
        **inputs: Any,
    ) -> Any:
        """Return logits after every token.

        Args:
            input_ids: [batch, n], a placeholder for each row of an image among them.
            attention_mask: Same shape; 0 marks padding.
            pixel_values: Of all images in order; None: as :class:`CausalLM`.
            image_grid_thw: Of Qwen's, patches of each image.
            image_sizes: Of LLaVA 1.6's and Pixtral's, sizes of the images.
            pixel_attention_mask: Of those of Idefics 3, which tiles there are.
            **inputs: As of :class:`CausalLM`.

        Raises:
            RequestError: Images and placeholders don't fit each other.
        """
        for name in _NEEDLESS:
            inputs.pop(name, None)
        if pixel_values is None:
            return super().__call__(input_ids, attention_mask=attention_mask, **inputs)
        if inputs:
            raise UnsupportedError(f"{next(iter(inputs))} does not go with pixel_values")
        ids, mask = as_ids_and_mask(input_ids, attention_mask, 0)
        rows = [row[shown].tolist() for row, shown in zip(ids, mask, strict=True)]
        columns = _columns(pixel_values, image_grid_thw, image_sizes, pixel_attention_mask)
        images = self._place(rows, columns)
        logits = np.zeros((*ids.shape, self.engine.model.config.vocab_size), np.float32)
        for i, own in enumerate(self.engine.logits_batch(rows, images=images)):
            logits[i, mask[i]] = own
        return ImageTextOutput(like(logits, input_ids))

    forward = __call__

    def generate(
        self,
        inputs: Any = None,
        generation_config: Any = None,
        *,
        input_ids: Any = None,
        attention_mask: Any = None,
        pixel_values: Any = None,
        image_grid_thw: Any = None,
        image_sizes: Any = None,
        pixel_attention_mask: Any = None,
        **options: Any,
    ) -> Any:
        """Do what :meth:`CausalLM.generate` does, also for prompts with images.

        Args:
            inputs, generation_config, input_ids, attention_mask: As there.
            pixel_values, image_grid_thw, image_sizes, pixel_attention_mask: As in a call.
            **options: As there; with images those that the engine does itself.

        Raises:
            UnsupportedError: With images, an option needs transformers' own loop.
        """
        for name in _NEEDLESS:
            options.pop(name, None)
        ids = inputs if input_ids is None else input_ids
        columns = _columns(pixel_values, image_grid_thw, image_sizes, pixel_attention_mask)
        if pixel_values is None:
            return super().generate(
                ids, generation_config, attention_mask=attention_mask, **options
            )
        seed, streamer = options.pop("seed", None), options.pop("streamer", None)
        asked = {**self._defaults(generation_config), **options}
        if not generation.is_native(asked):
            raise UnsupportedError(
                "with pictures, generate() takes lengths, sampling, penalties, stop strings and beams"
            )
        values = generation.completed(asked)
        ends = generation.end_ids(values["eos_token_id"], self.engine.eos_ids)
        prompts = generation.read_prompts(ids, attention_mask, values, ends)
        prompts = replace(prompts, images=self._place(prompts.shown, columns))
        return generation.generate(
            self.engine,
            prompts,
            values,
            ends,
            seed=seed,
            streamer=streamer,
            assistant=None,
        )

    def _place(self, rows: Sequence[Sequence[int]], columns: dict[str, Any]) -> list[Placed]:
        """Return the images of each text, at the placeholders that stand for their rows."""
        reader = self.image_reader
        embeddings = [
            part
            for grid in as_grids(reader.processor, columns)
            for part in reader.tower.encode(grid)
            if isinstance(part, ImageEmbedding)
        ]
        placed, left = [], list(embeddings)
        for row in rows:
            own, at = [], 0
            places = [i for i, token in enumerate(row) if token == reader.tower.placeholder]
            while at < len(places) and left:
                own.append(PlacedImage(places[at], left.pop(0)))
                at += len(own[-1].embedding)
                if places[at - len(own[-1].embedding) : at] != list(
                    range(own[-1].first, own[-1].end)
                ):
                    raise self._misfit(rows, embeddings)
            if at != len(places):
                raise self._misfit(rows, embeddings)
            placed.append(tuple(own))
        if left:
            raise self._misfit(rows, embeddings)
        return placed

    def _misfit(
        self, rows: Sequence[Sequence[int]], embeddings: Sequence[ImageEmbedding]
    ) -> RequestError:
        token = self.image_reader.tower.placeholder
        count = sum(row.count(token) for row in rows)
        return RequestError(
            f"the ids have {count} placeholders (token {token}), the pictures "
            f"{sum(map(len, embeddings))} rows in {len(embeddings)} runs: give both as the processor "
            "gave them"
        )


def _columns(*values: Any) -> dict[str, Any]:
    """Return a processor's results beside ids, by name."""
    names = ("pixel_values", "image_grid_thw", "image_sizes", "pixel_attention_mask")
    return dict(zip(names, values, strict=True))


class AutoModelForImageTextToText:
    """Loads models that see."""

    @staticmethod
    def from_pretrained(
        source: str | os.PathLike[str] | None = None, **options: Any
    ) -> ImageTextToText:
        """Return a model with its vision tower.

        Args:
            source: As for ``AutoModelForCausalLM``.
            **options: As for ``AutoModelForCausalLM``; ``mmproj`` names the tower where it is not the
                one beside the model.

        Raises:
            RequestError: The model has no tower.
        """
        model = ImageTextToText.load(source, options)
        _ = model.image_reader  # refuses a model without
        return model


class AutoProcessor:
    """Loads processors."""

    @staticmethod
    def from_pretrained(
        source: str | os.PathLike[str] | ImageTextToText | None = None, **options: Any
    ) -> Processor:
        """Return the processor of a model.

        Args:
            source: As for ``AutoModelForImageTextToText``, which it loads; or a loaded model.
            **options: As for it.
        """
        model = source
        if not isinstance(model, ImageTextToText):
            model = AutoModelForImageTextToText.from_pretrained(model, **options)
        elif options:
            raise TypeError("a model is loaded already; give it no further arguments")
        tokenizer = AutoTokenizer.from_pretrained(model.name_or_path or None)
        return Processor(tokenizer, model.image_reader)
