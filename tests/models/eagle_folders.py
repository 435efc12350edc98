"""Folders of small random drafters of EAGLE-3, as those who train such drafters lay them out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import conversions
import drafted_texts
import gguf
import numpy as np
from eagle_drafters import Drafter
from rotated_models import VOCABULARY

RECORDED = Path(__file__).parents[1] / "truth/models/llama_cpp_drafters.json"
LAYERS_FIELD = "eagle_aux_hidden_state_layer_ids"
_TARGET = drafted_texts.SHAPE
TARGET_CONFIG = {
    "vocab_size": VOCABULARY, "hidden_size": _TARGET.hidden, "num_hidden_layers": _TARGET.layers,
}  # fmt: skip
SOME = np.sort(np.random.default_rng(2).permutation(VOCABULARY)[:150]).astype(np.int64)
_LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


def summary(path: Path) -> dict[str, Any]:
    """The summary of a converted file, with the factors of frequencies as numbers: llama.cpp has
    computed them in float32."""
    found = conversions.summary(path)
    if found["tensors"].pop("rope_freqs.weight", None) is not None:
        tensors = {t.name: t.data for t in gguf.GGUFReader(path).tensors}
        found["factors"] = tensors["rope_freqs.weight"].tolist()
    return found


@dataclass(frozen=True)
class Case:
    """A folder.

    Attributes:
        drafter: How the drafter differs from a plain one.
        config: Fields of ``config.json`` that differ from EAGLE's; None: it lacks the field.
        layer: What the names of the layer's parameters begin with.
        nested: Whether the layer's fields lie in an object of their own.
    """

    drafter: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    layer: str = "midlayer"
    nested: bool = False

    def make(self) -> Drafter:
        """The drafter, with its tensors."""
        hidden = _TARGET.hidden
        sizes = {"hidden": hidden, "target_hidden": hidden, "vocabulary": VOCABULARY}
        return Drafter(**(sizes | self.drafter)).draw()

    def write(self, folder: Path, **config: Any) -> Path:
        """Write the folder, with further changes of ``config.json``."""
        made = self.make()
        changes = self.config | config
        if self.nested:
            own = ("architectures", "draft_vocab_size", "target_hidden_size", LAYERS_FIELD,
                   "norm_before_fc", "norm_before_residual")  # fmt: skip
            inner = {k: v for k, v in made.config_json().items() if k not in own}
            changes |= {**dict.fromkeys(inner), "transformer_layer_config": inner}
        return made.write_folder(folder, changes, self.layer)


CASES = {
    "of EAGLE": Case(),
    "of fewer tokens, the usual layers": Case(
        {"ids": SOME, "target_layers": (2, 1, 0)},
        {LAYERS_FIELD: None, "target_hidden_size": None, "head_dim": None},
    ),
    "of speculators": Case(
        {"ids": SOME, "norm_before_fc": True, "norm_before_residual": True},
        {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3"},
        layer="layers.0",
        nested=True,
    ),
    "with a table, stretched": Case(
        {"own_table": True}, {"rope_theta": 5e5, "rope_scaling": _LLAMA3}
    ),
    "narrower": Case({"hidden": 96, "own_table": True, "ids": SOME}),
}
