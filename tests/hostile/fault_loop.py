"""Runs one operation again and again, letting its first, second, third ... call of a kind fail.

Usage, with fail_nth preloaded: fault_loop.py SHIM OPERATION FOLDER URL. Prints, for each kind, how
many calls were made to fail, how many of these ended in an error, and every broken promise.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import packed_folders

import adapters
import oxibonsai
import tiny_model
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.convert.language_model import convert
from oxibonsai.convert.lora import convert_lora
from oxibonsai.errors import OxiBonsaiError
from oxibonsai.export import save_model
from oxibonsai.imatrix import Entry, Imatrix, write_imatrix
from oxibonsai.models import read_config
from oxibonsai.quantize import quantize
from oxibonsai.sources.download import Patience, download
from oxibonsai.split import merge, split

KINDS = {"malloc": 1, "read": 2, "mmap": 3, "write": 4, "fsync": 5, "rename": 6}
_RESULT = "(result)"  # what an operation returns, beside its files
# What a download may leave: the part that has come, and how to go on.
LEFT_BY_A_DOWNLOAD = (".oxipart", ".oxiresume")


@dataclass(frozen=True)
class Places:
    """Where an operation finds things, and where it writes."""

    source: Path
    out: Path
    url: str


def _load(p: Places, **options: Any) -> bytes:
    engine = oxibonsai.load(p.source / "model.gguf", threads=1, ctx_size=64, **options)
    return engine.logits([1, 2, 3]).tobytes()


def _load_packed(p: Places) -> bytes:
    os.environ["OXIBONSAI_CACHE"] = str(p.out)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that they can't be kept
        return _load(p, packed_cache=True)


def _load_lora(p: Places) -> bytes:
    return _load(p, lora=p.source / "lora")


def _convert_lora(p: Places) -> None:
    config = read_config(Checkpoint(p.source / "model.gguf"))
    convert_lora(p.source / "lora", p.out / "m.gguf", config)


def _quantize(p: Places) -> None:
    quantize(GgufModel.open(p.source / "model.gguf"), p.out / "m.gguf", "q8_0")


def _write_imatrix(p: Places) -> None:
    sums = np.ones((1, 8192), np.float32)
    entries = {f"blk.{i}.attn_q.weight": Entry(sums, np.ones(1, np.float32)) for i in range(4)}
    write_imatrix(Imatrix(entries, ("text",)), p.out / "m.gguf")


OPERATIONS: dict[str, Callable[[Places], object]] = {
    "load": _load,
    "load-packed": _load_packed,
    "load-lora": _load_lora,
    "convert-lora": _convert_lora,
    "convert": lambda p: convert(p.source / "mlx", p.out / "m.gguf"),
    "convert-awq": lambda p: convert(p.source / "awq", p.out / "m.gguf", dtype="f32"),
    "quantize": _quantize,
    "imatrix": _write_imatrix,
    "split": lambda p: split(p.source / "model.gguf", p.out / "m", max_tensors=9),
    "merge": lambda p: merge([p.source / "model.gguf"], p.out / "m.gguf"),
    "save-gguf": lambda p: save_model(Checkpoint(p.source / "model.gguf"), p.out, format="gguf"),
    "save": lambda p: save_model(Checkpoint(p.source / "model.gguf"), p.out),
    "pull": lambda p: download(
        p.url, p.out / "m.gguf", patience=Patience(tries=2, delay=0.0, timeout=20.0)
    ),
}


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()
    }


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


class Loop:
    """One operation, whose right result is known from a run without failures."""

    def __init__(self, shim: ctypes.CDLL, operation: str, places: Places) -> None:
        self.shim, self.name, self.places = shim, operation, places
        self.problems: list[str] = []
        for _ in range(2):  # the second finds everything imported
            right, error = self.attempt(0, 0)[1:]
            if error is not None:
                raise error
        self.right = right
        gc.freeze()  # what is imported stays, and each attempt looks for garbage of its own only
        self.files = _open_files()

    def attempt(self, kind: int, n: int) -> tuple[bool, dict[str, bytes], BaseException | None]:
        """Whether the n-th call was made to fail, what was written, and the error."""
        shutil.rmtree(self.places.out, ignore_errors=True)
        self.places.out.mkdir()
        error: BaseException | None = None
        result: object = None
        self.shim.fail_nth_arm(kind, n)
        try:
            result = OPERATIONS[self.name](self.places)
        except Exception as e:
            error = e
            chained: BaseException | None = e
            while chained is not None:  # their frames hold the files that the operation has open
                chained.__traceback__ = None
                chained = chained.__cause__ or chained.__context__
        finally:
            fired = self.shim.fail_nth_disarm() < 0
        gc.collect()
        left = _contents(self.places.out)
        if isinstance(result, bytes):
            left[_RESULT] = result
        return fired, left, error

    def judge(self, what: str, left: dict[str, bytes], error: BaseException | None) -> None:
        """Notes what should not be so after a failure."""
        if error is None and not self._is_right(left):
            self.problems.append(
                f"{what}: no error, but {sorted(left)} differ from {sorted(self.right)}"
            )
        if error is not None:
            known = isinstance(error, OxiBonsaiError | OSError | MemoryError)
            if (
                not known
                or "\n" in str(error)
                or not (str(error) or isinstance(error, MemoryError))
            ):
                self.problems.append(f"{what}: {type(error).__name__}: {error}")
            wrong = [f for f in left if not self._may_stay(f, left[f])]
            if wrong:
                self.problems.append(f"{what}: leaves {wrong} after {error!r}")
        if _open_files() > self.files:
            self.problems.append(f"{what}: leaves {_open_files() - self.files} files open")
            self.files = _open_files()

    def _is_right(self, left: dict[str, bytes]) -> bool:
        if self.name == "load-packed":  # they may be kept or not
            return left[_RESULT] == self.right[_RESULT] and self._are_whole(left)
        return left == self.right

    def _are_whole(self, left: dict[str, bytes]) -> bool:
        return all(self.right.get(f) == data for f, data in left.items())

    def _may_stay(self, file: str, data: bytes) -> bool:
        if self.name == "pull" and file.endswith(LEFT_BY_A_DOWNLOAD):
            return True
        # Packed weights are kept as soon as there are any; a download is verified before its folder's
        # entry is made to last.
        return self.name in ("load-packed", "pull") and self.right.get(file) == data

    def run(self) -> dict[str, tuple[int, int]]:
        """Failures and errors by kind."""
        found = {}
        for name, kind in KINDS.items():
            n, errors = 1, 0
            while True:
                fired, left, error = self.attempt(kind, n)
                if not fired:
                    break
                errors += error is not None
                self.judge(f"{self.name}, {name} {n}", left, error)
                n += 1
            if error is not None or not self._is_right(left):
                self.problems.append(f"{self.name} after {name}: {error!r}")
            found[name] = (n - 1, errors)
        return found


def main(shim: str, operation: str, folder: str, url: str) -> None:
    places = Places(Path(folder) / "source", Path(folder) / "out", url)
    places.source.mkdir(parents=True)
    tiny_model.write(places.source / "model.gguf")
    adapters.write_peft(places.source / "lora")
    for kind in ("mlx", "awq"):
        packed_folders.good(kind).write(places.source / kind)
    library = ctypes.CDLL(shim)
    library.fail_nth_disarm.restype = ctypes.c_long
    library.fail_nth_arm.argtypes = [ctypes.c_int, ctypes.c_long]
    loop = Loop(library, operation, places)
    found = loop.run()
    print(json.dumps({"found": found, "problems": loop.problems}))


if __name__ == "__main__":
    main(*sys.argv[1:])
