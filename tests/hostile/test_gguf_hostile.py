"""Malformed files cost one clear error: never a crash, a hang or much memory."""

from __future__ import annotations

import resource
from collections.abc import Iterable
from pathlib import Path

import gguf_files
import pytest
from mutations import edits, flips, prefixes, refused

import tiny_model
from oxibonsai import _core
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.errors import FormatError
from oxibonsai.split import split

MALFORMED = gguf_files.malformed()
VALID = gguf_files.gguf(
    entries=(
        gguf_files.entry("general.architecture", 8, gguf_files.string("llama")),
        gguf_files.entry("llama.block_count", 4, gguf_files.u32(2)),
        gguf_files.entry("numbers", 9, gguf_files.u32(6) + gguf_files.u64(3) + bytes(12)),
        gguf_files.entry(
            "texts", 9, gguf_files.u32(8) + gguf_files.u64(2) + gguf_files.string("a") * 2
        ),
    ),
    tensors=(
        gguf_files.tensor("a", (64, 2)),
        gguf_files.tensor("b", (128, 3), kind=41, offset=512),
    ),
    data=bytes(512 + 54),
)


def open_bytes(tmp_path: Path, data: bytes) -> _core.GgufFile:
    path = tmp_path / "file.gguf"
    path.write_bytes(data)
    return _core.GgufFile(str(path))


def test_there_are_enough_of_them() -> None:
    assert len(MALFORMED) >= 90
    assert len({name for name, _ in MALFORMED}) == len(MALFORMED)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("name", "data"), MALFORMED, ids=[n for n, _ in MALFORMED])
def test_malformed_files_are_refused(name: str, data: bytes, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FormatError) as error:
        open_bytes(tmp_path, data)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    message = str(error.value)
    assert "file.gguf" in message
    assert "\n" not in message
    assert after - before < 50 * 1024  # KiB


def test_the_valid_file_opens(tmp_path: Path) -> None:
    file = open_bytes(tmp_path, VALID)
    assert file.get("llama.block_count") == 2
    assert file.get("texts") == ["a", "a"]
    assert file.tensor("b").shape == (3, 128)


# Three small files and the sizes of their data: two tensors, every type of value, many tensors.
SMALL = [
    (VALID, 512 + 54),
    (gguf_files.every_value_type(), 128),
    (gguf_files.many_tensors(50), 50 * 32),
]
HEADERS = [(data, len(data) - size) for data, size in SMALL]


def read_all(file: _core.GgufFile) -> None:
    for key in file.keys():  # noqa: SIM118 - not a dict
        file.get(key)
    for t in file.tensors:
        assert len(file.tensor_bytes(t.name)) == t.nbytes


def opened(path: Path, files: Iterable[bytes]) -> tuple[int, int]:
    """How many files there are, and how many of them open, whole."""
    tried = count = 0
    for data in files:
        tried += 1
        path.write_bytes(data)
        if not refused(lambda: read_all(_core.GgufFile(str(path)))):
            count += 1
    return tried, count


def test_no_prefix_of_a_file_opens(tmp_path: Path) -> None:
    results = [opened(tmp_path / "f.gguf", prefixes(*f)) for f in HEADERS]
    assert sum(tried for tried, _ in results) >= 5500
    assert [count for _, count in results] == [0, 0, 0]


@pytest.mark.long("opens more than twenty thousand damaged files")
def test_a_flipped_header_byte_gives_an_error_or_a_whole_file(tmp_path: Path) -> None:
    results = [opened(tmp_path / "f.gguf", flips(*f)) for f in HEADERS]
    assert sum(tried for tried, _ in results) >= 20_000
    assert all(count > 0 for _, count in results)  # texts may change without harm


def test_a_damaged_shard_gives_an_error_or_a_whole_set(tmp_path: Path) -> None:
    tiny_model.write(tmp_path / "model.gguf", changes=dict.fromkeys(tiny_model.tokenizer_keys()))
    shards = split(tmp_path / "model.gguf", tmp_path / "shard", max_tensors=9)
    tried = 0
    for shard in shards:
        whole = shard.read_bytes()
        header = _core.GgufFile(str(shard)).tensors[0].offset
        damaged = [*flips(whole, header), *edits(whole[:header], 300, seed=2)]
        for data in damaged[:: max(1, len(damaged) // 300)]:
            shard.write_bytes(data)
            if not refused(lambda: read_set(GgufModel.open(shards[0]))):
                tried += 1
        shard.write_bytes(whole)
    assert tried > 0
    read_set(GgufModel.open(shards[0]))


def read_set(file: GgufModel) -> None:
    names = [t.name for t in file.tensors]
    assert len(set(names)) == len(names) == file.get("split.tensors.count")
    for t in file.tensors:
        assert len(file.tensor_bytes(t.name)) == t.nbytes
