"""Models that hold a language model within: what converts it, where the outer type does not say."""

from __future__ import annotations

from typing import Any

from oxibonsai.architectures.wrappers import TEXT_TYPES, wrapper_of
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.convert.families import CONVERTERS, FamilyConverter, config_json, within
from oxibonsai.errors import UnsupportedError


def text_config(folder: ModelFolder) -> dict[str, Any]:
    """Return the language model's configuration; the outer one says whether the head is tied."""
    config = config_json(folder)
    return wrapper_of(config).text_config(config)


def inner_converter(folder: ModelFolder) -> FamilyConverter | None:
    """Return the converter of a model that joins a tower to any language model; None for other models.

    Raises:
        UnsupportedError: Its language model is none that is known.
    """
    if str(folder.config.get("model_type")) not in TEXT_TYPES:
        return None
    wrapper = wrapper_of(config_json(folder))
    kind = wrapper.defaults["model_type"]
    if kind not in CONVERTERS:
        raise UnsupportedError(
            f"{folder.path / 'config.json'}: the part for texts is of type {kind!r}; convert knows "
            + ", ".join(sorted(CONVERTERS))
        )
    return within(wrapper, CONVERTERS[kind])
