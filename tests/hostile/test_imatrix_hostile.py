"""Damaged importance matrices, in both forms: an error, or whole entries of finite numbers."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import gguf_files
import numpy as np
import pytest
from gguf_files import entry, gguf, string, tensor, u32, u64
from mutations import LittleMemory, edits, flips, ids, prefixes, refused

from oxibonsai.errors import FormatError
from oxibonsai.imatrix import Entry, Imatrix, read_imatrix, write_imatrix

NAMES = ("blk.0.attn_q.weight", "blk.0.ffn_down.weight", "output.weight")
COLS = 8


def legacy() -> bytes:
    """The older form, with its tail."""
    data = struct.pack("<i", len(NAMES))
    for name in NAMES:
        data += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", 4, COLS)
        data += np.arange(COLS, dtype=np.float32).tobytes()
    return data + struct.pack("<ii", 3, 4) + b"wiki"


def of_gguf(sums: float = 1.0, counts: float = 2.0) -> bytes:
    """The newer form, put together by hand."""
    parts = []
    for i, name in enumerate(NAMES):
        parts.append(tensor(f"{name}.in_sum2", (COLS,), offset=64 * i))
        parts.append(tensor(f"{name}.counts", (1,), offset=64 * i + 32))
    data = np.full(COLS, sums, np.float32).tobytes() + struct.pack("<f", counts) + bytes(28)
    return gguf(keys(), tuple(parts), (data * len(NAMES))[:-28])


def keys(**changes: bytes) -> tuple[bytes, ...]:
    """The metadata, with entries replaced or (empty) left out."""
    own = {
        "general.type": entry("general.type", 8, string("imatrix")),
        "imatrix.datasets": entry("imatrix.datasets", 9, u32(8) + u64(1) + string("wiki.txt")),
        "imatrix.chunk_count": entry("imatrix.chunk_count", 4, u32(3)),
        "imatrix.chunk_size": entry("imatrix.chunk_size", 4, u32(512)),
    }
    return tuple(filter(None, {**own, **changes}.values()))


VALID = {"legacy": legacy(), "gguf": of_gguf()}


def _claims() -> list[tuple[str, bytes]]:
    """Counts and lengths of the older form that lie, one at a time."""
    data, found = legacy(), []
    places = {"entries": 0, "length of a name": 4, "runs": 8 + len(NAMES[0])}
    places["values"] = places["runs"] + 4
    wrong = (-(2**31), -(2**16), -2, -1, 2**16, 2**20, 2**24, 2**30, 2**31 - 1)
    for what, at in places.items():
        for value in wrong if what != "runs" else wrong[:4]:
            changed = data[:at] + struct.pack("<i", value) + data[at + 4 :]
            found.append((f"{what}: {value}", changed))
    at = places["values"] + 4
    for value in (np.nan, np.inf, -np.inf, -1.0, -1e-30):
        for index in (0, COLS - 1):
            place = at + 4 * index
            changed = data[:place] + struct.pack("<f", value) + data[place + 4 :]
            found.append((f"{value} at {index}", changed))
    for tail in (b"\0", struct.pack("<i", 3), struct.pack("<ii", 3, 5) + b"wiki"):
        found.append((f"a tail of {len(tail)} bytes", data[:-12] + tail))
    return found


def _meanings() -> list[tuple[str, bytes]]:
    """GGUF files that are well made and no importance matrix."""
    sizes = (tensor("x.in_sum2", (COLS,)), tensor("x.counts", (1,), offset=32))
    data = bytes(64)
    found = [
        (f"type {kind}", gguf(keys(**{"general.type": value}), sizes, data))
        for kind, value in (
            ("model", entry("general.type", 8, string("model"))),
            ("missing", b""),
            ("a number", entry("general.type", 4, u32(1))),
        )
    ]
    for length in (2, 3, 7, COLS + 1):
        counts = (sizes[0], tensor("x.counts", (length,), offset=32))
        found.append((f"{length} counts", gguf(keys(), counts, bytes(32 + 64))))
    for name in ("x.in_sum2", "x.counts", "x", ".in_sum2", "x.in_sum3"):
        found.append((f"only {name}", gguf(keys(), (tensor(name, (COLS,)),), bytes(32))))
    found.append(("sums too large for their counts", of_gguf(counts=1e-40)))
    for value in (np.nan, np.inf, -np.inf, -1.0):
        found.append((f"sums of {value}", of_gguf(sums=value)))
        found.append((f"counts of {value}", of_gguf(counts=value)))
    for kind, width in ((1, 16), (24, 32), (26, 8), (28, 4), (30, 16)):
        other = (tensor("x.in_sum2", (width,), kind), tensor("x.counts", (1,), offset=32))
        found.append((f"sums of type {kind}", gguf(keys(), other, data)))
    return found


MALFORMED = [*_claims(), *_meanings(), *((f"GGUF: {n}", d) for n, d in gguf_files.malformed())]


def opened(path: Path, files: Iterable[bytes]) -> tuple[int, int]:
    """How many files there are, and how many of them open."""
    tried = count = 0
    for data in files:
        tried += 1
        path.write_bytes(data)
        if refused(lambda: read_imatrix(path), repr(data)):
            continue
        count += 1
        found = read_imatrix(path)
        assert found.entries
        for name in found.entries:
            values = found.importance(name)
            assert np.isfinite(values).all()
            assert (values >= 0).all()
    return tried, count


def test_there_are_enough_of_them() -> None:
    assert len(MALFORMED) >= 90


@pytest.mark.timeout(60)
@pytest.mark.parametrize("data", ids(MALFORMED))
def test_malformed_files_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.imatrix"
    path.write_bytes(data)
    with LittleMemory(), pytest.raises(FormatError) as error:
        read_imatrix(path)
    assert "m.imatrix" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("form", VALID)
def test_the_valid_file_opens(form: str, tmp_path: Path) -> None:
    assert opened(tmp_path / "m", [VALID[form]]) == (1, 1)


def test_no_prefix_opens_but_one_that_ends_after_the_entries(tmp_path: Path) -> None:
    assert opened(tmp_path / "m", prefixes(VALID["legacy"], len(VALID["legacy"])))[1] == 1
    assert opened(tmp_path / "m", prefixes(VALID["gguf"], len(VALID["gguf"])))[1] == 0


@pytest.mark.parametrize("form", VALID)
def test_damage_gives_an_error_or_whole_entries(form: str, tmp_path: Path) -> None:
    data = VALID[form]
    with LittleMemory():
        assert opened(tmp_path / "m", flips(data, len(data)))[0] >= 4 * len(data)
        opened(tmp_path / "m", edits(data, 2000, seed=3))


def test_what_is_written_is_one_of_the_forms(tmp_path: Path) -> None:
    sums = np.ones((1, COLS), np.float32)
    matrix = Imatrix({NAMES[0]: Entry(sums, np.ones(1, np.float32))})
    write_imatrix(matrix, tmp_path / "m.gguf")
    assert opened(tmp_path / "m", [(tmp_path / "m.gguf").read_bytes()]) == (1, 1)
