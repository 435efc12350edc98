"""Models some or all of whose layers have something else than attention."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures.decoder import tied
from oxibonsai.architectures.schema.fields import (
    COUNT,
    Default,
    Fixed,
    GgufKeys,
    Known,
    Stated,
    constant,
    count,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.graph import RopeConfig

# What a layer may be.
FULL_ATTENTION, LINEAR_ATTENTION = "full_attention", "linear_attention"
MAMBA, CONVOLUTION, FEED_FORWARD, RWKV = "mamba", "conv", "mlp", "rwkv"

# Where nothing has positions, no text is too long; GGUF wants a number.
ENDLESS = 2**20
# Of a time step, from 0 on; JSON has no infinity, so versions of transformers differ.
NO_LIMIT = ([0.0, float("inf")], [0.0, {"__float__": "Infinity"}])
TIME_STEP_LIMIT = Fixed(NO_LIMIT[0], (NO_LIMIT[1], None), name="time_step_limit", written=False)


def endless() -> Any:
    """Return the field of the positions of a model that has none."""
    return count((), "context_length", default=ENDLESS)


class ByLayer:
    """A model whose layers are of several kinds.

    Attributes:
        layer_types: Of each layer.
    """

    layer_types: tuple[str, ...]

    def attends(self, layer: int) -> bool:
        """Return whether a layer has keys and values in the cache."""
        return self.layer_types[layer] == FULL_ATTENTION

    def cached_layer(self, layer: int) -> int:
        """Return which layer of the cache a layer that attends has."""
        return sum(self.attends(i) for i in range(layer))


@dataclass(frozen=True)
class LayerTypes:
    """The kinds of layers: ``config.json`` lists them, a file lists the key-value heads of each.

    Attributes:
        kinds: Ours by those of ``config.json``, the first of each is written.
        other: That of layers that do not attend.
        names: In ``config.json``, the first of which is written.
    """

    kinds: Mapping[str, str]
    other: str
    names: tuple[str, ...] = ("layer_types",)

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[str, ...]:
        """Return the kinds that ``config.json`` says."""
        return self.read_list(config, known, config.get(*self.names))

    def read_list(self, config: ConfigJson, known: Known, stated: Any) -> tuple[str, ...]:
        """Return the kinds that a list says; FormatError where it is none for the model's layers."""
        layers: int = known["num_hidden_layers"]
        if not _is_list_of(stated, layers, self.kinds):
            raise config.fail(
                f"{self.names[0]} does not say of {layers} layers which of "
                f"{', '.join(self.kinds)} they are"
            )
        return tuple(self.kinds[kind] for kind in stated)

    def write_config_json(self, value: tuple[str, ...], c: Any) -> dict[str, Any]:
        """Return the list of kinds."""
        theirs = {ours: name for name, ours in reversed(list(self.kinds.items()))}
        return {self.names[0]: [theirs[kind] for kind in value]}

    def read_gguf(self, keys: Keys, known: Known) -> tuple[str, ...]:
        """Return the kinds that the heads of layers tell."""
        heads = keys.counts("attention.head_count_kv", known["num_hidden_layers"])
        return tuple(FULL_ATTENTION if count > 0 else self.other for count in heads)

    def write_gguf(self, value: tuple[str, ...], c: Any) -> GgufKeys:
        """Return no key: :class:`OfAttention` lists the heads."""
        return {}


def _is_list_of(stated: Any, length: int, known: Collection[str]) -> bool:
    if not isinstance(stated, list) or len(stated) != length:
        return False
    return all(isinstance(kind, str) and kind in known for kind in stated)


@dataclass(frozen=True)
class OfAttention(Stated):
    """A count that all layers share which attend, and that a file lists by layer.

    Attributes:
        listed: Whether a file gets a list, with zeros for the other layers.
    """

    listed: bool = True

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the count; FormatError where layers have several."""
        found = set(keys.counts(self.key, known["num_hidden_layers"])) - {0}
        if len(found) != 1:
            raise keys.fail(
                f"{self.key} has the values {sorted(found)}, but all layers that attend need the same "
                "one"
            )
        return found.pop()

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key with the counts of all layers."""
        if not self.listed:
            return {self.key: (value, "u32")}
        kinds = c.layer_types
        return {self.key: ([value if k == FULL_ATTENTION else 0 for k in kinds], "arr[i32]")}


def of_attention(name: str, key: str, default: Default = None, **more: Any) -> OfAttention:
    """Return a count of layers that attend, by its name in ``config.json``."""
    told = {} if default is None else {"default": default}
    return OfAttention(COUNT, (name,), key, **told, **more)


@dataclass(frozen=True)
class InnerSize:
    """The columns of a scan: stated, or a multiple of the hidden size.

    Attributes:
        stated: Whether ``config.json`` gets the columns, too.
        by_head: Whether it gets those of a head, too.
    """

    stated: bool = False
    by_head: bool = False

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        if (stated := config.get("mamba_d_ssm")) is not None:
            return config.count(stated, "mamba_d_ssm")
        return config.count(config.get("mamba_expand"), "mamba_expand") * int(known["hidden_size"])

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        found = {"mamba_expand": value // c.hidden_size}
        if self.stated:
            found["mamba_d_ssm"] = value
        if self.by_head:
            found["mamba_d_head"] = value // c.mamba_n_heads
        return found

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        return keys.integer("ssm.inner_size")

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"ssm.inner_size": (value, "u32")}


@dataclass(frozen=True)
class ConvolutionBias:
    """Whether the convolutions before scans have biases, which a file shows by its tensors.

    Attributes:
        name: In ``config.json``.
    """

    name: str

    def read_config_json(self, config: ConfigJson, known: Known) -> bool:
        """Return the value that ``config.json`` says."""
        stated = config.get(self.name)
        return True if stated is None else config.flag(stated, self.name)

    def write_config_json(self, value: bool, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {self.name: value}

    def read_gguf(self, keys: Keys, known: Known) -> bool:
        """Return whether a layer has such a bias."""
        return any(name.endswith(".ssm_conv1d.bias") for name in keys.tensor_names)

    def write_gguf(self, value: bool, c: Any) -> GgufKeys:
        """Return no key."""
        return {}


@dataclass(frozen=True)
class NoPositions:
    """The rotary embedding of a model that turns nothing, whatever its keys say."""

    def read_config_json(self, config: ConfigJson, known: Known) -> RopeConfig:
        """Return an embedding of no dims."""
        return RopeConfig(rotary_dim=0, theta=10000.0)

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return no field."""
        return {}

    def read_gguf(self, keys: Keys, known: Known) -> RopeConfig:
        """Return an embedding of no dims."""
        return keys.rope(known["head_dim"]).without()

    def write_gguf(self, value: RopeConfig, c: Any) -> GgufKeys:
        """Return no key."""
        return {}


def heads_problem(inner: int, heads: int, groups: int) -> str:
    """Return what is wrong with the sizes of Mamba 2; empty: nothing is."""
    if inner % heads == 0 and heads % groups == 0:
        return ""
    return f"{inner} inner values, {heads} heads and {groups} groups do not divide"


@dataclass(frozen=True, kw_only=True)
class WithoutAttention:
    """Constants of a model no layer of which attends; its fields come before these."""

    tie_word_embeddings: bool = tied()
    num_key_value_heads: int = constant(0)
    head_dim: int = constant(0)
    attention_scale: float = constant(1.0)
    rope: RopeConfig = constant(RopeConfig(rotary_dim=0, theta=10000.0))
    final_logit_softcapping: float = constant(0.0)
    logit_scale: float = constant(1.0)
