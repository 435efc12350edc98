"""Qwen3-VL: Qwen3, dense or with experts, whose pairs turn by an image's axes.

More rows of images are added behind its first layers (DeepStack).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import qwen3, qwen3moe
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import GgufKeys, Inside, Known, field
from oxibonsai.architectures.schema.operations import Split, Transpose
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Either, Entry, Tensor
from oxibonsai.architectures.schema.wrapper import Wrapper
from oxibonsai.architectures.sectioned_rope import SectionedRope, Sections
from oxibonsai.graph import Builder, RopeConfig, Value

ROPE = SectionedRope(("default", "mrope"), sections=Sections())


@dataclass(frozen=True)
class DeepStack:
    """How many layers, from the first on, more of an image's rows are added behind."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return as many as the tower has layers that give such rows."""
        given = config.fields.get("deepstack_visual_indexes", [])
        if not isinstance(given, list):
            raise config.fail(f"deepstack_visual_indexes is {given!r}, no list of layers")
        return len(given)

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the tower's layers by number: which they are, its own file says."""
        return {"deepstack_visual_indexes": list(range(value))}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        count, layers = keys.count("n_deepstack_layers"), known["num_hidden_layers"]
        if count > layers:
            raise keys.fail(f"n_deepstack_layers is {count}, of {layers} layers")
        return count

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"n_deepstack_layers": (value, "u32")}


@dataclass(frozen=True, kw_only=True)
class Config(qwen3.Config):
    """The fields of a model."""

    rope: RopeConfig = field(ROPE)
    sections: tuple[int, ...] = field(Sections())
    deepstack_layers: int = field(Inside("vision_config", DeepStack()))


@dataclass(frozen=True, kw_only=True)
class MoeConfig(qwen3moe.Config):
    """The fields of a model with experts."""

    rope: RopeConfig = field(ROPE)
    sections: tuple[int, ...] = field(Sections())
    deepstack_layers: int = field(Inside("vision_config", DeepStack()))


def moe_tensors(c: MoeConfig) -> Iterator[Entry]:
    """Yield all tensors of a model with experts, which folders have stacked in one of two orders."""
    yield from qwen3moe.without_experts(c)
    for i in range(c.num_hidden_layers):
        stem, b, ff = f"model.layers.{i}.mlp.experts", f"blk.{i}.ffn", c.moe_intermediate_size
        halves = (f"{b}_gate_exps.weight", f"{b}_up_exps.weight")
        split = Split((ff, ff), axis=1)
        yield Either(
            tuple(
                (
                    Tensor((f"{stem}.gate_up_proj",), halves, (*order, split)),
                    Tensor((f"{stem}.down_proj",), (f"{b}_down_exps.weight",), order),
                )
                for order in ((), (Transpose(),))
            )
        )


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i, with the rows of images that are added behind it."""
    h = qwen3.layer(g, c, w, i, h)
    return g.images(h, 1 + i, added=True) if i < c.deepstack_layers else h


def moe_layer(g: Builder, c: MoeConfig, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i of a model with experts, likewise."""
    h = qwen3moe.layer(g, c, w, i, h)
    return g.images(h, 1 + i, added=True) if i < c.deepstack_layers else h


FAMILY = Family(
    "qwen3vl", ("qwen3_vl_text",), "", "Qwen3", Config, qwen3.tensors, layer,
    embed_tokens_and_images, wrapper=Wrapper(("qwen3_vl",)),
)  # fmt: skip
MOE = Family(
    "qwen3vlmoe", ("qwen3_vl_moe_text",), "", "Qwen3 with experts", MoeConfig, moe_tensors, moe_layer,
    embed_tokens_and_images, wrapper=Wrapper(("qwen3_vl_moe",)),
)  # fmt: skip
