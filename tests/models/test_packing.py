"""Packed weights: the same logits from memory, from disk and on every start; damage is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import oxibonsai
import tiny_model
from forked import run_oxibonsai
from oxibonsai import _core
from oxibonsai.errors import ParityError, RequestError
from oxibonsai.models import PackedCache
from oxibonsai.models.packed_cache import _HEADER_BYTES

IDS = list(range(20))
PACKS = _core.cpu.name() != "scalar"
needs_tiles = pytest.mark.skipif(not PACKS, reason="the scalar tier reads the file's own rows")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "tiny.gguf"
    tiny_model.write(path)
    return path


@needs_tiles
def test_progress_rises_to_the_size_of_all_packed_weights(model: Path) -> None:
    seen: list[tuple[int, int]] = []
    engine = oxibonsai.load(model, progress=lambda done, total: seen.append((done, total)))
    done = [d for d, _ in seen]
    assert done == sorted(done)
    assert {total for _, total in seen} == {done[-1]}
    assert done[-1] >= sum(map(engine.model.device.packed_nbytes, engine.model.graph.matrices))


@needs_tiles
def test_weights_from_the_cache_give_the_same_logits_without_packing(model: Path) -> None:
    plain = oxibonsai.load(model).logits(IDS)
    stored = oxibonsai.load(model, packed_cache=True).logits(IDS)
    packed: list[int] = []
    mapped = oxibonsai.load(model, packed_cache=True, progress=lambda d, _: packed.append(d))
    assert packed == []
    assert np.array_equal(plain.view(np.uint32), stored.view(np.uint32))
    assert np.array_equal(plain.view(np.uint32), mapped.logits(IDS).view(np.uint32))


@needs_tiles
def test_a_changed_model_is_packed_again(model: Path) -> None:
    oxibonsai.load(model, packed_cache=True)
    tiny_model.write(model, seed=9)
    fresh = oxibonsai.load(model).logits(IDS)
    cached = oxibonsai.load(model, packed_cache=True).logits(IDS)
    assert np.array_equal(fresh.view(np.uint32), cached.view(np.uint32))
    assert len(PackedCache().entries()) == 2


@needs_tiles
@pytest.mark.parametrize("kept", [0, 100, _HEADER_BYTES, -1])
def test_an_incomplete_file_in_the_cache_is_replaced(model: Path, kept: int) -> None:
    wanted = oxibonsai.load(model, packed_cache=True).logits(IDS)
    (entry,) = PackedCache().entries()
    entry.path.write_bytes(entry.path.read_bytes()[:kept])
    again = oxibonsai.load(model, packed_cache=True).logits(IDS)
    assert np.array_equal(wanted.view(np.uint32), again.view(np.uint32))
    assert [e.bytes for e in PackedCache().entries()] == [entry.bytes]


@needs_tiles
@pytest.mark.parametrize("parity", ["quick", "full"])
def test_wrong_bytes_in_a_tile_are_found_and_named(model: Path, parity: str) -> None:
    oxibonsai.load(model, packed_cache=True)
    (entry,) = PackedCache().entries()
    content = bytearray(entry.path.read_bytes())
    content[_HEADER_BYTES] ^= 0xFF
    entry.path.write_bytes(content)
    with pytest.raises(ParityError, match=r"linear layer, \S+ \(\S+\).*OXIBONSAI_ISA=scalar"):
        oxibonsai.load(model, packed_cache=True, parity=parity)  # type: ignore[arg-type]
    oxibonsai.load(model, packed_cache=True, parity="off")


def test_a_sound_machine_passes_every_level(model: Path) -> None:
    for parity in ("quick", "full", "off"):
        oxibonsai.load(model, parity=parity)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="parity is 'some'; it is one of quick, full, off"):
        oxibonsai.load(model, parity="some")  # type: ignore[arg-type]


@needs_tiles
def test_the_least_recently_used_go_when_the_cache_is_full(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oxibonsai.load(model, packed_cache=True)
    (first,) = PackedCache().entries()
    monkeypatch.setenv("OXIBONSAI_PACKED_CACHE_GB", str(1.5 * first.bytes / 1e9))
    tiny_model.write(model, seed=9)
    oxibonsai.load(model, packed_cache=True)
    assert [e.path.name for e in PackedCache().entries()] != [first.path.name]
    assert len(PackedCache().entries()) == 1
    monkeypatch.setenv("OXIBONSAI_PACKED_CACHE_GB", "0")
    tiny_model.write(model, seed=10)
    oxibonsai.load(model, packed_cache=True)
    assert len(PackedCache().entries()) == 1
    monkeypatch.setenv("OXIBONSAI_PACKED_CACHE_GB", "many")
    with pytest.raises(RequestError, match="OXIBONSAI_PACKED_CACHE_GB is 'many'"):
        PackedCache()


@needs_tiles
def test_a_folder_that_cannot_be_written_costs_a_warning(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "tiny.gguf"))  # a file
    with pytest.warns(UserWarning, match="cannot keep packed weights in"):
        oxibonsai.load(model, packed_cache=True)


@needs_tiles
def test_the_command_lists_and_clears(model: Path) -> None:
    def run(*arguments: object) -> str:
        done = run_oxibonsai(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("run", "-m", model, "--packed-cache", "--raw", "--max-tokens", "1", "a")
    (entry,) = json.loads(run("cache", "--json"))["entries"]
    assert entry["model"] == "tiny.gguf"
    assert "tiny.gguf" in run("cache")
    assert json.loads(run("cache", "--clear", "--json")) == {"freed_bytes": entry["bytes"]}
    assert json.loads(run("cache", "--json"))["entries"] == []
