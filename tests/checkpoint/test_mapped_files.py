"""Files that are cut or overwritten while they are mapped: an error, never a signal or other bytes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import oxibonsai
import tiny_model
from oxibonsai import SamplingParams, _core
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.errors import FormatError
from oxibonsai.quantize import make_plan, write
from oxibonsai.quantize.mixes import find_mix
from oxibonsai.quantize.type_choice import TypeRules
from oxibonsai.split import split

CHANGED = r"model\.gguf was changed while it was in use.*rename it"
Change = Callable[[], None]
PARAMS = SamplingParams(max_tokens=2, temperature=0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tiny_model.write(tmp_path / "model.gguf")
    return tmp_path / "model.gguf"


@pytest.fixture(params=["cut", "overwritten"])
def change(request: pytest.FixtureRequest, tmp_path: Path, model: Path) -> Change:
    """Changes the model's file when it is called."""
    tiny_model.write(tmp_path / "other", seed=7)

    def do() -> None:
        if request.param == "cut":
            os.truncate(model, 100)
        else:
            shutil.copyfile(tmp_path / "other", model)

    return do


def test_a_loaded_model_says_that_its_file_was_changed(model: Path, change: Change) -> None:
    engine = oxibonsai.load(model, parity="off")
    assert list(engine.generate("ab", PARAMS))
    change()
    with pytest.raises(FormatError, match=CHANGED):
        list(engine.generate("abc", PARAMS))


def test_a_file_that_changes_while_it_is_packed_is_not_loaded(model: Path, change: Change) -> None:
    file = GgufModel.open(model)
    weights = [file.weight("blk.0.attn_q.weight")]
    change()
    with pytest.raises(FormatError, match=CHANGED):
        _core.CpuDevice(1).pack(weights)


@pytest.mark.parametrize("command", ["quantize", "split"])
def test_what_is_written_from_a_changed_file_does_not_appear(
    model: Path,
    tmp_path: Path,
    change: Change,
    command: str,
) -> None:
    out = tmp_path / "out"
    out.mkdir()

    def write_it() -> None:
        if command == "split":
            split(model, out / "m", max_tensors=10, progress=lambda *_: change())
        else:
            plan = make_plan(GgufModel.open(model), TypeRules(find_mix("Q8_0")), None)
            write(plan, out / "m.gguf", progress=lambda *_: change())

    with pytest.raises(FormatError, match=CHANGED):
        write_it()
    assert list(out.iterdir()) == []


def test_bytes_that_are_gone_read_as_zeros_and_are_told(model: Path) -> None:
    file = _core.GgufFile(str(model))
    view = file.tensor_bytes("output_norm.weight")
    assert view.any()
    os.truncate(model, 100)
    assert not view.any()
    with pytest.raises(FormatError, match=CHANGED):
        file.check_unchanged()


def test_a_file_that_is_replaced_by_renaming_disturbs_nobody(model: Path, tmp_path: Path) -> None:
    engine = oxibonsai.load(model, parity="off")
    before = list(engine.generate("ab", PARAMS))
    tiny_model.write(tmp_path / "new", seed=7)
    (tmp_path / "new").rename(model)
    assert list(engine.generate("ab", PARAMS)) == before


def test_memory_of_others_still_ends_the_process(model: Path) -> None:
    code = f"""
        import mmap, os
        from oxibonsai import _core
        file = _core.GgufFile({str(model)!r})
        with open({str(model)!r}, "rb") as own:
            mapped = mmap.mmap(own.fileno(), 0, access=mmap.ACCESS_READ)
        os.truncate({str(model)!r}, 100)
        mapped[8192]
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True)
    assert done.returncode == -signal.SIGBUS
