"""Which model is meant among named files: one rule for folders, the hub and Python packages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from oxibonsai.errors import SourceError
from oxibonsai.sources.shards import require_shards, shards

_CONFIG = "config.json"
_ONNX = "onnx"  # the folder of exports for browsers
_TOWER_TYPES = ("f16", "bf16", "q8_0", "f32")
_TEXTS = ("tokenizer.model", "chat_template.jinja")


class NoGguf(SourceError):
    """There is no GGUF file.

    Attributes:
        convertible: Whether there is what one can be made of.
    """

    def __init__(self, holder: str, *, convertible: bool) -> None:
        advice = (
            "; it has weights: make a GGUF of it with oxibonsai convert IN OUT"
            if convertible
            else ", nor config.json with safetensors or ONNX to make one of"
        )
        super().__init__(f"{holder} holds no GGUF model{advice}")
        self.convertible = convertible


def choose(names: Collection[str], choice: str | None, holder: str, form: str) -> list[str]:
    """Return the files of the one model that is meant, the first shard first.

    Args:
        names: The files that there are, folder and all.
        choice: A file or a quant type; None where there should be one model only.
        holder: What has the files, for errors.
        form: How to write a choice, for errors.

    Raises:
        SourceError: There is no such model or not all of it, or there are several; they are listed.
        NoGguf: There is none at all.
    """
    found = matching(names, choice)
    if len(found) == 1:
        return require_shards(found[0], names.__contains__, holder)
    candidates = found or matching(names, None)
    if not candidates:
        raise NoGguf(holder, convertible=any(n.endswith((".safetensors", ".onnx")) for n in names))
    problem = ("several models" if found else "no model") + (f" for {choice}" if choice else "")
    raise SourceError(f"{holder} holds {problem}; choose with {form} from: {', '.join(candidates)}")


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
    """Vision towers among the files around a model, the likeliest one first.

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
    """Whether a file holds a vision tower, which lies beside a model and is none by itself."""
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
    """Which files of a folder are to be converted: safetensors, or the only or the chosen ONNX file.

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
        raise SourceError(f"{holder} holds no {_CONFIG} with safetensors or an ONNX file")
    found = [f for f in files if choice is None or choice in (f, PurePosixPath(f).name)]
    if len(found) != 1:
        problem = "several ONNX files" if found else f"no {choice}"
        raise SourceError(f"{holder} holds {problem}; choose with {form} from: {', '.join(files)}")
    # External data has the file's name with something after it.
    return Convertible(found[0], sorted(n for n in names if n.startswith(found[0])), texts)
