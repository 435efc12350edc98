"""``load_as``: a model is quantized when it is first loaded, and kept."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

import oxibonsai
import tiny_model
from oxibonsai import RequestError
from oxibonsai.cli.cache import cache as cache_command
from oxibonsai.loading import QuantizedCache, open_model, quantized
from oxibonsai.quantize import quantize

IDS = [5, 6, 7]
# What quantizing such a small model says; the warnings have tests of their own.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "quantized"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    tiny_model.write(path)
    return path


def logits(model: Path, load_as: str | None = None) -> bytes:
    with oxibonsai.load(model, load_as=load_as, parity="off", threads=1) as engine:
        return engine.logits(IDS).tobytes()


def test_it_is_the_model_that_quantize_writes(model: Path, tmp_path: Path) -> None:
    written = tmp_path / "written.gguf"
    quantize(open_model(model).file, written, "Q8_0")
    assert logits(model, "q8_0") == logits(written) != logits(model)


def test_it_is_quantized_once(model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = logits(model, "Q8_0")
    (kept,) = cache.iterdir()
    with monkeypatch.context() as patch:
        patch.delattr(quantized, "write")
        assert logits(model, "Q8_0") == first
    tiny_model.write(model, seed=5)
    assert logits(model, "Q8_0") != first  # another model now
    assert logits(model, "Q4_0")
    assert len(list(cache.iterdir())) == 3
    assert kept in QuantizedCache().entries()


def test_the_least_recently_used_goes_first(
    model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits(model, "Q8_0")
    logits(model, "Q4_0")
    ages = {"Q8_0": 1, "Q4_0": 2}
    for path in cache.iterdir():
        seen = ages[path.stem.rpartition("-")[2]]
        os.utime(path, ns=(seen, path.stat().st_mtime_ns))
    logits(model, "Q8_0")  # used again
    size = sum(path.stat().st_size for path in cache.iterdir())
    monkeypatch.setenv("OXIBONSAI_QUANTIZED_CACHE_GB", str(size * 1.1e-9))
    logits(model, "Q5_0")
    assert {path.stem.rpartition("-")[2] for path in cache.iterdir()} == {"Q8_0", "Q5_0"}


def test_the_command_lists_and_clears_what_is_kept(model: Path, cache: Path) -> None:
    logits(model, "Q8_0")
    listed = CliRunner().invoke(cache_command, ["--json"])
    (entry,) = json.loads(listed.output)["quantized"]
    assert Path(entry["path"]).parent == cache
    assert "quantized" in CliRunner().invoke(cache_command, []).output
    CliRunner().invoke(cache_command, ["--clear"])
    assert list(cache.iterdir()) == []


def test_what_can_not_be_is_refused(
    model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RequestError, match="Q9_9"):
        oxibonsai.load(model, load_as="Q9_9")
    monkeypatch.setenv("OXIBONSAI_QUANTIZED_CACHE_GB", "many")
    with pytest.raises(RequestError, match="OXIBONSAI_QUANTIZED_CACHE_GB"):
        oxibonsai.load(model, load_as="Q8_0")
    assert not cache.exists()  # nothing was quantized in vain


def test_two_who_quantize_at_once_leave_one_whole_file(model: Path, cache: Path) -> None:
    apart = logits(model, "Q8_0")
    (kept,) = cache.iterdir()
    content = kept.read_bytes()
    kept.unlink()
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(logits, model, "Q8_0") for _ in range(2)]
    assert [one.result() for one in both] == [apart, apart]
    assert [path.read_bytes() for path in cache.iterdir()] == [content]
