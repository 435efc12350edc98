"""Vision towers of llama.cpp's mtmd, as something to compare with: the same pixels in, rows out.

``build(llama_cpp, libraries, folder)`` compiles mtmd's towers with a small C interface (mtmd_tower.cpp);
``llama_cpp`` holds llama.cpp's sources, ``libraries`` the libggml*.so made of them.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
_FLAGS = ["-O2", "-std=c++17", "-fPIC", "-w"]
_NAME = "libmtmd_tower.so"


def build(llama_cpp: Path, libraries: Path, folder: Path) -> Path:
    """Compiles what is not compiled yet; returns the library."""
    tools = llama_cpp / "tools/mtmd"
    sources = [
        Path(__file__).with_name("mtmd_tower.cpp"),
        tools / "clip.cpp",
        *sorted((tools / "models").glob("*.cpp")),
    ]
    includes = [
        f"-I{p}" for p in (tools, llama_cpp / "include", llama_cpp / "ggml/include", llama_cpp)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    objects = [folder / f"{source.stem}.o" for source in sources]
    for source, compiled in zip(sources, objects, strict=True):
        if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
            arguments = [*_FLAGS, *includes, "-c", str(source), "-o", str(compiled)]
            subprocess.run(["c++", *arguments], check=True)
    library = folder / _NAME
    linked = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lggml", "-lggml-base", "-lggml-cpu"]
    subprocess.run(["c++", "-shared", "-o", str(library), *map(str, objects), *linked], check=True)
    return library


class MtmdTower:
    """A tower of an mmproj file.

    Args:
        library: As built.
        path: The mmproj file.
        threads: Of the processor.
    """

    def __init__(self, library: Path, path: Path, threads: int) -> None:
        self._library: Any = ctypes.CDLL(str(library))
        self._library.mtmd_tower_open.restype = ctypes.c_void_p
        self._library.mtmd_tower_open.argtypes = [ctypes.c_char_p]
        self._library.mtmd_tower_width.argtypes = [ctypes.c_void_p]
        self._library.mtmd_tower_encode.restype = ctypes.c_long
        floats = ctypes.POINTER(ctypes.c_float)
        self._library.mtmd_tower_encode.argtypes = [
            ctypes.c_void_p, ctypes.c_int, floats, ctypes.c_int, ctypes.c_int, floats, ctypes.c_long
        ]  # fmt: skip
        self._library.mtmd_tower_close.argtypes = [ctypes.c_void_p]
        self._threads = threads
        self._tower = self._library.mtmd_tower_open(str(path).encode())
        if not self._tower:
            raise RuntimeError(f"mtmd can't open {path}")
        self.width: int = self._library.mtmd_tower_width(self._tower)

    def encode(self, pixels: Floats, most_rows: int = 1 << 16) -> Floats:
        """Rows of one tile.

        Args:
            pixels: float32 [3, height, width], normalised.
            most_rows: Room for the result.

        Returns:
            float32 [rows, width].
        """
        tile = np.ascontiguousarray(pixels.transpose(1, 2, 0), dtype=np.float32)
        rows = np.empty((most_rows, self.width), np.float32)
        pointer = ctypes.POINTER(ctypes.c_float)
        count = self._library.mtmd_tower_encode(
            self._tower, self._threads, tile.ctypes.data_as(pointer), tile.shape[1], tile.shape[0],
            rows.ctypes.data_as(pointer), rows.size,
        )  # fmt: skip
        if count < 0 or count > rows.size:
            raise RuntimeError("mtmd can't encode the picture")
        return rows[: count // self.width].copy()

    def close(self) -> None:
        """Gives its memory back."""
        self._library.mtmd_tower_close(self._tower)
