"""Mistral 3 that sees images, too: its text part, a Mistral or a Ministral 3 under other names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.llama import LLAMA
from oxibonsai.convert.mistral3 import MISTRAL3
from oxibonsai.convert.recipe import Recipe

# Versions of transformers call the same parameters differently.
_TEXT = {
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "model.language_model.": "model.",
}
_IMAGES = ("vision_tower.", "multi_modal_projector.")


def _namer(text: Recipe) -> Callable[[str], str | None]:
    def name(parameter: str) -> str | None:
        if parameter.removeprefix("model.").startswith(_IMAGES):
            return None
        for prefix, plain in _TEXT.items():
            if parameter.startswith(prefix):
                return text.tensor_name(plain + parameter.removeprefix(prefix))
        return text.tensor_name(parameter)

    return name


def _text_part(text: Recipe) -> Recipe:
    note = "the model's part for images is left out: what is made of it takes texts alone"
    return replace(text, tensor_name=_namer(text), notes=(note,))


def _variant(folder: ModelFolder) -> Recipe:
    """By the text part, whose configuration has taken the place of the whole one."""
    return _MINISTRAL if folder.config.get("model_type") == "ministral3" else _MISTRAL


_MISTRAL, _MINISTRAL = _text_part(LLAMA), _text_part(MISTRAL3)
MISTRAL3_MULTIMODAL = replace(
    _MISTRAL, config=lambda folder: folder.text_config(), variant=_variant
)
