"""Builds the native code for tests, each way once; processes that test side by side take turns."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"

needs_compiler = pytest.mark.skipif(
    shutil.which("cmake") is None or shutil.which("ninja") is None or shutil.which("g++") is None,
    reason="native tests need cmake, ninja and g++",
)


@contextmanager
def builds_locked() -> Iterator[None]:
    """Nobody builds meanwhile."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(name: str, *options: str, target: str = "all") -> Path:
    folder = BUILD / name
    command = ["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", "-DOXIBONSAI_PYTHON=OFF"]
    command.append(f"-DPython_EXECUTABLE={sys.executable}")
    if shutil.which("ccache"):
        command.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    with builds_locked():
        subprocess.run(
            [*command, "-DOXIBONSAI_TESTS=ON", *options], check=True, capture_output=True
        )
        command = ["cmake", "--build", str(folder), "--target", target]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
    return folder


def build_wasm(target: str = "all") -> Path:
    """Build for WebAssembly with Emscripten; skip where that or node is missing."""
    if shutil.which("em++") is None or shutil.which("node") is None:
        pytest.skip("needs emscripten and node (Debian: emscripten nodejs)")
    toolchain = ROOT / "cmake" / "wasm32-emscripten.cmake"
    return build("wasm", f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", target=target)


def wine_environment() -> tuple[str, dict[str, str]]:
    """Return wine and the variables that it is started with; skip where it is missing.

    It keeps its files below the build, and needs no display.
    """
    wine = shutil.which("wine64", path=f"{os.environ['PATH']}{os.pathsep}/usr/lib/wine")
    if wine is None:
        pytest.skip("needs wine (Debian: wine64)")
    BUILD.mkdir(exist_ok=True)
    environment = {"WINEPREFIX": str(BUILD / "wine"), "WINEDEBUG": "-all", "DISPLAY": ""}
    return wine, environment


def build_windows(*options: str, target: str = "all") -> Path:
    """Build for Windows with Zig; skip where that is missing."""
    if shutil.which("zig") is None and shutil.which("python-zig") is None:
        pytest.skip("needs zig (PyPI: ziglang)")
    toolchain = ROOT / "cmake" / "x86_64-windows.cmake"
    ours = (f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", "-DOXIBONSAI_FUZZERS=ON")
    return build("windows", *ours, *options, target=target)
