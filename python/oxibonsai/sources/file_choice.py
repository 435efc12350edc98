"""Which model is meant among named files: one rule for folders, the hub and Python packages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath

from oxibonsai.errors import SourceError
from oxibonsai.files.pickled_weights import pickle_advice
from oxibonsai.files.shards import require_shards, shards

_CONFIG = "config.json"
_ONNX = "onnx"  # the folder of exports for browsers
_TOWER_TYPES = ("f16", "bf16", "q8_0", "f32")
# Ternary types: the one that is read fastest, and the one that is smallest.
_PACKINGS = ("PQ2_0", "PTQ1_0")
_DRAFTER = re.compile(r"(?<![a-z])(dspark|dflash|eagle3)")
_RESERVED = 2 << 30  # beside the weights: keys and values, the system
_TEXTS = ("tokenizer.model", "chat_template.jinja")


class Kind(Enum):
    """The kind of file or folder that holds a model."""

    GGUF = "a GGUF file"
    FOLDER = "a folder with config.json and safetensors"
    ONNX = "an ONNX file with config.json beside it"


def kind_of(names: Collection[str], choice: str | None) -> Kind:
    """Return what is meant among files: GGUF goes before safetensors, these before ONNX.

    Args:
        names: The files that there are, folder and all.
        choice: A file or a quant type; None: there is none.
    """
    if choice is not None and choice.endswith(".onnx"):
        return Kind.ONNX
    if matching(names, None):
        return Kind.GGUF
    if any(n.endswith(".safetensors") for n in names):
        return Kind.FOLDER
    return Kind.ONNX if any(n.endswith(".onnx") for n in names) else Kind.GGUF


def choose(names: Collection[str], choice: str | None, holder: str, form: str) -> list[str]:
    """Return the files of the one model that is meant, the first shard first.

    Args:
        names: The files that there are, folder and all.
        choice: A file or a quant type; None where there should be one model only.
        holder: What has the files, for errors.
        form: How to write a choice, for errors.

    Raises:
        SourceError: There is no such model or not all of it, or there are several; they are listed.
    """
    found = matching(names, choice)
    if len(found) == 1:
        return require_shards(found[0], names.__contains__, holder)
    candidates = found or matching(names, None)
    if not candidates:
        has_weights = kind_of(names, None) is not Kind.GGUF
        raise SourceError(
            f"{holder} holds no GGUF model"
            + (
                "; it has weights: make a GGUF of it with oxibonsai convert IN OUT"
                if has_weights
                else pickle_advice(names)
                or ", nor config.json with safetensors or ONNX to make one of"
            )
        )
    problem = ("several models" if found else "no model") + (f" for {choice}" if choice else "")
    raise SourceError(f"{holder} holds {problem}; choose with {form} from: {', '.join(candidates)}")


@dataclass(frozen=True)
class Preference:
    """Which of several packings of the same weights suits a machine.

    Attributes:
        file: The one.
        reason: A sentence for the user.
    """

    file: str
    reason: str


def preferred(sizes: Mapping[str, int | None], memory: int) -> Preference | None:
    """Return the file that suits a machine, of a repository with the same ternary weights in several types.

    PQ2_0 reads prompts faster; PTQ1_0 is a sixth smaller.

    Args:
        sizes: All files with their bytes.
        memory: Of the machine, in bytes.

    Returns:
        None where that does not say which model is meant.
    """
    models = [m for m in matching(sizes, None) if not _DRAFTER.search(m.lower())]
    fast, small = (matching(models, kind) for kind in _PACKINGS)
    if len(models) < 2 or len(fast) != 1 or len(small) > 1:
        return None
    if not small:
        return Preference(fast[0], f"{_PACKINGS[0]} is the ternary type that is read fastest")
    size = sizes[fast[0]]
    if size is None or size + _RESERVED <= memory:
        return Preference(fast[0], f"{_PACKINGS[0]} is read faster than {_PACKINGS[1]}, and fits")
    return Preference(
        small[0],
        f"{_PACKINGS[1]} is smaller than {_PACKINGS[0]}, whose {size / 1e9:.2f} GB leave too little of "
        f"the {memory / 1e9:.2f} GB of memory",
    )


def matching(names: Iterable[str], choice: str | None) -> list[str]:
    """Return the models that a choice names, split ones by their first shard.

    A file's whole path goes before its name in any folder, any shard names its set. Vision towers
    are no models.
    """
    models = sorted({shards(n)[0] for n in names if n.endswith(".gguf") and not is_tower(n)})
    if choice is None:
        return models
    if choice.endswith(".gguf"):
        wanted = shards(choice)[0]
        return [m for m in models if m == wanted] or [
            m for m in models if PurePosixPath(m).name == wanted
        ]
    quant = re.compile(rf"(?<![A-Za-z0-9]){re.escape(choice)}(?![A-Za-z0-9_])", re.IGNORECASE)
    return [m for m in models if quant.search(PurePosixPath(m).name)]


def towers(names: Iterable[str], model: str, choice: str | None = None) -> list[str]:
    """Return vision towers among the files around a model, the likeliest one first.

    That is the one whose name has most words of the model's name; among equals F16 goes before BF16,
    Q8_0 and F32.

    Args:
        names: The files that there are.
        model: Name of the model's file.
        choice: Where it is the name of a tower, that alone.
    """
    words = _words(model)

    def rank(name: str) -> tuple[int, int, str]:
        own = _words(name)
        kind = next((i for i, t in enumerate(_TOWER_TYPES) if t in own), len(_TOWER_TYPES))
        return -len((own & words) - set(_TOWER_TYPES)), kind, name

    found = [n for n in names if n.endswith(".gguf") and is_tower(n)]
    if choice is not None and choice.endswith(".gguf") and is_tower(choice):
        found = [n for n in found if choice in (n, PurePosixPath(n).name)]
    return sorted(found, key=rank)


def is_tower(name: str) -> bool:
    """Return whether a file holds a vision tower, which lies beside a model and is none by itself."""
    return "mmproj" in PurePosixPath(name).name.lower()


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z0-9_]+", PurePosixPath(name).name.lower().removesuffix(".gguf")))


@dataclass(frozen=True)
class Convertible:
    """The files of a folder that a GGUF file can be made of.

    Attributes:
        onnx: The ONNX file; None: safetensors.
        weights: With what belongs to it.
        texts: Configuration and tokenizer.
    """

    onnx: str | None
    weights: list[str]
    texts: list[str]


def choose_convertible(
    names: Collection[str], choice: str | None, holder: str, form: str
) -> Convertible:
    """Return which files of a folder to convert: safetensors, or the only or chosen ONNX file.

    Args:
        names: The files that there are, folder and all.
        choice: An ONNX file.
        holder: What has the files, for errors.
        form: How to write a choice, for errors.

    Raises:
        SourceError: There are none, or several ONNX files; they are listed.
    """
    texts = sorted(n for n in names if n.endswith(".json") or n in _TEXTS)
    weights = sorted(n for n in names if n.endswith(".safetensors") and "/" not in n)
    if _CONFIG in names and weights and choice is None:
        return Convertible(None, weights, texts)
    folders = ("", _ONNX)
    files = sorted(n for n in names if n.endswith(".onnx") and n.rpartition("/")[0] in folders)
    if _CONFIG not in names or not files:
        raise SourceError(
            f"{holder} holds no {_CONFIG} with safetensors or an ONNX file{pickle_advice(names)}"
        )
    found = [f for f in files if choice is None or choice in (f, PurePosixPath(f).name)]
    if len(found) != 1:
        problem = "several ONNX files" if found else f"no {choice}"
        raise SourceError(f"{holder} holds {problem}; choose with {form} from: {', '.join(files)}")
    # External data has the file's name with something after it.
    return Convertible(found[0], sorted(n for n in names if n.startswith(found[0])), texts)
