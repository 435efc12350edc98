"""A folder as Hugging Face's libraries save it: configuration, tokenizer, safetensors or ONNX."""

from __future__ import annotations

import copy
from functools import cached_property
from pathlib import Path
from typing import Any

from oxibonsai.checkpoint.onnx_parameters import onnx_parameters
from oxibonsai.checkpoint.parameters import Parameter, put_together
from oxibonsai.checkpoint.safetensors_file import StoredTensor, read_header
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.files.json_object import read_object
from oxibonsai.files.pickled_weights import pickle_advice

_STEM = "model"  # of safetensors as transformers names them
_MOST_JSON_BYTES = 1 << 30  # vocabularies of a million tokens have some 100 MB
_WEIGHTS, _INDEX = "safetensors", "safetensors.index.json"
_QUANTIZATION = ("quantization", "quantization_config")  # MLX's name, and all others'
_QUANTIZATION_FILE = "quantization_config.json"
_MOST_LAYERS = 9999  # names of parameters have four digits for them
_ONNX = "onnx"  # where exports for browsers have their ONNX files, beside the configuration


def find_onnx(folder: Path) -> Path | None:
    """Return the only ONNX file of a folder; None where it has none.

    Raises:
        FormatError: It has several.
    """
    found = sorted([*folder.glob("*.onnx"), *folder.glob(f"{_ONNX}/*.onnx")])
    if len(found) > 1:
        raise FormatError(
            f"{folder} has {len(found)} ONNX files: name the one to convert, of "
            + ", ".join(str(f.relative_to(folder)) for f in found[:8])
        )
    return found[0] if found else None


