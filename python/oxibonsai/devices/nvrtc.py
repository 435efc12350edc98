"""Where NVIDIA's run-time compiler is, for a build without PTX."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

# Of the packages nvidia-cuda-nvrtc (from CUDA 13 on) and nvidia-cuda-nvrtc-cu12.
_FOLDERS = ("cu13/lib", "cuda_nvrtc/lib")
_COMPILER, _BUILTINS = "libnvrtc.so.*", "libnvrtc-builtins.so.*"


def nvrtc_libraries() -> list[str]:
    """Return the files to open in this order, the compiler last.

    It is that of a package, else of a CUDA toolkit, else what the system finds under its name. The
    compiler looks for its builtins by name only, so they are opened before it.
    ``OXIBONSAI_LIBNVRTC`` names another compiler.
    """
    if named := os.environ.get("OXIBONSAI_LIBNVRTC"):
        return [named]
    for folder in (*_package_folders(), *_toolkit_folders()):
        builtins, compilers = sorted(folder.glob(_BUILTINS)), sorted(folder.glob(_COMPILER))
        if compilers:
            return [str(path) for path in (*builtins, compilers[-1])]
    return ["libnvrtc.so"]


def _package_folders() -> Iterator[Path]:
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for inner in _FOLDERS:
            yield Path(folder, inner)


def _toolkit_folders() -> Iterator[Path]:
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    if nvcc := shutil.which("nvcc"):
        roots.append(str(Path(nvcc).resolve().parents[1]))
    roots.append("/usr/local/cuda")
    for root in filter(None, roots):
        yield Path(root, "lib64")
