"""How transformers calls an architecture, and what the fields of several have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from oxibonsai.architectures.schema.family import Family
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.export.joined import JoinedShapes
from oxibonsai.export.safetensors_writer import Floats
from oxibonsai.models.config import ModelConfig

ATTENTION, MLP = ("attn_q", "attn_k", "attn_v", "attn_output"), ("ffn_gate", "ffn_up", "ffn_down")
QKV = ATTENTION[:3]
Fields = dict[str, Any]


@dataclass(frozen=True)
class Saved:
    """How transformers calls an architecture, and the fields of its own.

    Attributes:
        model_type: Of ``config.json``.
        kind: The model's class is ``{kind}{task}``.
        own: Fields beside those of all architectures.
        epsilon: The field of the norms' epsilon; empty: there is none.
        head_dim: Whether there is a field for it.
        rope: Fields of the rotary embedding: of one for all layers, of one for each kind of layer, or
            none, because there is one for all models or ``own`` has it.
        joined: Parameters that are no tensor of their own in the file.
        task: What the class is called after its kind; a classifier is for sequence classification.
        recipe: Its name in ``convert``, where that is not the model type.
        prefix: What the names of a classifier's parameters begin with, but for those of its head.
        numbers: Parameters that a file has among its keys, by Hugging Face's names.
        family: Says all of this, where it is described; None: the fields above do.
    """

    model_type: str
    kind: str
    own: Callable[[Checkpoint, ModelConfig], Fields]
    epsilon: str = "rms_norm_eps"
    head_dim: bool = True
    rope: Literal["one", "by kind", "none"] = "one"
    joined: JoinedShapes = field(default_factory=dict)
    task: str = "ForCausalLM"
    recipe: str = ""
    prefix: str = ""
    numbers: Callable[[Checkpoint], Mapping[str, Floats]] = lambda checkpoint: {}
    family: Family[Any] | None = None

    @property
    def recipe_name(self) -> str:
        """In ``convert``."""
        return self.recipe or self.model_type

    @property
    def makes_vectors(self) -> bool:
        """Whether what follows the hidden states is a folder of sentence-transformers'."""
        return self.task in ("Model", "EncoderModel")


def saved_family(family: Family[Any]) -> Saved:
    """Return a family's entry in the table of what can be saved."""
    return Saved(family.model_types[0], family.kind, lambda checkpoint, c: {}, family=family)


def biased(checkpoint: Checkpoint, *parts: str) -> bool:
    return any(checkpoint.has(f"blk.0.{part}.bias") for part in parts)


def layer_types(c: ModelConfig) -> list[str]:
    kinds = ("full_attention", "sliding_attention")
    return [kinds[c.is_local(i)] for i in range(c.num_hidden_layers)]


def windows(c: ModelConfig) -> Fields:
    return {"sliding_window": c.sliding_window or None, "layer_types": layer_types(c)}


def mosaic_sizes(c: ModelConfig) -> Fields:
    """Return the names that MPT and DBRX have for what others call otherwise."""
    return {
        "d_model": c.hidden_size,
        "n_heads": c.num_attention_heads,
        "n_layers": c.num_hidden_layers,
        "max_seq_len": c.max_position_embeddings,
    }