class ModelFolder:
    """Reads what a converter asks for.

    Args:
        path: The folder, or the ONNX or safetensors file to take from it.
        stem: How the files of safetensors may be called besides ``model``.

    Raises:
        FormatError: A file is missing or damaged; it is named.
    """

    def __init__(self, path: Path, stem: str = _STEM) -> None:
        self._file: Path | None = None
        if path.suffix in (".onnx", ".safetensors") and path.is_file():
            self._file, path = path, path.parent
            if path.name == _ONNX and not (path / "config.json").is_file():
                path = path.parent
        self.path = path
        self._stem = stem
        if not path.is_dir():
            raise FormatError(
                f"{path} is no folder and no ONNX file; convert takes one with config.json beside it"
            )
        self.config = self.json("config.json")

    def json(self, name: str) -> dict[str, Any]:
        """Return an object that a file holds."""
        return read_object(self.path / name)

    def at(self, path: Path) -> ModelFolder:
        """Return the folder with the files of another one and its own configuration."""
        found = copy.copy(self)
        found.path = path
        return found

    def count(self, key: str) -> int:
        """Return a positive count of ``config.json``."""
        value = self.config.get(key)
        most = _MOST_LAYERS if key == "num_hidden_layers" else 2**31 - 1
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
            raise FormatError(
                f"{self.path / 'config.json'}: {key} is {value!r}, not a positive count up to {most}"
            )
        return value

    def count_or_zero(self, key: str) -> int:
        """Return a count; 0 where the key is missing, null or 0."""
        return 0 if self.config.get(key) in (None, 0) else self.count(key)

    def real(self, key: str, default: float) -> float:
        """Return a positive number of ``config.json``."""
        value = self.config.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
            raise FormatError(
                f"{self.path / 'config.json'}: {key} is {value!r}, not a number between 0 and 1"
            )
        return float(value)

    def part(self, name: str, **defaults: Any) -> ModelFolder:
        """Return the folder with an object of ``config.json`` in the place of all of it.

        Args:
            name: The object's.
            defaults: What it has where it does not say.
        """
        held = self.config.get(name)
        if not isinstance(held, dict):
            raise FormatError(f"{self.path / 'config.json'} has no object {name}")
        found = copy.copy(self)
        found.config = {**defaults, **held}
        return found

    def text_config(self) -> dict[str, Any]:
        """Return ``text_config`` of a model that takes more than texts, over what stands beside it."""
        text = self.config.get("text_config")
        if not isinstance(text, dict):
            raise FormatError(f"{self.path / 'config.json'} has no object text_config")
        return {**self.config, **text}

    def require(self, key: str, *known: Any) -> None:
        """Raise UnsupportedError where ``config.json`` has another value than those known."""
        value = self.config.get(key, known[0])
        if value not in known:
            raise UnsupportedError(
                f"{self.path / 'config.json'}: {key} is {value!r}; convert knows "
                + ", ".join(map(repr, known))
            )

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """All of the model's, by name, in the order of names."""
        if (onnx := self._onnx_file()) is not None:
            self.require("model_type", "qwen3")
            tied = self.config.get("tie_word_embeddings") is True
            return onnx_parameters(onnx, self.count("num_hidden_layers"), tied=tied)
        return put_together(self._tensors(), self._quantization())

    def _quantization(self) -> dict[str, Any]:
        """Return how weights are packed, as the configuration or a file beside it says."""
        held = self.config
        if not any(held.get(key) for key in _QUANTIZATION):
            if not (self.path / _QUANTIZATION_FILE).is_file():
                return {}
            held = self.json(_QUANTIZATION_FILE)
        key = next((key for key in _QUANTIZATION if held.get(key)), None)
        found = held if key is None else held[key]
        if not isinstance(found, dict):
            raise FormatError(f"{self.path / 'config.json'}: {key} is no object")
        return found

    def _onnx_file(self) -> Path | None:
        """Return the ONNX file that was named, or the only one of a folder without safetensors."""
        if self._file is not None:
            return self._file if self._file.suffix == ".onnx" else None
        return find_onnx(self.path) if self._weights_file() is None else None

    def _weights_file(self) -> Path | None:
        """Return the file of safetensors, or the index of several; None: there is none."""
        if self._file is not None:
            return self._file
        stems = dict.fromkeys((self._stem, _STEM))
        names = (f"{stem}.{kind}" for stem in stems for kind in (_INDEX, _WEIGHTS))
        return next((self.path / n for n in names if (self.path / n).is_file()), None)

    def _tensors(self) -> dict[str, StoredTensor]:
        place = self._weights_file()
        if place is None:
            advice = pickle_advice(p.name for p in self.path.glob("*.bin"))
            raise FormatError(
                f"{self.path} has no {self._stem}.{_WEIGHTS}"
                + (advice or "; save the model in that format first")
            )
        if place.suffix != ".json":
            return read_header(place)
        file_of = self._weight_map(place)
        names = sorted(set(file_of.values()))
        if missing := [n for n in names if not (self.path / n).is_file()]:
            raise FormatError(
                f"{self.path} lacks {len(missing)} of the {len(names)} files of its index: "
                + ", ".join(missing[:8])
            )
        found: dict[str, StoredTensor] = {}
        for name in names:
            for tensor, stored in read_header(self.path / name).items():
                if file_of.get(tensor) != name:
                    where = file_of.get(tensor, "nowhere")
                    raise FormatError(
                        f"{self.path / name} holds {tensor}, which {place.name} puts {where}: the file "
                        "or the index belongs to another model"
                    )
                found[tensor] = stored
        for tensor, name in file_of.items():
            if tensor not in found:
                raise FormatError(
                    f"{self.path / name} lacks {tensor}, which {place.name} puts there"
                )
        return found

    def _weight_map(self, place: Path) -> dict[str, str]:
        """Return the file of each tensor; an index must not lead out of its folder."""
        index = read_object(place).get("weight_map")
        if not isinstance(index, dict) or not index:
            raise FormatError(f"{place} has no weight_map")
        for name in index.values():
            plain = isinstance(name, str) and name.endswith(".safetensors") and "\\" not in name
            if not plain or Path(name).name != name:
                raise FormatError(f"{place} names {name!r}, no file of the folder")
        return index
