"""A family of models: all that is known of it, read in every direction.

config.json  --read_config_json-->  config  --write_gguf-->         keys of a GGUF file
keys         --read_gguf-------->   config  --write_config_json-->  config.json
config       --table----------->    names and operations of all tensors
config       --hidden_states--->    the pass, described with a builder
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.sizes import Drafting, Layered, Weights
from oxibonsai.architectures.schema.fields import Field, GgufKeys
from oxibonsai.architectures.schema.operations import Array
from oxibonsai.architectures.schema.sources import ConfigJson, Keys, key_name
from oxibonsai.architectures.schema.tensors import Entry, TensorTable
from oxibonsai.architectures.schema.wrapper import Wrapper
from oxibonsai.graph import Builder, Value

# Those of DeepSeek V3 and of Kimi K2 are 15,000 to 24,000; a table names each expert.
_MOST_EXPERTS = 1 << 18

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
        layer: The pass of layer i over hidden states, or over whatever layers hand on to each other.
        embed: What the first layer reads.
        final_norm: What the output matrix reads of the last layer's hidden states.
        ignored: Patterns of parameters that a file has no place for and no need of.
        spelled: The family's name of a parameter, which folders spell in several ways.
        scores_texts: Whether a file may have a classifier's head.
        drafting_layer: The pass of a layer past those of the model, which predicts a further token; None:
            no model of the family has such layers.
        wrapper: How larger models hold one of the family; None: none has it for its language model alone.
        owns_gguf: Whether a file is of this family and not of another of the same name.
        owns_config_json: Whether a folder is of this family and not of another of the same model type.
        numbers: The parameters that a file has among its keys; a field of the config reads them.
        saved_as: The family under whose names a model is saved, whose config this one's is a kind of;
            None: its own.
        encode: The pass of a prompt through an encoder, to which the layers attend; None: there is none.
        task: What transformers' class is called after its kind.
        notes: What the user of ``convert`` should know.
        with_special_tokens: ``config.json`` once it has the ids of special tokens.
        after_layers: The hidden states in what the last layer hands on.
    """

    name: str
    model_types: tuple[str, ...]
    kind: str
    title: str
    config: type[C]
    tensors: Callable[[C], Iterator[Entry]]
    layer: Callable[[Builder, C, Weights, int, Any], Any]
    embed: Callable[[Builder, C, Weights], Any] = embed_tokens
    final_norm: Callable[[Builder, Any, Weights, Value], Value] = blocks.final_norm
    ignored: tuple[str, ...] = ("*.self_attn.rotary_emb.inv_freq",)
    spelled: Callable[[str], str] = lambda parameter: parameter
    scores_texts: bool = False
    drafting_layer: Callable[[Builder, C, Weights, int, Value], Value] | None = None
    wrapper: Wrapper | None = None
    owns_gguf: Callable[[Keys], bool] = lambda keys: True
    owns_config_json: Callable[[ConfigJson], bool] = lambda config: True
    numbers: Callable[[C], Mapping[str, Array]] = lambda c: {}
    saved_as: Family[Any] | None = None
    encode: Callable[[Builder, C, Weights], Value] | None = None
    task: str = "ForCausalLM"
    notes: tuple[str, ...] = ()
    with_special_tokens: Callable[[dict[str, Any]], dict[str, Any]] = lambda config: config
    after_layers: Callable[[Builder, C, Weights, Any], Value] = lambda g, c, w, h: h

    def class_name(self, c: C) -> str:
        """Return the name of transformers' class."""
        return f"{self.kind}{self.task}"

    def parameter(self, name: str) -> str:
        """Return what transformers' classes call a parameter."""
        return name

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
        return self._with_room(self.config(**known), config)

    def write_config_json(self, c: C) -> dict[str, Any]:
        """Return ``config.json``, but for what the tokenizer says."""
        found: dict[str, Any] = {
            "architectures": [self.class_name(c)],
            "model_type": self.model_types[0],
        }
        for name, described in self.fields().items():
            for key, value in described.write_config_json(getattr(c, name), c).items():
                whole = isinstance(value, dict) and isinstance(found.get(key), dict)
                found[key] = {**found[key], **value} if whole else value  # an object's fields
        return found

    def read_gguf(self, keys: Keys) -> C:
        """Return the config that a file says; errors as of :meth:`read_config_json`."""
        known: dict[str, Any] = {}
        for name, described in self.fields().items():
            known[name] = described.read_gguf(keys, known)
        return self._with_room(self.config(**known), keys)

    def write_gguf(self, c: C) -> GgufKeys:
        """Return the keys of a file with their whole names, in the order of the table."""
        found: GgufKeys = {}
        for name, described in self.fields().items():
            found |= described.write_gguf(getattr(c, name), c)
        return {key_name(self.name, key): value for key, value in found.items()}

    def _with_room(self, c: C, source: ConfigJson | Keys) -> C:
        """Return the config unless it claims more experts than memory has room for names."""
        experts = getattr(c, "num_experts", 0)
        if experts and (layers := c.num_hidden_layers) * experts > _MOST_EXPERTS:
            raise source.fail(
                f"{experts} experts in each of {layers} layers are more than a model may have, "
                f"{_MOST_EXPERTS} in all"
            )
        return c

    def table(self, c: C, where: str) -> TensorTable:
        """Return all tensors of a model that lies ``where``."""
        return TensorTable(where, self.title, self.tensors(c), self.ignored)

    def hidden_states(self, g: Builder, c: C, w: Weights) -> Value:
        """Return the hidden states after the last layer: [tokens, hidden]."""
        h = self.embed(g, c, w)
        for i in range(c.num_hidden_layers):
            h = self.layer(g, c, w, i, h)
        if getattr(c, "num_nextn_predict_layers", 0) > 0:
            w.leave_out_drafting(cast(Drafting, c))
        return self.after_layers(g, c, w, h)

    def whole_pass(self, g: Builder, c: Any, w: Weights) -> Value:
        """Return the logits: [outputs, vocabulary]."""
        return blocks.logits(g, c, w, self.final_norm(g, c, w, self.hidden_states(g, c, w)))


def family_of_gguf(families: Iterable[Family[Any]], keys: Keys) -> Family[Any]:
    """Return the first of several families of one GGUF name that says it owns a file.

    Raises:
        UnsupportedError: None does.
    """
    for family in families:
        if family.owns_gguf(keys):
            return family
    raise keys.unsupported("it is of no kind of its architecture that is known")


def family_of_config_json(families: Iterable[Family[Any]], config: ConfigJson) -> Family[Any]:
    """Return the first of several families of one model type that says it owns a folder.

    Raises:
        UnsupportedError: None does.
    """
    for family in families:
        if family.owns_config_json(config):
            return family
    raise config.unsupported("it is of no kind of its model type that is known")
