"""Reads how a file's weights are folded (``prism.hadamard.*``, Bonsai 2); docs/formats.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.checkpoint.reader import Reader
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.graph import HadamardRotation

_PREFIX = "prism.hadamard."
_TRANSFORM = "normalized-sylvester-walsh-hadamard"
_AXIS = "input-last-dimension"
_TABLE = "token_embd.weight"
# The matrices of linear layers: what else a file may hold is looked up or added.
_MATRIX = re.compile(r"output\.weight|blk\.[0-9]+\.[a-z_]+\.weight")
# Of a gated delta rule's output matrix: says nothing where a model has none.
_GROUPED = "gdn_v_grouped"
_KEYS = frozenset(
    {
        "axis",
        "block_size",
        _GROUPED,
        "inverse_weight_names",
        "sign_mode",
        "sign_values",
        "sign_widths",
        "tied_output",
        "transform",
        "version",
        "weight_names",
    }
)


def read_rotation(file: Reader, path: Path) -> HadamardRotation | None:
    """Return the file's Hadamard rotation, checked against its tensors; None for plain weights.

    Raises:
        FormatError: A value is missing, or contradicts another or the tensors.
        UnsupportedError: A version or a transform that this one does not know: run without it, the
            model's text would be gibberish.
    """
    if not any(key.startswith(_PREFIX) for key in file.keys()):  # noqa: SIM118 - not a dict
        return None
    return _FoldReader(file, path).read()


class _FoldReader:
    def __init__(self, file: Reader, path: Path) -> None:
        self.file = file
        self.path = path
        self.shapes = {t.name: tuple(t.shape) for t in file.tensors}

    def fail(self, key: str, problem: str) -> FormatError:
        return FormatError(f"{self.path}: {_PREFIX}{key} {problem}")

    def get(self, key: str) -> Any:
        return self.file.get(_PREFIX + key)

    def read(self) -> HadamardRotation:
        self.refuse_unknown()
        tied = self.flag("tied_output")
        grouped = self.flag(_GROUPED)
        if (self.get("version") == 2) is not tied:
            raise self.fail(
                "tied_output", f"is {tied}, but version {self.get('version')} has it {not tied}"
            )
        block = self.get("block_size")
        if (
            isinstance(block, bool)
            or not isinstance(block, int)
            or block < 2
            or block & (block - 1)
        ):
            raise self.fail("block_size", f"is {block!r}, not a power of two")
        matrices = self.names("weight_names", required=True)
        tables = self.names("inverse_weight_names", required=False)
        self.check_tables(tables, tied)
        for name in sorted(matrices):
            if not _MATRIX.fullmatch(name):
                raise self.fail("weight_names", f"has {name}, which is no matrix of a linear layer")
        if not matrices | tables:
            raise self.fail("weight_names", "is empty, so nothing is folded")
        signs = self.signs(block)
        self.check_widths(matrices | tables, block, signs)
        return HadamardRotation(block, matrices, tables, signs, tied, grouped)

    def refuse_unknown(self) -> None:
        for key in self.file.keys():  # noqa: SIM118 - not a dict
            if key.startswith(_PREFIX) and key.removeprefix(_PREFIX) not in _KEYS:
                raise UnsupportedError(
                    f"{self.path} has the key {key}, which this version does not know and without "
                    "which its text could be gibberish"
                )
        known = {"version": (1, 2), "transform": (_TRANSFORM,), "axis": (_AXIS,)}
        for key, values in known.items():
            value = self.get(key)
            if value is None:
                raise self.fail(key, "is missing")
            if isinstance(value, bool) or not isinstance(value, int | str) or value not in values:
                raise UnsupportedError(
                    f"{self.path}: {_PREFIX}{key} is {value!r}; known is "
                    + " and ".join(map(str, values))
                )

    def flag(self, key: str) -> bool:
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.fail(key, f"is {value!r}, not true or false")
        return bool(value)

    def names(self, key: str, *, required: bool) -> frozenset[str]:
        value = self.get(key)
        if value is None and not required:
            return frozenset()
        if isinstance(value, np.ndarray) and value.size == 0:
            value = []
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise self.fail(key, "is missing" if value is None else "is no list of names")
        for name in value:
            if name not in self.shapes:
                raise self.fail(key, f"has {name}, but there is no such tensor")
        if len(set(value)) != len(value):
            raise self.fail(key, "has a name twice")
        return frozenset(value)

    def check_tables(self, tables: frozenset[str], tied: bool) -> None:
        for name in sorted(tables - {_TABLE}):
            raise self.fail("inverse_weight_names", f"has {name}; only {_TABLE} can be there")
        head = "output.weight" in self.shapes
        if tied and (head or not tables):
            problem = (
                f"is True, but {'there is an output.weight' if head else f'{_TABLE} is not folded'}"
            )
            raise self.fail("tied_output", problem)
        if tables and not head and not tied:
            raise self.fail(
                "inverse_weight_names",
                f"has {_TABLE}, which is the output matrix too: that takes version 2 and tied_output",
            )

    def signs(self, block: int) -> dict[int, npt.NDArray[np.float32]]:
        mode = self.get("sign_mode")
        if not isinstance(mode, str) or mode not in ("identity", "explicit"):
            raise self.fail("sign_mode", f"is {mode!r}, neither identity nor explicit")
        widths, values = self.numbers("sign_widths"), self.numbers("sign_values")
        if mode == "identity":
            if widths.size or values.size:
                raise self.fail("sign_mode", "is identity, but there are signs")
            return {}
        if (widths < 1).any() or (widths % block != 0).any() or len(set(widths)) != len(widths):
            raise self.fail(
                "sign_widths", f"is {widths[:8].tolist()}, not different multiples of {block}"
            )
        total = sum(int(w) for w in widths)
        if total != values.size:
            raise self.fail("sign_values", f"has {values.size} signs, but the widths need {total}")
        if not np.isin(values, (-1, 1)).all():
            raise self.fail("sign_values", "has a value other than -1 and 1")
        parts = np.split(values.astype(np.float32), np.cumsum(widths, dtype=np.int64)[:-1])
        return {int(w): part for w, part in zip(widths, parts, strict=True)}

    def numbers(self, key: str) -> npt.NDArray[Any]:
        value = self.get(key)
        if value is None or (isinstance(value, list) and not value):
            return np.zeros(0, np.int64)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
            raise self.fail(key, "is no list of numbers")
        if not np.isfinite(value).all() or (value != np.round(value)).any():
            raise self.fail(key, "has a number that is not whole")
        return value.astype(np.int64)

    def check_widths(
        self, names: frozenset[str], block: int, signs: dict[int, npt.NDArray[np.float32]]
    ) -> None:
        for name in sorted(names):
            shape = self.shapes[name]
            if len(shape) != 2 or shape[1] % block != 0:
                raise self.fail("block_size", f"is {block}, but {name} has shape {shape}")
            if signs and shape[1] not in signs:
                raise self.fail("sign_widths", f"has no {shape[1]}, the width of {name}")
