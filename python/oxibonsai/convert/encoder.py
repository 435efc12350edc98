"""Names of parameters and classifier heads that the conversions of encoders share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from oxibonsai.convert import text_tokenizer
from oxibonsai.convert.decoder import key_of
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.japanese import is_japanese, japanese_keys
from oxibonsai.convert.recipe import Metadata
from oxibonsai.convert.vocabulary import SPECIAL_FILES
from oxibonsai.convert.wordpiece import wordpiece_keys
from oxibonsai.errors import FormatError, UnsupportedError

# Names of norms in old checkpoints.
_KINDS = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
CLASSIFIER = {"classifier.dense": "cls", "classifier.out_proj": "cls.output"}


@dataclass(frozen=True)
class EncoderNamer:
    """GGUF's name of a parameter, for one family's names; and the way back.

    Attributes:
        family: For errors.
        layers: What the names of all layers begin with.
        layer_names: GGUF's name of each part of a layer.
        fixed: GGUF's name of each part outside of the layers.
        prefixes: Of which one may stand before all names.
        left_out: Beginnings of names that the file leaves out: heads of other tasks.
        plain: The name that these tables have for a parameter, where folders differ.
    """

    family: str
    layers: str
    layer_names: Mapping[str, str]
    fixed: Mapping[str, str]
    prefixes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    plain: Callable[[str], str] = lambda parameter: parameter

    def __call__(self, parameter: str) -> str | None:
        """GGUF's name; None where the file leaves the parameter out."""
        short = self.plain(parameter)
        for prefix in self.prefixes:
            short = short.removeprefix(prefix)
        if short.startswith(self.left_out):
            return None
        module, _, last = short.rpartition(".")
        kind = _KINDS.get(last)
        layer = re.fullmatch(rf"{re.escape(self.layers)}\.([0-9]{{1,4}})\.(.+)", module)
        if kind is not None and layer is not None and layer[2] in self.layer_names:
            return f"blk.{int(layer[1])}.{self.layer_names[layer[2]]}.{kind}"
        if kind is not None and module in self.fixed:
            return f"{self.fixed[module]}.{kind}"
        raise UnsupportedError(
            f"the model has the parameter {parameter}, which is none of {self.family}'s"
        )

    def parameter(self, tensor: str) -> str | None:
        """Return the parameter that GGUF calls ``tensor``, without a prefix; None if there is none."""
        stem, _, kind = tensor.rpartition(".")
        layer = re.fullmatch(r"blk\.([0-9]{1,4})\.(.+)", stem)
        names, part = (self.fixed, stem) if layer is None else (self.layer_names, layer[2])
        module = key_of(names, part)
        if module is None or kind not in ("weight", "bias"):
            return None
        return f"{module}.{kind}" if layer is None else f"{self.layers}.{layer[1]}.{module}.{kind}"


def is_matrix(tensor: str) -> bool:
    """Weights of linear layers and the token table; llama.cpp wants the small tables in f32."""
    small = ("norm" in tensor) or tensor in ("position_embd.weight", "token_types.weight")
    return tensor.endswith(".weight") and not small and "ffn_gate_inp" not in tensor


def classifies(folder: ModelFolder) -> bool:
    """Whether the model has the head of a classifier."""
    kinds = folder.config.get("architectures")
    return isinstance(kinds, list) and any(
        str(kind).endswith("ForSequenceClassification") for kind in kinds
    )


def dimension_keys(
    folder: ModelFolder, architecture: str, epsilon: str = "layer_norm_eps"
) -> Metadata:
    """Return the dimensions that all have, which see both sides of a text.

    Args:
        folder: With ``config.json``.
        architecture: GGUF's name.
        epsilon: What ``config.json`` calls that of the norms.
    """
    counts = {
        "block_count": folder.count("num_hidden_layers"),
        "context_length": folder.count("max_position_embeddings"),
        "embedding_length": folder.count("hidden_size"),
        "feed_forward_length": folder.count("intermediate_size"),
        "attention.head_count": folder.count("num_attention_heads"),
    }
    return {
        **{f"{architecture}.{key}": (value, "u32") for key, value in counts.items()},
        f"{architecture}.attention.layer_norm_epsilon": (folder.real(epsilon, 1e-12), "f32"),
        f"{architecture}.attention.causal": (False, "bool"),
        **_labels(folder, architecture),
    }


def _labels(folder: ModelFolder, architecture: str) -> Metadata:
    """Return the labels of a classifier's scores, where the model names them."""
    stated: Any = folder.config.get("id2label")
    if not classifies(folder) or stated is None:
        return {}
    where = folder.path / "config.json"
    if not isinstance(stated, dict) or not all(isinstance(v, str) for v in stated.values()):
        raise FormatError(f"{where}: id2label is no object of texts")
    try:
        labels = [label for _, label in sorted((int(i), label) for i, label in stated.items())]
    except ValueError as e:
        raise FormatError(f"{where}: id2label is not by number: {e}") from e
    return {f"{architecture}.classifier.output_labels": (labels, "arr[str]")}


def segment_keys(folder: ModelFolder) -> Metadata:
    """How many segments a text may have."""
    count = folder.count("type_vocab_size") if folder.config.get("type_vocab_size") else 1
    return {"tokenizer.ggml.token_type_count": (count, "u32")}


def tokenizer_keys(folder: ModelFolder) -> Metadata:
    """WordPiece, or any vocabulary that decoders have too; without its files, the model is for ids only."""
    if is_japanese(folder):
        return japanese_keys(folder, folder.count("vocab_size"))
    if (folder.path / "tokenizer.json").is_file():
        model = folder.json("tokenizer.json").get("model")
        if isinstance(model, dict) and model.get("type") == "WordPiece":
            return wordpiece_keys(folder, folder.count("vocab_size"))
    elif other := [n for n in (*SPECIAL_FILES, "vocab.txt") if (folder.path / n).is_file()]:
        raise FormatError(
            f"{folder.path} has {other[0]} and no tokenizer.json: save its tokenizer with transformers "
            "first (AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER))"
        )
    return text_tokenizer.tokenizer_keys(folder)


def renamed(names: Mapping[str, str]) -> Callable[[ModelFolder], dict[str, Any]]:
    """Return the configuration with names of its own under those that most models have.

    Args:
        names: The usual name by the model's own.
    """

    def config(folder: ModelFolder) -> dict[str, Any]:
        found = folder.config
        return {**{names[k]: v for k, v in found.items() if k in names}, **found}

    return config
