"""Malformed files cost one clear error: never a crash, a hang or much memory."""

from __future__ import annotations

import resource
from pathlib import Path

import gguf_files
import pytest

from oxibonsai import _core
from oxibonsai.errors import FormatError

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


@pytest.mark.timeout(20)
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


def test_no_prefix_of_a_file_opens(tmp_path: Path) -> None:
    for length in range(len(VALID)):
        with pytest.raises(FormatError):
            open_bytes(tmp_path, VALID[:length])


def test_a_flipped_header_byte_gives_an_error_or_a_whole_file(tmp_path: Path) -> None:
    header = len(VALID) - 512 - 54
    opened = 0
    for at in range(header):
        for value in (0x00, 0x7F, 0xFF, VALID[at] ^ 0x01, VALID[at] ^ 0x80):
            if value == VALID[at]:
                continue
            data = VALID[:at] + bytes([value]) + VALID[at + 1 :]
            try:
                file = open_bytes(tmp_path, data)
            except FormatError:
                continue
            opened += 1
            for key in file.keys():  # noqa: SIM118 - not a dict
                file.get(key)
            for t in file.tensors:
                assert len(file.tensor_bytes(t.name)) == t.nbytes
    assert opened > 0  # texts may change without harm
