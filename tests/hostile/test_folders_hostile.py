"""Folders of packed weights that lie: converted whole, or refused with nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import packed_folders
import pytest
from mutations import LittleMemory, edits, flips, prefixes, refused

from oxibonsai import _core
from oxibonsai.convert.language_model import convert

NAMES = ("config.json", "model.safetensors")


def outcome(folder: Path, out: Path, what: str) -> bool:
    """Whether the folder converts; what is written is whole, and what is refused leaves nothing."""
    done = not refused(lambda: convert(folder, out), what)
    assert os.listdir(out.parent) == ([out.name] if done else []), what
    if not done:
        return False
    file = _core.GgufFile(str(out))
    for tensor in file.tensors:
        values = _core.decode(tensor.quant_type, file.tensor_bytes(tensor.name))
        assert np.isfinite(values).all(), what
    out.unlink()
    return True


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "model.gguf"


@pytest.mark.parametrize("kind", packed_folders.KINDS)
def test_the_good_folder_converts(kind: str, tmp_path: Path, out: Path) -> None:
    assert outcome(packed_folders.good(kind).write(tmp_path / "model"), out, kind)


@pytest.mark.parametrize("kind", packed_folders.KINDS)
def test_lies_are_refused_or_harmless(kind: str, tmp_path: Path, out: Path) -> None:
    lies = list(packed_folders.lies(kind))
    assert len(lies) >= 90
    assert len({name for name, _ in lies}) == len(lies)
    with LittleMemory():
        converted = [n for n, f in lies if outcome(f.write(tmp_path / "model"), out, n)]
    shapes = ("row", "column", "flat", "missing", "dimension", "scalar", "wide", "transposed")
    optional = ("g_idx: missing",)
    wrong = [n for n in converted if any(s in n for s in shapes) and n not in optional]
    assert not wrong
    assert len(converted) < len(lies) / 2


@pytest.mark.parametrize("kind", packed_folders.KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_damaged_files_are_refused_or_harmless(
    name: str, kind: str, tmp_path: Path, out: Path
) -> None:
    folder = packed_folders.good(kind).write(tmp_path / "model")
    file = folder / name
    whole = file.read_bytes()
    head = len(whole) if name == "config.json" else 8 + int.from_bytes(whole[:8], "little")
    flipped = list(flips(whole, head))
    chosen = np.random.default_rng(7).choice(len(flipped), 150, replace=False)
    damaged = [*edits(whole, 150, seed=5), *(flipped[i] for i in chosen)]
    damaged += list(prefixes(whole, head))[:: max(1, head // 100)]
    with LittleMemory():
        for i, data in enumerate(damaged):
            file.write_bytes(data)
            outcome(folder, out, f"{name} {i}")
