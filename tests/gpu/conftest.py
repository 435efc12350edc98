"""A card that is none: the fake driver of fake_cuda.cc, whose kernels run on emulated threads."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from native_build import build


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
