"""A card that is none: the fake driver of fake_cuda.cc, whose kernels run on emulated threads.

Besides, OpenCL's device, where there is one, and the names of what any device launches.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from native_build import build
from oxibonsai import UnsupportedError, _core
from oxibonsai.devices import Device, open_device


class FakeCard:
    """The driver's functions for tests; what they do is in fake_cuda.cc."""

    def __init__(self, library: Path) -> None:
        self.library = library
        self._calls = ctypes.CDLL(str(library))
        for name in ("fake_used", "fake_fetched"):
            getattr(self._calls, name).restype = ctypes.c_uint64
        self._calls.fake_has_context.restype = ctypes.c_bool
        for name in ("fake_kernels", "fake_kernels_run"):
            getattr(self._calls, name).restype = ctypes.c_char_p

    def __getattr__(self, name: str) -> object:
        return getattr(self._calls, f"fake_{name}")


@pytest.fixture(scope="session")
def fake_library() -> Path:
    return build("native", target="fake_cuda") / "tests" / "native" / "libfake_cuda.so"


@pytest.fixture
def card(fake_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCard]:
    """A machine with one emulated card, and a run-time compiler for it."""
    monkeypatch.setenv("OXIBONSAI_LIBCUDA", str(fake_library))
    monkeypatch.setenv("OXIBONSAI_LIBNVRTC", str(fake_library))
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "cache"))
    card = FakeCard(fake_library)
    card.reset()
    yield card
    gc.collect()
    card.reset()


@pytest.fixture(scope="session")
def opencl() -> Device:
    """The first OpenCL device of the machine."""
    try:
        return open_device("opencl:0", 2)
    except UnsupportedError as e:
        # What a driver says of itself; one that does not keep it, or a build without SPIR-V, is a failure,
        # and so is the lack of a driver that the environment names.
        missing = ("no OpenCL driver", "cannot be opened", " lacks ")
        if "OCL_ICD_VENDORS" not in os.environ and any(m in str(e) for m in missing):
            pytest.skip(str(e))
        raise


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Callable[[], set[str]]:
    """The names of all kernels that GPUs have launched in the test so far."""
    compiled: list[_core.GpuExecutable] = []
    compile_graph = _core.GpuDevice.compile

    def compile_and_keep(*arguments: Any, **options: Any) -> _core.GpuExecutable:
        executable = compile_graph(*arguments, **options)
        executable.keep_kernel_names()
        compiled.append(executable)
        return executable

    monkeypatch.setattr(_core.GpuDevice, "compile", compile_and_keep)
    return lambda: {name for executable in compiled for name in executable.kernel_names()}
