"""Damage done to good files by programs with fixed seeds, and what any reader owes to it."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from oxibonsai.errors import OxiBonsaiError

_DATA_STEP = 4096
_MOST_KIB = 50 * 1024

# What stands in a document where something else should.
JUNK: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 7, 2**31, 2**63, 2**64, 2**200, -(2**63), 1.5, 1e300),
    *("", "x", "../x", "\0", "é" * 100, [], [[]], [0], [-1, 1], ["x"], {}, {"x": 1}, [None] * 20),
)


def prefixes(data: bytes, header: int) -> Iterator[bytes]:
    """Every shorter file: byte by byte in the header, page by page in the data."""
    lengths = {*range(header), *range(header, len(data), _DATA_STEP), len(data) - 1}
    for length in sorted(lengths):
        yield data[:length]


def flips(data: bytes, header: int) -> Iterator[bytes]:
    """Each byte of the header replaced, alone: all zero, all one, one bit low, one bit high."""
    for at in range(header):
        for value in sorted({0x00, 0x7F, 0xFF, data[at] ^ 0x01, data[at] ^ 0x80} - {data[at]}):
            yield data[:at] + bytes([value]) + data[at + 1 :]


def edits(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Random damage: bytes changed, cut out, doubled or put in, a few at a time."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        damaged = bytearray(data)
        for _ in range(int(random.integers(1, 5))):
            at, size = int(random.integers(len(damaged) + 1)), int(random.integers(1, 17))
            kind = int(random.integers(5))
            if kind == 0:
                damaged[at : at + 1] = random.bytes(1)
            elif kind == 1:
                del damaged[at : at + size]
            elif kind == 2:
                damaged[at:at] = damaged[at : at + size]
            elif kind == 3:
                damaged[at : at + size] = bytes([int(random.choice([0, 255, 127]))]) * size
            else:
                damaged[at:at] = random.bytes(size)
        yield bytes(damaged)


def refused(call: Callable[[], object], what: str = "") -> bool:
    """True where a call gives one clear error; any other exception is passed on, and fails a test."""
    problem: str | None = None
    try:
        call()
    except OxiBonsaiError as e:
        problem = str(e)
    assert problem != "", what
    assert "\n" not in (problem or ""), (what, problem)
    return problem is not None


class LittleMemory:
    """Checks that what runs within takes no more than 50 MB."""

    def __enter__(self) -> None:
        self._before = self._peak()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            assert self._peak() - self._before < _MOST_KIB

    @staticmethod
    def _peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def ids(cases: list[tuple[str, Any]]) -> list[Any]:
    """Cases as pytest wants them, by name."""
    assert len({name for name, _ in cases}) == len(cases)
    return [pytest.param(value, id=name) for name, value in cases]
