"""Importance matrices as files: both forms of llama.cpp, and damaged ones."""

from __future__ import annotations

import resource
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oxibonsai.errors import FormatError, RequestError
from oxibonsai.imatrix import Entry, Imatrix, read_imatrix, write_imatrix

RANDOM = np.random.default_rng(5)
SUMS = RANDOM.uniform(0, 9, 96).astype(np.float32)
NAME = "blk.0.attn_q.weight"


def write_gguf(path: Path, tensors: dict[str, Any], **keys: Any) -> Path:
    """By the gguf package, as llama-imatrix writes them."""
    writer = gguf.GGUFWriter(path, "", use_temp_file=False)
    writer.add_type(keys.get("kind", "imatrix"))
    writer.add_array("imatrix.datasets", keys.get("datasets", ["wiki.txt"]))
    writer.add_uint32("imatrix.chunk_count", 3)
    writer.add_uint32("imatrix.chunk_size", 512)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def pair(sums: Any = SUMS, counts: Any = None) -> dict[str, Any]:
    counts = np.array([1536], np.float32) if counts is None else counts
    return {f"{NAME}.in_sum2": sums, f"{NAME}.counts": counts}


def legacy(*entries: tuple[bytes, int, Any], tail: bytes = b"", number: int | None = None) -> bytes:
    data = struct.pack("<i", len(entries) if number is None else number)
    for name, runs, values in entries:
        floats = np.asarray(values, np.float32)
        data += struct.pack("<i", len(name)) + name + struct.pack("<ii", runs, floats.size)
        data += floats.tobytes()
    return data + tail


VALID = legacy(
    (NAME.encode(), 3, SUMS), (b"output.weight", 0, [2.0]), tail=struct.pack("<ii", 3, 4) + b"wiki"
)


def read(path: Path, data: bytes) -> Imatrix:
    path.write_bytes(data)
    return read_imatrix(path)


def test_a_gguf_file_of_another_writer_is_read(tmp_path: Path) -> None:
    experts = {
        "e.weight.in_sum2": np.array([[2, 4], [5, 6], [9, 3]], np.float32),
        "e.weight.counts": np.array([[2], [0], [3]], np.float32),
    }
    found = read_imatrix(write_gguf(tmp_path / "m.gguf", pair() | experts))
    assert (found.datasets, found.chunk_count, found.chunk_size) == (("wiki.txt",), 3, 512)
    assert np.array_equal(found.importance(NAME), SUMS / np.float32(1536))
    assert found.importance("e.weight").tolist() == [1, 2, 1, 1, 3, 1]  # the second met nothing
    assert found.importance("output.weight") is None


def test_another_reader_finds_what_was_written(tmp_path: Path) -> None:
    entries = {NAME: Entry(SUMS[None, :], np.array([7], np.float32))}
    entries["e.weight"] = Entry(SUMS.reshape(3, 32), np.array([1, 2, 3], np.float32))
    write_imatrix(Imatrix(entries, ("a.txt", "b.txt"), 2, 512), tmp_path / "m.gguf")
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    assert reader.get_field("general.type").contents() == "imatrix"
    assert reader.get_field("imatrix.datasets").contents() == ["a.txt", "b.txt"]
    assert reader.get_field("imatrix.chunk_count").contents() == 2
    assert reader.get_field("imatrix.chunk_size").contents() == 512
    tensors = {t.name: t.data for t in reader.tensors}
    assert list(tensors) == [f"{n}.{s}" for n in entries for s in ("in_sum2", "counts")]
    assert np.array_equal(tensors["e.weight.in_sum2"], SUMS.reshape(3, 32))
    assert tensors["e.weight.counts"].shape == (3, 1)
    again = read_imatrix(tmp_path / "m.gguf")
    for name, entry in entries.items():
        assert np.array_equal(again.entries[name].squares, entry.squares)
        assert np.array_equal(again.entries[name].counts, entry.counts)


def test_the_older_form_is_read(tmp_path: Path) -> None:
    found = read(tmp_path / "m.dat", VALID)
    assert (found.datasets, found.chunk_count, found.chunk_size) == (("wiki",), 3, 0)
    assert np.array_equal(found.importance(NAME), SUMS / np.float32(3))
    assert found.importance("output.weight").tolist() == [2.0]
    assert read(tmp_path / "m.dat", legacy((b"a", 1, [1.0]))).datasets == ()


