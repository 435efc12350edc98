"""A folder as Hugging Face's libraries save it: configuration, tokenizer, safetensors or ONNX."""

from __future__ import annotations

import copy
import json
from functools import cached_property
from pathlib import Path
from typing import Any

from oxibonsai.convert.onnx_parameters import onnx_parameters
from oxibonsai.convert.parameters import Parameter, put_together
from oxibonsai.convert.safetensors_file import StoredTensor, read_header
from oxibonsai.errors import FormatError, UnsupportedError

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
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
    """Reads what a recipe asks for.

    Args:
        path: The folder, or the ONNX file to take from it.

    Raises:
        FormatError: A file is missing or damaged; it is named.
    """

    def __init__(self, path: Path) -> None:
        self._onnx: Path | None = None
        if path.suffix == ".onnx" and path.is_file():
            self._onnx, path = path, path.parent
            if path.name == _ONNX and not (path / "config.json").is_file():
                path = path.parent
        self.path = path
        if not path.is_dir():
            raise FormatError(
                f"{path} is no folder and no ONNX file; convert takes one with config.json beside it"
            )
        self.config = self.json("config.json")

    def json(self, name: str) -> dict[str, Any]:
        """Return an object that a file holds."""
        try:
            value = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError as e:
            raise FormatError(f"{self.path} has no {name}") from e
        except (OSError, ValueError, RecursionError) as e:
            raise FormatError(f"cannot read {self.path / name}: {e}") from e
        if not isinstance(value, dict):
            raise FormatError(f"{self.path / name} is no JSON object")
        return value

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
        """``text_config`` of a model that takes more than texts, over what stands beside it."""
        text = self.config.get("text_config")
        if not isinstance(text, dict):
            raise FormatError(f"{self.path / 'config.json'} has no object text_config")
        return {**self.config, **text}

    def require(self, key: str, *known: Any) -> None:
        """UnsupportedError where ``config.json`` has another value than those known."""
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
        key = "quantization" if self.config.get("quantization") else "quantization_config"
        quantization = self.config.get(key) or {}
        if not isinstance(quantization, dict):
            raise FormatError(f"{self.path / 'config.json'}: {key} is no object")
        return put_together(self._tensors(), quantization)

    def _onnx_file(self) -> Path | None:
        """Return the ONNX file that was named, or the only one of a folder without safetensors."""
        if self._onnx is not None or any((self.path / n).is_file() for n in (_WEIGHTS, _INDEX)):
            return self._onnx
        return find_onnx(self.path)

    def _tensors(self) -> dict[str, StoredTensor]:
        if not (self.path / _INDEX).is_file():
            if not (self.path / _WEIGHTS).is_file():
                raise FormatError(
                    f"{self.path} has no {_WEIGHTS}; save the model in that format first"
                )
            return read_header(self.path / _WEIGHTS)
        file_of = self._weight_map()
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
                        f"{self.path / name} holds {tensor}, which {_INDEX} puts {where}: the file or "
                        "the index belongs to another model"
                    )
                found[tensor] = stored
        for tensor, name in file_of.items():
            if tensor not in found:
                raise FormatError(f"{self.path / name} lacks {tensor}, which {_INDEX} puts there")
        return found

    def _weight_map(self) -> dict[str, str]:
        """Return the file of each tensor; an index must not lead out of its folder."""
        index = self.json(_INDEX).get("weight_map")
        if not isinstance(index, dict) or not index:
            raise FormatError(f"{self.path / _INDEX} has no weight_map")
        for name in index.values():
            plain = isinstance(name, str) and name.endswith(".safetensors") and "\\" not in name
            if not plain or Path(name).name != name:
                raise FormatError(f"{self.path / _INDEX} names {name!r}, no file of the folder")
        return index
