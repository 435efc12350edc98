"""Fields of models whose last layers predict further tokens (MTP).

A file counts these layers among the others (``block_count``) and says how many they are; of a folder, the
names of the parameters tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures.decoder import MOST_LAYERS
from oxibonsai.architectures.schema.fields import GgufKeys, Known, field
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Tensor, vector, weight

NUM_DRAFTING = "num_nextn_predict_layers"
_LAYER = re.compile(r"model\.layers\.([0-9]{1,4})\.")


# What such a layer has beside the parts of any other.
MATRICES = {"eh_proj": "eh_proj"}
OWN_MATRICES = {"embed_tokens": "embed_tokens", "shared_head.head": "shared_head_head"}
NORMS = {"enorm": "enorm", "hnorm": "hnorm", "shared_head.norm": "shared_head_norm"}


@dataclass(frozen=True)
class LayersOfPass:
    """The layers of the pass."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        name = "num_hidden_layers"
        return config.count(config.get(name), name, MOST_LAYERS)

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"num_hidden_layers": value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the file's layers without those that predict further tokens."""
        layers = keys.layers()
        return layers - keys.drafting_layers(layers)

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key of all layers."""
        return {"block_count": (value + c.num_nextn_predict_layers, "u32")}


@dataclass(frozen=True)
class DraftingLayers:
    """The layers that predict further tokens.

    Attributes:
        count: Returns their number, from the names of a folder's parameters and the layers of the pass.
        name: In ``config.json``, which may state zero; empty: it has no field for them.
    """

    count: Callable[[Collection[str], int], int]
    name: str = ""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return how many of them the folder has."""
        if self.name and not config.get(self.name):
            return 0
        return self.count(config.parameters(), known["num_hidden_layers"])

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {self.name: value} if self.name else {}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        return keys.drafting_layers(keys.layers())

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key, if there are any."""
        return {"nextn_predict_layers": (value, "u32")} if value else {}


def layers_of_pass() -> Any:
    """Return the field of the number of layers, without those that predict further tokens."""
    return field(LayersOfPass())


def layers_behind(names: Collection[str], layers: int) -> int:
    """Return how many layers the parameters of ``names`` have behind the ``layers`` of the pass."""
    numbers = (int(found[1]) for name in names if (found := _LAYER.match(name)) is not None)
    return max([0, *(number + 1 - layers for number in numbers)])


def drafting_layers() -> Any:
    """Return the field of layers that follow those of the pass under their numbers."""
    return field(DraftingLayers(layers_behind, NUM_DRAFTING))


def tensors(i: int) -> Iterator[Tensor]:
    """Yield what a layer that predicts further tokens has beside the parts of any other layer.

    The token table and the output matrix may be the model's.
    """
    stem, b = f"model.layers.{i}", f"blk.{i}.nextn"
    for names, optional in ((MATRICES, False), (OWN_MATRICES, True)):
        for parameter, tensor in names.items():
            yield weight(f"{stem}.{parameter}", f"{b}.{tensor}", optional=optional)
    for parameter, tensor in NORMS.items():
        own = tensor == "shared_head_norm"
        names_of_norm = f"{stem}.{parameter}.weight", f"{b}.{tensor}.weight"
        yield vector(*names_of_norm, optional=own)
