"""Sliding windows: which layers of a model see one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from oxibonsai.architectures.schema.fields import GgufKeys, Known
from oxibonsai.architectures.schema.sources import ConfigJson, Keys

FULL, LOCAL = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class LocalLayers:
    """Whether each layer sees a window, of a model that has one; of another model nothing.

    Attributes:
        period: Every so many-th layer sees all where nothing says.
        keyed: Whether a file lists the layers; else its readers take the period.
    """

    period: int
    keyed: bool = True

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[bool, ...]:
        """Return the value that ``config.json`` says."""
        if known["sliding_window"] == 0:
            return ()
        layers = known["num_hidden_layers"]
        usual = tuple((i + 1) % self.period != 0 for i in range(layers))
        kinds = config.fields.get("layer_types")
        if kinds is None:
            return usual
        named = isinstance(kinds, list) and all(kind in (FULL, LOCAL) for kind in kinds)
        if not named or len(kinds) != layers:
            raise config.fail(
                f"layer_types does not say of {layers} layers which of {FULL}, {LOCAL} they are"
            )
        stated = tuple(kind == LOCAL for kind in kinds)
        if not self.keyed and stated != usual:
            raise config.unsupported(
                f"layer_types is not full_attention in every {self.period}th layer, as files have it"
            )
        return stated

    def write_config_json(self, value: tuple[bool, ...], c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        local = value or (False,) * c.num_hidden_layers
        return {"layer_types": [LOCAL if i else FULL for i in local]}

    def read_gguf(self, keys: Keys, known: Known) -> tuple[bool, ...]:
        """Return the value that a file says."""
        return keys.local_layers(self.period) if known["sliding_window"] else ()

    def write_gguf(self, value: tuple[bool, ...], c: Any) -> GgufKeys:
        """Return the key, if there is one."""
        if not value or not self.keyed:
            return {}
        return {"attention.sliding_window_pattern": (list(value), "arr[bool]")}


class Windowed(Protocol):
    """A model some of whose layers see a window."""

    @property
    def sliding_window(self) -> int:
        """Keys that a query of these layers sees, itself counted; 0: all."""
        ...

    @property
    def local_layers(self) -> tuple[bool, ...]:
        """Whether each layer is one of them; empty: none is."""
        ...


def window_of(c: Windowed, layer: int) -> int:
    """Return the keys that a query of a layer sees, itself counted; 0: all."""
    return c.sliding_window if c.local_layers and c.local_layers[layer] else 0
