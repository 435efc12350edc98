"""A folder as Hugging Face's libraries save it: configuration, tokenizer, safetensors."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import FormatError, UnsupportedError

_FLOATS = ("F32", "F16", "BF16")


class ModelFolder:
    """Reads what a recipe asks for.

    Raises:
        FormatError: A file is missing or damaged; it is named.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_dir():
            raise FormatError(f"{path} is no folder; convert takes one with config.json")
        self.config = self.json("config.json")

    def json(self, name: str) -> dict[str, Any]:
        """An object that a file holds."""
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
        """A positive count of ``config.json``."""
        value = self.config.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise FormatError(
                f"{self.path / 'config.json'}: {key} is {value!r}, not a positive count"
            )
        return value

    def real(self, key: str, default: float) -> float:
        """A positive number of ``config.json``."""
        value = self.config.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
            raise FormatError(
                f"{self.path / 'config.json'}: {key} is {value!r}, not a number between 0 and 1"
            )
        return float(value)

    def require(self, key: str, *known: Any) -> None:
        """UnsupportedError where ``config.json`` has another value than those known."""
        value = self.config.get(key, known[0])
        if value not in known:
            raise UnsupportedError(
                f"{self.path / 'config.json'}: {key} is {value!r}; convert knows "
                + ", ".join(map(repr, known))
            )

    @cached_property
    def _file_of(self) -> dict[str, Path]:
        """The safetensors file of each parameter."""
        from safetensors import SafetensorError, safe_open

        found: dict[str, Path] = {}
        for path in self._files():
            try:
                with safe_open(path, framework="numpy") as file:
                    found |= dict.fromkeys(file.keys(), path)
            except (OSError, SafetensorError) as e:
                raise FormatError(f"cannot read {path}: {e}") from e
        return found

    def _files(self) -> list[Path]:
        if (self.path / "model.safetensors.index.json").is_file():
            index = self.json("model.safetensors.index.json").get("weight_map")
            if not isinstance(index, dict):
                raise FormatError(f"{self.path}/model.safetensors.index.json has no weight_map")
            # Names only: an index must not lead out of its folder.
            return [self.path / Path(str(n)).name for n in sorted(set(index.values()))]
        if not (self.path / "model.safetensors").is_file():
            raise FormatError(
                f"{self.path} has no model.safetensors; save the model in that format first"
            )
        return [self.path / "model.safetensors"]

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each parameter, by name, in the order of names."""
        from safetensors import safe_open

        found: dict[str, tuple[int, ...]] = {}
        for path in dict.fromkeys(self._file_of.values()):
            with safe_open(path, framework="numpy") as file:
                found |= {n: tuple(file.get_slice(n).get_shape()) for n in file.keys()}  # noqa: SIM118
        return dict(sorted(found.items()))

    def tensor(self, name: str) -> npt.NDArray[Any]:
        """A parameter of floats; bfloat16 is widened to float32."""
        from safetensors import safe_open

        path = self._file_of[name]
        with safe_open(path, framework="numpy") as file:
            dtype = file.get_slice(name).get_dtype()
            if dtype not in _FLOATS:
                raise UnsupportedError(
                    f"{path}: parameter {name} is of type {dtype}; convert knows {', '.join(_FLOATS)}"
                )
            if dtype != "BF16":
                values: npt.NDArray[Any] = file.get_tensor(name)
                return values
        return _read_bfloat16(path, name).reshape(self.shapes[name])


def _read_bfloat16(path: Path, name: str) -> npt.NDArray[np.float32]:
    """Values of a file that the library has checked; numpy has no such type, so it can't read them."""
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        first, last = json.loads(file.read(header_bytes))[name]["data_offsets"]
        file.seek(8 + header_bytes + first)
        upper_halves = np.frombuffer(file.read(last - first), dtype="<u2")
    return (upper_halves.astype(np.uint32) << 16).view(np.float32)
