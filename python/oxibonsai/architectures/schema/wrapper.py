"""Wrappers: models that hold a language model under other names, beside parts for images or sound.

config.json of the whole  --text_config-->  config.json of the language model
name of a parameter       --text_name---->  its name in the language model; None: another part's
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oxibonsai.architectures.schema.sources import ConfigJson

_TEXT = re.compile(r"(?:model\.)?(?:language_model|text_model)\.(?:model\.)?")
# What the names of other parts begin with, behind an optional "model.".
TOWERS = (
    "visual.", "vision_tower.", "vision_model.", "multi_modal_projector.", "connector.",
    "image_newline",
)  # fmt: skip


@dataclass(frozen=True)
class Wrapper:
    """How a language model lies within a larger model.

    Attributes:
        model_types: The larger models' names in ``config.json``.
        defaults: Fields of the language model that ``config.json`` leaves to transformers' defaults.
        others: What the names of the other parts' parameters begin with, without ``model.``.
        notes: What the user of the language model alone should know.
    """

    model_types: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    others: tuple[str, ...] = TOWERS
    notes: tuple[str, ...] = ()

    def text_config(self, config: ConfigJson) -> dict[str, Any]:
        """Return the language model's fields over those of the whole, which has some for all parts.

        Older configurations have no object ``text_config``: its fields are among the others.

        Raises:
            FormatError: There are no fields of the language model.
        """
        inner = config.fields.get("text_config")
        if not isinstance(inner, dict):
            if "hidden_size" not in config.fields:
                raise config.fail("has no object text_config")
            inner = {}
        # The whole decides whether the token table is the output matrix, too.
        tied = {k: v for k, v in config.fields.items() if k == "tie_word_embeddings"}
        return {**config.fields, **self.defaults, **inner, **tied}

    def text_name(self, parameter: str) -> str | None:
        """Return a parameter's name in the language model; None for a parameter of another part."""
        if parameter.removeprefix("model.").startswith(self.others):
            return None
        found = _TEXT.match(parameter)
        if found is None:
            return parameter
        rest = parameter[found.end() :]
        return rest if rest.startswith("lm_head.") else f"model.{rest}"
