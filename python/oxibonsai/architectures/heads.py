"""Fields of what follows an encoder's hidden states: pooling, linear layers, the head of a classifier.

``config.json`` says what a classifier's scores are of. How vectors are made of hidden states stands in
the files of sentence-transformers beside it: ``modules.json`` and a ``config.json`` for each module.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oxibonsai.architectures.layers.pooled import PROJECTIONS, ClassifierConfig
from oxibonsai.architectures.schema.fields import Derived, GgufKeys, Known
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.errors import FormatError, UnsupportedError

# GGUF's pooling_type by the word in Pooling's configuration, and that word by its older flags.
POOLING_TYPES = {"mean": 1, "cls": 2, "lasttoken": 3}
_FLAGS = {f"pooling_mode_{word}": word for word in ("cls_token", "mean_tokens", "lasttoken")}
_MODULES = {"Transformer", "Pooling", "Normalize", "Dense"}
_TASK = "ForSequenceClassification"


def classifies(config: ConfigJson) -> bool:
    """Return whether the model has the head of a classifier."""
    kinds = config.get("architectures")
    return isinstance(kinds, list) and any(str(kind).endswith(_TASK) for kind in kinds)


@dataclass(frozen=True)
class Head:
    """The head of a classifier.

    Attributes:
        pooling: What it reads where nothing says.
        activation: Between its two layers.
    """

    pooling: str = "cls"
    activation: str = "tanh"

    def read_config_json(self, config: ConfigJson, known: Known) -> ClassifierConfig | None:
        """Return the head that ``config.json`` describes."""
        if not classifies(config):
            return None
        pooling = config.get("classifier_pooling") or self.pooling
        return ClassifierConfig(pooling, _labels(config), activation=self.activation)

    def write_config_json(self, value: ClassifierConfig | None, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json`` for the labels."""
        if value is None:
            return {}
        if not value.labels:
            return {"num_labels": c.num_labels}
        names = {str(i): label for i, label in enumerate(value.labels)}
        return {"id2label": names, "label2id": {label: int(i) for i, label in names.items()}}

    def read_gguf(self, keys: Keys, known: Known) -> ClassifierConfig | None:
        """Return the head that a file has."""
        return read_classifier(keys, default_pooling=self.pooling, activation=self.activation)

    def write_gguf(self, value: ClassifierConfig | None, c: Any) -> GgufKeys:
        """Return the key of the labels, where the model names them."""
        if value is None or not value.labels:
            return {}
        return {"classifier.output_labels": (list(value.labels), "arr[str]")}


def _labels(config: ConfigJson) -> tuple[str, ...]:
    """Return the labels in the order of their numbers; none where the model does not name them."""
    stated = config.get("id2label")
    if stated is None:
        return ()
    if not isinstance(stated, dict) or not all(isinstance(v, str) for v in stated.values()):
        raise config.fail("id2label is no object of texts")
    try:
        return tuple(label for _, label in sorted((int(i), label) for i, label in stated.items()))
    except ValueError as e:
        raise config.fail(f"id2label is not by number: {e}") from e


