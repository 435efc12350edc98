"""Models that see: their part for texts, which is a language model under other names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oxibonsai.convert.families import FamilyConverter
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Converter, Recipe
from oxibonsai.errors import UnsupportedError

_TEXT = re.compile(r"(?:model\.)?(?:language_model|text_model)\.(?:model\.)?")
_TOWER = re.compile(
    r"(?:model\.)?(?:visual|vision_tower|vision_model|multi_modal_projector|connector)\."
    r"|(?:model\.)?image_newline"
)
# The type of the part for texts where a folder does not say, by the model's.
INNER = {
    "idefics3": "llama",
    "internvl": "qwen2",
    "llava": "llama",
    "llava_next": "llama",
    "mistral3": "mistral",
    "smolvlm": "llama",
}
# Dimensions that folders leave to transformers' configurations.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6, "rope_theta": 1e4,
    },
    "mistral": {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "rope_theta": 1e4,
        "sliding_window": None,
    },
}  # fmt: skip


def text_name(parameter: str) -> str:
    """Return a parameter of the part for texts as a model of texts alone calls it."""
    found = _TEXT.match(parameter)
    if found is None:
        return parameter
    rest = parameter[found.end() :]
    return rest if rest.startswith("lm_head.") else f"model.{rest}"


def _text_name_or_none(parameter: str) -> str | None:
    return None if _TOWER.match(parameter) else text_name(parameter)


def of_tower(folder: ModelFolder, parameter: str) -> bool:
    """Whether a parameter is one of the vision tower or of what joins it to the texts."""
    return _TOWER.match(parameter) is not None


def text_config(folder: ModelFolder) -> dict[str, Any]:
    """Return the text part's configuration; the outer one says whether the head is tied."""
    text = folder.config.get("text_config")
    inner = text if isinstance(text, dict) else {}
    kind = str(inner.get("model_type", INNER.get(str(folder.config.get("model_type")), "")))
    outer = folder.config.get("tie_word_embeddings", inner.get("tie_word_embeddings", False))
    return {
        **folder.config,
        **_DEFAULTS.get(kind, {}),
        **inner,
        "model_type": kind,
        "tie_word_embeddings": outer,
    }


def with_vision(recipe: Converter) -> Converter:
    """Return what converts a language model, for one that has a vision tower, which is left out."""
    if isinstance(recipe, FamilyConverter):
        return replace(recipe, config=text_config, renamed=_text_name_or_none)
    assert isinstance(recipe, Recipe)  # there are two kinds of converters
    return replace(
        recipe,
        config=text_config,
        tensor_name=lambda parameter: recipe.tensor_name(text_name(parameter)),
        pieces=lambda folder, parameter: recipe.pieces(folder, text_name(parameter)),
        left_out=lambda folder, parameter: (
            of_tower(folder, parameter) or recipe.left_out(folder, text_name(parameter))
        ),
    )


def inner_recipe(folder: ModelFolder, recipes: Mapping[str, Converter]) -> Converter | None:
    """Return the recipe of a model that joins a tower to any language model; None for other models.

    Raises:
        UnsupportedError: Its language model is none that is known.
    """
    if str(folder.config.get("model_type")) not in INNER:
        return None
    kind = text_config(folder)["model_type"]
    if kind not in recipes:
        raise UnsupportedError(
            f"{folder.path / 'config.json'}: the part for texts is of type {kind!r}; convert knows "
            + ", ".join(sorted(recipes))
        )
    return with_vision(recipes[kind])
