"""Fields of decoders whose layers differ in their heads and in the columns of their MLPs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

from oxibonsai.architectures.schema.fields import GgufKeys, Known
from oxibonsai.architectures.schema.sources import ConfigJson, Keys

# Heads, key-value heads and the MLP's columns of each layer, any of which may be 0.
Sizes = tuple[tuple[int, int, int], ...]
KEYS = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")


class LayerSizes(ABC):
    """The sizes of all layers; :class:`Largest` writes the keys, in the places that they have."""

    @abstractmethod
    def read_config_json(self, config: ConfigJson, known: Known) -> Sizes:
        """Return the sizes that ``config.json`` says."""

    @abstractmethod
    def write_config_json(self, value: Sizes, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""

    def read_gguf(self, keys: Keys, known: Known) -> Sizes:
        """Return the sizes that a file says."""
        heads, groups, widths = (keys.counts(key, keys.layers()) for key in KEYS)
        if min(max(heads), max(groups), max(widths)) == 0:
            raise keys.fail("no layer has heads, or none has a feed-forward part")
        for count, shared in zip(heads, groups, strict=True):
            if shared > count or (shared > 0 and count % shared != 0):
                raise keys.fail(
                    f"{count} attention heads are no multiple of {shared} key-value heads"
                )
        return tuple(zip(heads, groups, widths, strict=True))

    def write_gguf(self, value: Sizes, c: Any) -> GgufKeys:
        """Return no key."""
        return {}


@dataclass(frozen=True)
class Largest:
    """The largest of one of the sizes, in the place of which a file lists all layers'.

    Attributes:
        place: Of the size among a layer's.
        name: In ``config.json``.
    """

    place: int
    name: str

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the largest size."""
        return self._largest(known)

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {self.name: value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the largest size."""
        return self._largest(known)

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key, which lists all layers'."""
        return {KEYS[self.place]: ([sizes[self.place] for sizes in c.layer_sizes], "arr[u32]")}

    def _largest(self, known: Known) -> int:
        sizes: Sizes = known["layer_sizes"]
        return max(of_layer[self.place] for of_layer in sizes)


@dataclass(frozen=True, kw_only=True)
class Varied:
    """A config with sizes for each layer, which are read before the others.

    The fields for all layers hold the largest.
    """

    layer_sizes: Sizes

    def of_layer(self, layer: int) -> Self:
        """Return the config with the sizes of one layer."""
        heads, groups, width = self.layer_sizes[layer]
        own: dict[str, Any] = {
            "num_attention_heads": heads,
            "num_key_value_heads": groups,
            "intermediate_size": width,
        }
        return replace(self, **own)