@dataclass(frozen=True)
class LabelCount(Derived):
    """The number of a classifier's scores, which the tensors of a file show; 0: it has no head."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return 0: the parameters say it."""
        return 0

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the rows of the last matrix of the head."""
        name = "cls.output.weight"
        return keys.tensor_shape(name)[0] if name in keys.tensor_names else 0


def read_classifier(
    keys: Keys, *, default_pooling: str = "cls", activation: str = "tanh"
) -> ClassifierConfig | None:
    """Return the head of a classifier; None where the file has none.

    Args:
        keys: Of the file.
        default_pooling: What the head reads where the file does not say.
        activation: Between its two layers.
    """
    labels = keys.get("classifier.output_labels")
    pooling = keys.pooling(default_pooling, "classifier.pooling_type")
    if not keys.has_classifier:
        return None
    texts = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    if labels is not None and not texts:
        raise keys.fail("classifier.output_labels is no list of texts")
    return ClassifierConfig(pooling, tuple(labels or ()), activation=activation)


@dataclass(frozen=True)
class Pooling(Derived):
    """How vectors are made of hidden states, as GGUF's words say it; None: nothing says.

    Attributes:
        projects: Whether files have linear layers after pooling.
    """

    projects: bool = False

    def read_config_json(self, config: ConfigJson, known: Known) -> str | None:
        """Return what the files of sentence-transformers say, beside ``config.json``."""
        folder = config.path.parent
        modules = dict(sentence_modules(folder))
        if "Dense" in modules and not self.projects:
            raise UnsupportedError(
                f"{folder / 'modules.json'} has the module Dense, which files of this architecture "
                "have no place for"
            )
        if "Pooling" not in modules:
            return None
        path = folder / modules["Pooling"] / "config.json"
        stated = read_object(path)
        modes = {
            word.partition("_")[0] for flag, word in _FLAGS.items() if stated.get(flag) is True
        }
        others = {k for k, v in stated.items() if k.startswith("pooling_mode_") and v is True}
        if "pooling_mode" in stated:
            modes, others = {str(stated["pooling_mode"])}, set()
        if len(modes) != 1 or others - _FLAGS.keys() or not modes <= POOLING_TYPES.keys():
            raise UnsupportedError(
                f"{path}: pooling is {sorted(modes | others)}; GGUF knows one of "
                + ", ".join(POOLING_TYPES)
            )
        word = modes.pop()
        return "last" if word == "lasttoken" else word

    def read_gguf(self, keys: Keys, known: Known) -> str | None:
        """Return what a file says."""
        return None if keys.get("pooling_type") is None else keys.pooling("mean")

    def write_gguf(self, value: str | None, c: Any) -> GgufKeys:
        """Return the key, where something says."""
        if value is None:
            return {}
        word = "lasttoken" if value == "last" else value
        return {"pooling_type": (POOLING_TYPES[word], "u32")}


def sentence_modules(folder: Path) -> list[tuple[str, str]]:
    """Return kind and path of each module of sentence-transformers; none where there is no list.

    Raises:
        FormatError: The list is damaged.
        UnsupportedError: It has a module that GGUF has no place for.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return []
    try:
        found = [
            (str(m["type"]).rpartition(".")[2], str(m["path"]))
            for m in json.loads(path.read_text())
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise FormatError(f"cannot read {path}: {e!r}") from e
    for kind, name in found:
        if kind not in _MODULES:
            raise UnsupportedError(f"{path} has the module {kind}, which GGUF has no place for")
        if name != (folder / name).name and name:
            raise FormatError(f"{path} names {name!r}, no folder beside it")
    return found


def read_object(path: Path) -> dict[str, Any]:
    """Return the object that a file of JSON holds; FormatError where it holds none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise FormatError(f"cannot read {path}: {e}") from e
    if not isinstance(value, dict):
        raise FormatError(f"{path} is no JSON object")
    return value


@dataclass(frozen=True)
class Projections(Derived):
    """The layers behind pooling, which the driver of a conversion reads."""

    def read_config_json(self, config: ConfigJson, known: Known) -> None:
        """Return nothing."""

    def read_gguf(self, keys: Keys, known: Known) -> None:
        """Check the keys of linear layers after pooling against their tensors."""
        for name in PROJECTIONS:
            sides = [f"{name}_feat_{side}" for side in ("out", "in")]
            if all(keys.get(side) is None for side in sides):
                continue
            tensor, stated = f"{name}.weight", [keys.integer(side) for side in sides]
            if tensor not in keys.tensor_names or list(keys.tensor_shape(tensor)) != stated:
                raise keys.fail(
                    f"{tensor} is not the matrix {stated} that {name}_feat_out and _in state"
                )