def test_no_entries_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="without entries"):
        write_imatrix(Imatrix({}), tmp_path / "m.gguf")
    assert list(tmp_path.iterdir()) == []


NEGATIVE = np.where(np.arange(96) == 7, -1, SUMS).astype(np.float32)


@pytest.mark.parametrize(
    ("tensors", "keys", "sentence"),
    [
        (pair(), {"kind": "model"}, "general.type is 'model'"),
        ({f"{NAME}.in_sum2": SUMS}, {}, "but no blk.0.attn_q.weight.counts"),
        ({f"{NAME}.counts": SUMS}, {}, "but no blk.0.attn_q.weight.in_sum2"),
        ({"other": SUMS}, {}, "no sums of inputs"),
        (pair(counts=np.ones(2, np.float32)), {}, "needs 1 counts"),
        (pair(SUMS.reshape(3, 32)), {}, "needs 3 counts"),
        (pair(SUMS.astype(np.float16)), {}, "type F16"),
        (pair(counts=np.array([3], np.int32)), {}, "type I32"),
        (pair(NEGATIVE), {}, "-1.0 at index 7"),
        (pair(counts=np.array([np.nan], np.float32)), {}, "nan at index 0"),
        (pair(), {"datasets": [1, 2]}, "no list of texts"),
    ],
)
def test_gguf_files_of_another_meaning_are_refused(
    tensors: dict[str, Any], keys: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(FormatError, match=sentence):
        read_imatrix(write_gguf(tmp_path / "m.gguf", tensors, **keys))


def entry_claim(length: int = 1, values: int = 1) -> bytes:
    return struct.pack("<ii", 1, length) + b"a" + struct.pack("<ii", 1, values) + bytes(8)


HOSTILE = {
    "empty": b"",
    "text": b"<!DOCTYPE html><html>nothing</html>" * 9,
    "no entries": struct.pack("<i", 0) + bytes(64),
    **{f"{n} entries": legacy((b"a", 1, [1.0]), number=n) for n in (-1, 2, 2**20, 2**31 - 1)},
    **{f"name of {n}": entry_claim(length=n) for n in (-(2**31), -1, 0, 100, 2**31 - 1)},
    **{f"{n} values": entry_claim(values=n) for n in (-(2**31), -1, 0, 3, 2**31 - 1)},
    "no utf-8": legacy((b"\xff\xfe", 1, [1.0])),
    "twice": legacy((b"a", 1, [1.0]), (b"a", 1, [1.0])),
    "negative runs": legacy((b"a", -1, [1.0])),
    "negative": legacy((b"a", 1, [1.0, -2.0])),
    "infinite": legacy((b"a", 1, [np.inf])),
    "more after the end": VALID + b"x",
    "long text name": legacy((b"a", 1, [1.0]), tail=struct.pack("<ii", 1, 2**31 - 1)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name: str, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FormatError) as error:
        read(tmp_path / "m.dat", HOSTILE[name])
    assert "m.dat" in str(error.value)
    assert "\n" not in str(error.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024  # KiB


def test_only_whole_entries_are_files(tmp_path: Path) -> None:
    """A file may end after its entries, as the oldest do, and nowhere else."""
    ends = [n for n in range(len(VALID)) if not _refused(tmp_path / "m.dat", VALID[:n])]
    assert ends == [len(VALID) - 12]


def _refused(path: Path, data: bytes) -> bool:
    try:
        read(path, data)
    except FormatError:
        return True
    return False


@given(at=st.integers(0, len(VALID) - 1), value=st.integers(0, 255))
def test_a_flipped_byte_gives_an_error_or_whole_entries(
    at: int, value: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("flip") / "m.dat"
    with suppress(FormatError):
        found = read(path, VALID[:at] + bytes([value]) + VALID[at + 1 :])
        assert all(np.isfinite(found.importance(n)).all() for n in found.entries)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot read the importance matrix"):
        read_imatrix(tmp_path / "m.gguf")
