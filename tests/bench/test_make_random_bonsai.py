"""bench/make_random_bonsai.py: files of the published shapes that load and run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gguf", reason="gguf (extra `bench` or `test`) is not installed")

import make_random_bonsai as maker
import oxibonsai
from oxibonsai import SamplingParams, _core
from oxibonsai.chat import ChatRequest, answer
from oxibonsai.tokenizer.byte_level import BYTE_OF

SMALL = maker.Size(layers=2, hidden=256, ff=512, heads=4, kv_heads=2, tied=False)
SHORT = SamplingParams(max_tokens=4, ignore_eos=True, seed=1)
SMALL_ROWS = 307  # odd, like the real number, and some more than the tiny vocabulary has


@pytest.mark.parametrize(
    ("size", "type_name", "megabytes"),  # of published files, less 6 of vocabulary
    [
        ("8B", "Q1_0", 1152),
        ("1.7B", "Q1_0", 242),
        ("1.7B", "Q2_0_g64", 484),
        ("1.7B", "PQ2_0", 457),
        ("1.7B", "TQ2_0", 444),
    ],
)
def test_the_weights_are_as_large_as_the_published_ones(
    size: str, type_name: str, megabytes: int
) -> None:
    shapes = maker.tensors(maker.SIZES[size], maker.SIZES[size].layers)
    total = sum(maker.info(maker.FORMATS[type_name], name, shape).nbytes for name, shape in shapes)
    assert total / 1e6 == pytest.approx(megabytes, abs=1)


def test_the_27b_is_as_large_as_the_published_one() -> None:
    shapes = maker.tensors(maker.SIZES["27B"], maker.SIZES["27B"].layers)
    total = sum(maker.info(maker.FORMATS["Q1_0"], name, shape).nbytes for name, shape in shapes)
    # Published is 3.79 GB; in which types its smallest tensors are is not.
    assert total / 1e9 == pytest.approx(3.79, abs=0.01)


def test_the_head_is_its_own_tensor_only_where_it_is_not_tied() -> None:
    for size in maker.SIZES.values():
        names = [name for name, _ in maker.tensors(size, 1)]
        assert ("output.weight" in names) != size.tied


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(maker.SIZES, "small", SMALL)
    monkeypatch.setattr(maker, "ROWS", SMALL_ROWS)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("type_name", maker.FORMATS)
def test_a_file_of_each_type_loads_and_runs(
    type_name: str, tiny_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "random.gguf"
    maker.write(out, "small", type_name, SMALL.layers, tiny_path, seed=0)
    quant_type = type_name if type_name == "TQ2_0_g128" else ""  # the file leaves that one open
    file = _core.GgufFile(str(out), quant_type)
    assert {t.name: t.shape for t in file.tensors} == dict(maker.tensors(SMALL, SMALL.layers))
    engine = oxibonsai.load(out, quant_type=quant_type, threads=1, ctx_size=64)
    logits = engine.logits([1, 2, 3])
    assert logits.shape == (3, SMALL_ROWS)
    assert np.isfinite(logits).all()
    assert 0.5 < logits.std() < 20


@pytest.mark.usefixtures("small")
def test_a_hybrid_file_loads_and_runs(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hybrid = maker.Size(4, 256, 512, 4, 2, False, head_dim=64, hybrid=True)
    monkeypatch.setitem(maker.SIZES, "hybrid", hybrid)
    monkeypatch.setattr(maker, "HYBRID_ROWS", SMALL_ROWS)
    out = tmp_path / "random.gguf"
    maker.write(out, "hybrid", "Q1_0", hybrid.layers, tiny_path, seed=0)
    logits = oxibonsai.load(out, threads=1, ctx_size=64).logits([1, 2, 3])
    assert np.isfinite(logits).all()
    assert 0.5 < logits.std() < 20


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("type_name", ["Q2_0_g64", "PQ2_0", "PTQ1_0", "TQ2_0", "TQ1_0"])
def test_ternary_files_hold_three_values(type_name: str, tiny_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "random.gguf"
    maker.write(out, "small", type_name, 1, tiny_path, seed=0)
    file = _core.GgufFile(str(out))
    tensor = file.tensor("blk.0.attn_q.weight")
    values = _core.decode(tensor.quant_type, file.tensor_bytes(tensor.name))
    blocks = values.reshape(-1, maker.FORMATS[type_name].group)
    assert all(len(np.unique(np.abs(block))) <= 2 for block in blocks)  # 0 and the scale
    assert {-1, 0, 1} == set(np.sign(values.ravel()).astype(int))


@pytest.mark.usefixtures("small")
def test_the_same_seed_gives_the_same_file(tiny_path: Path, tmp_path: Path) -> None:
    contents = []
    for seed in (0, 0, 1):
        maker.write(tmp_path / "random.gguf", "small", "Q1_0", 1, tiny_path, seed)
        contents.append((tmp_path / "random.gguf").read_bytes())
    assert contents[0] == contents[1]
    assert contents[0] != contents[2]


def test_a_made_up_vocabulary_has_each_token_once_and_all_of_them_are_reached() -> None:
    tokens, merges = maker.made_up_tokens(maker.ROWS)
    known = {*tokens, *maker.CONTROLS}
    assert len(known) == len(tokens) + len(maker.CONTROLS) == maker.ROWS
    made = set(BYTE_OF)
    for merge in merges:
        left, right = merge.split(" ")
        assert left in made
        assert right in made
        made.add(left + right)
    assert made == set(tokens)


@pytest.mark.usefixtures("small")
def test_a_file_with_a_made_up_vocabulary_talks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "ROWS", 1501)
    out = tmp_path / "random.gguf"
    maker.write(out, "small", "Q1_0", 1, None, seed=0)
    engine = oxibonsai.load(out, threads=1, ctx_size=64)
    tokenizer = engine.tokenizer
    assert tokenizer.vocab_size == 1501
    texts = {tokenizer.token_bytes(i) for i in range(1501)}
    assert len(texts) == 1501
    text = "Hello wörld, the cat\n\n sat 42"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("the cat")) < len("the cat") / 1.5
    reply = list(answer(engine, ChatRequest([{"role": "user", "content": "Hi"}]), SHORT))
    assert reply


def test_progress_leaves_no_carriage_returns_in_a_file(tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    command = [sys.executable, maker.__file__, "--size", "0.6B", "--type", "Q1_0", "--layers", "1"]
    done = subprocess.run([*command, str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout == f"{out}: {out.stat().st_size / 1e6:.1f} MB\n"


def test_a_missing_vocabulary_is_wrong_usage(tmp_path: Path) -> None:
    command = [sys.executable, maker.__file__, "--size", "0.6B", "--type", "Q1_0"]
    command += ["--vocab", str(tmp_path / "none.gguf"), str(tmp_path / "out.gguf")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "there is no file" in done.stderr
    assert not list(tmp_path.iterdir())
