"""Where NVIDIA's run-time compiler is, for a build that was made without nvcc."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

# Of the packages nvidia-cuda-nvrtc (from CUDA 13 on) and nvidia-cuda-nvrtc-cu12.
_FOLDERS = ("cu13/lib", "cuda_nvrtc/lib")
_COMPILER, _BUILTINS = "libnvrtc.so.*", "libnvrtc-builtins.so.*"


def nvrtc_libraries() -> list[str]:
    """Files to open in this order, the compiler last; the system's name where no package has one.

    The compiler looks for its builtins by name only, so they are opened before it.
    ``OXIBONSAI_LIBNVRTC`` names another compiler.
    """
    if named := os.environ.get("OXIBONSAI_LIBNVRTC"):
        return [named]
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for inner in _FOLDERS:
            builtins = sorted(Path(folder, inner).glob(_BUILTINS))
            compilers = sorted(Path(folder, inner).glob(_COMPILER))
            if compilers:
                return [str(path) for path in (*builtins, compilers[-1])]
    return ["libnvrtc.so"]
