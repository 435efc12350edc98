"""Malformed safetensors cost one clear error: never a crash, a hang or much memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import safetensors_files
from mutations import LittleMemory, edits, flips, ids, prefixes, refused

from oxibonsai.checkpoint.safetensors_file import read_header
from oxibonsai.errors import FormatError

VALID = safetensors_files.VALID
HEADER = len(VALID) - len(safetensors_files.DATA)
MALFORMED = safetensors_files.malformed()


def opened(path: Path, files: Iterable[bytes]) -> int:
    """How many of the files open, all tensors of each within it."""
    count = 0
    for data in files:
        path.write_bytes(data)
        if refused(lambda: read_header(path), repr(data)):
            continue
        count += 1
        for stored in read_header(path).values():
            assert 0 <= stored.first <= stored.last <= len(data)
            assert path.read_bytes()[stored.first : stored.last] == data[stored.first : stored.last]
    return count


def test_there_are_enough_of_them() -> None:
    assert len(MALFORMED) >= 90


@pytest.mark.timeout(60)
@pytest.mark.parametrize("data", ids(MALFORMED))
def test_malformed_files_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with LittleMemory(), pytest.raises(FormatError) as error:
        read_header(path)
    assert "model.safetensors" in str(error.value)
    assert "\n" not in str(error.value)


def test_the_valid_file_opens(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(VALID)
    found = read_header(path)
    assert found["a"].read("<f4").tobytes() == safetensors_files.DATA[:32]
    assert found["b"].shape == (16,)


def test_no_prefix_of_a_file_opens(tmp_path: Path) -> None:
    assert opened(tmp_path / "model.safetensors", prefixes(VALID, HEADER)) == 0


def test_a_flipped_header_byte_gives_an_error_or_a_whole_file(tmp_path: Path) -> None:
    assert opened(tmp_path / "model.safetensors", flips(VALID, HEADER)) > 0  # another name, say


def test_random_damage_gives_an_error_or_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with LittleMemory():
        opened(path, edits(VALID, 10_000, seed=1))
