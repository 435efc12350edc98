"""A family of models: all that is known of it, read in every direction.

config.json  --read_config_json-->  config  --write_gguf-->         keys of a GGUF file
keys         --read_gguf-------->   config  --write_config_json-->  config.json
config       --table----------->    names and operations of all tensors
config       --hidden_states--->    the pass, described with a builder
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.sizes import Layered, Weights
from oxibonsai.architectures.schema.fields import Field, GgufKeys
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, TensorTable
from oxibonsai.graph import Builder, Value

C = TypeVar("C", bound=Layered)


def embed_tokens(g: Builder, c: Layered, w: Weights) -> Value:
    """Return the rows of the token table."""
    return g.embed(w.embedding(c))


def embed_tokens_and_images(g: Builder, c: Layered, w: Weights) -> Value:
    """Return the rows of the token table, with those of images in their places."""
    return g.images(g.embed(w.embedding(c)))


@dataclass(frozen=True)
class Family(Generic[C]):
    """One family.

    Attributes:
        name: GGUF's name of the architecture.
        model_types: Names in ``config.json``, the first of which is written.
        kind: What transformers' classes begin with; empty: it has none.
        title: What errors call it.
        config: The dataclass whose fields are the table of fields.
        tensors: Yields all tensors of a model; the table of tensors.
        layer: The pass of layer i over hidden states.
        embed: What the first layer reads.
        final_norm: What the output matrix reads of the last layer's hidden states.
        ignored: Patterns of parameters that a file has no place for and no need of.
        spelled: The family's name of a parameter, which folders spell in several ways.
        scores_texts: Whether a file may have a classifier's head.
    """

    name: str
    model_types: tuple[str, ...]
    kind: str
    title: str
    config: type[C]
    tensors: Callable[[C], Iterator[Entry]]
    layer: Callable[[Builder, C, Weights, int, Value], Value]
    embed: Callable[[Builder, C, Weights], Value] = embed_tokens
    final_norm: Callable[[Builder, Any, Weights, Value], Value] = blocks.final_norm
    ignored: tuple[str, ...] = ("*.self_attn.rotary_emb.inv_freq",)
    spelled: Callable[[str], str] = lambda parameter: parameter
    scores_texts: bool = False

    def fields(self) -> dict[str, Field]:
        """Return the table of fields, by our names."""
        listed = dataclasses.fields(self.config)  # type: ignore[arg-type]
        return {f.name: f.metadata["field"] for f in listed}

    def read_config_json(self, config: ConfigJson) -> C:
        """Return the config that ``config.json`` says, with its numbers as precise as they stand.

        A file has them as float32, so a model is opened with what :meth:`read_gguf` makes of them.

        Raises:
            FormatError: A field is missing or makes no sense.
            UnsupportedError: A field asks for what the family lacks.
        """
        known: dict[str, Any] = {}
        for name, described in self.fields().items():
            known[name] = described.read_config_json(config, known)
        return self.config(**known)

    def write_config_json(self, c: C) -> dict[str, Any]:
        """Return ``config.json``, but for what the tokenizer says."""
        found: dict[str, Any] = {
            "architectures": [f"{self.kind}ForCausalLM"],
            "model_type": self.model_types[0],
        }
        for name, described in self.fields().items():
            found |= described.write_config_json(getattr(c, name), c)
        return found

    def read_gguf(self, keys: Keys) -> C:
        """Return the config that a file says; errors as of :meth:`read_config_json`."""
        known: dict[str, Any] = {}
        for name, described in self.fields().items():
            known[name] = described.read_gguf(keys, known)
        return self.config(**known)

    def write_gguf(self, c: C) -> GgufKeys:
        """Return the keys of a file with their whole names, in the order of the table."""
        found: GgufKeys = {}
        for name, described in self.fields().items():
            found |= described.write_gguf(getattr(c, name), c)
        return {f"{self.name}.{key}": value for key, value in found.items()}

    def table(self, c: C, where: str) -> TensorTable:
        """Return all tensors of a model that lies ``where``."""
        return TensorTable(where, self.title, self.tensors(c), self.ignored)

    def hidden_states(self, g: Builder, c: C, w: Weights) -> Value:
        """Return the hidden states after the last layer: [tokens, hidden]."""
        h = self.embed(g, c, w)
        for i in range(c.num_hidden_layers):
            h = self.layer(g, c, w, i, h)
        return h

    def whole_pass(self, g: Builder, c: Any, w: Weights) -> Value:
        """Return the logits: [outputs, vocabulary]."""
        return blocks.logits(g, c, w, self.final_norm(g, c, w, self.hidden_states(g, c, w)))
