"""bench/make_random_bonsai.py: files of the published shapes that load and run."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gguf", reason="gguf (extra `bench` or `test`) is not installed")

import make_random_bonsai as maker
import oxibonsai
from oxibonsai import SamplingParams, _core
from oxibonsai.chat import ChatRequest, answer
from oxibonsai.engine import MtpDraft
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
    hybrid = maker.Size(4, 256, 512, 4, 2, False, head_dim=64, value_heads=48)
    monkeypatch.setitem(maker.SIZES, "hybrid", hybrid)
    monkeypatch.setattr(maker, "HYBRID_ROWS", SMALL_ROWS)
    out = tmp_path / "random.gguf"
    maker.write(out, "hybrid", "Q1_0", hybrid.layers, tiny_path, seed=0)
    logits = oxibonsai.load(out, threads=1, ctx_size=64).logits([1, 2, 3])
    assert np.isfinite(logits).all()
    assert 0.5 < logits.std() < 20


def bytes_of(size: maker.Size, type_name: str) -> int:
    shapes = dict(maker.tensors(size, size.layers))
    formats = {n: maker.format_of(size, size.layers, maker.FORMATS[type_name], n) for n in shapes}
    return sum(maker.info(formats[n], n, shape).nbytes for n, shape in shapes.items())


@pytest.mark.parametrize(
    ("type_name", "published"), [("PQ2_0", 7_206_168_928), ("PTQ1_0", 5_946_648_928)]
)
def test_bonsai_2_27b_is_as_large_as_the_published_one(type_name: str, published: int) -> None:
    vocabulary_and_keys = published - bytes_of(maker.BONSAI2["27B"], type_name)
    assert 10e6 < vocabulary_and_keys < 11.5e6


@pytest.mark.parametrize(
    ("size", "rotated", "widths"),
    [
        ("2B", 150, {2048, 6144}),
        ("4B", 200, {2560, 4096, 9216}),
        ("9B", 201, {4096, 12288}),
        ("27B", 401, {5120, 6144, 17408}),
    ],
)
def test_bonsai_2_rotates_the_published_matrices(size: str, rotated: int, widths: set[int]) -> None:
    of = maker.BONSAI2[size]
    names, shapes = maker.rotated_names(of, of.layers), dict(maker.tensors(of, of.layers))
    assert len(names) == rotated
    assert {shapes[n][1] for n in names} == widths
    # The block is the largest power of two that divides every width.
    assert all(w % of.block == 0 for w in widths)
    assert any(w % (2 * of.block) for w in widths)
    if size == "27B":
        plain = [n for n in shapes if n.endswith(maker.UNROTATED)]
        floats = [n for n, shape in shapes.items() if maker.is_float(n, shape)]
        assert (len(shapes), len(floats), len(plain)) == (851, 353, 96)


def test_the_vision_tower_is_as_large_as_the_published_one() -> None:
    tensors = maker.tower_tensors(maker.BONSAI2["27B"])
    total = sum(maker.tower_info(name, shape).nbytes for name, shape in tensors)
    assert 629_246_976 - total == pytest.approx(20_000, abs=20_000)  # keys and names


@pytest.fixture
def small_bonsai2(monkeypatch: pytest.MonkeyPatch) -> maker.Size:
    monkeypatch.setattr(maker, "HYBRID_ROWS", 1501)
    monkeypatch.setattr(maker, "INTERVAL", 2)
    monkeypatch.setattr(maker, "STATE", 8)
    for name, value in {
        "TOWER_LAYERS": 1, "TOWER_HIDDEN": 64, "TOWER_FF": 80, "TOWER_HEADS": 4, "PLACES": 4,
    }.items():  # fmt: skip
        monkeypatch.setattr(maker, name, value)
    return maker.Size(2, 256, 512, 2, 1, True, head_dim=256, value_heads=32, block=256)


@pytest.mark.parametrize("type_name", ["PQ2_0", "PTQ1_0", "Q2_0_g64"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_small_bonsai_2_runs_drafts_and_sees(
    type_name: str, tied: bool, small_bonsai2: maker.Size, tmp_path: Path
) -> None:
    size = replace(small_bonsai2, tied=tied)
    out, tower = tmp_path / "m.gguf", tmp_path / "mmproj.gguf"
    maker.write(out, "small", type_name, 2, None, seed=0, size=size, drafting=True)
    maker.write_tower(tower, "small", size, seed=0)
    engine = oxibonsai.load(out, mmproj=str(tower), threads=1, ctx_size=64, parity="off")
    logits = engine.logits([1, 2, 3])
    assert np.isfinite(logits).all()
    assert 0.3 < logits.std() < 20
    assert engine.model.config.hadamard is not None
    assert engine.model.config.hadamard.tied_output is tied
    assert engine.image_reader is not None
    controls = {engine.tokenizer.token_bytes(i) for i in engine.eos_ids}
    assert controls == {b"<|im_end|>", b"<|endoftext|>"}  # of Bonsai 2 248046 and 248044
    draft = MtpDraft(engine)
    drawn = engine.submit([1, 2, 3], SHORT, oxibonsai.Options(speculate=draft.speculator))
    plain = engine.submit([1, 2, 3], SHORT)
    for sequence in (drawn, plain):
        engine.advance(sequence)
        while not sequence.finished:
            engine.advance(sequence)
    assert drawn.generated == plain.generated


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
