"""Arrays that numpy and torch take over without a copy."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bert_folder
import oxibonsai
import oxibonsai.engine.whole_text_mixin as whole_text_mixin
from oxibonsai import RequestError, SamplingParams, UnsupportedError, _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.engine import Engine
from oxibonsai.engine.embedding import Embedder
from oxibonsai.engine.logits import DLPackArray
from oxibonsai.models import load_model


def rows() -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.arange(12, dtype=np.float32).reshape(3, 4)


def test_numpy_shares_the_memory() -> None:
    values = rows()
    taken = np.from_dlpack(DLPackArray(values))
    assert taken.__array_interface__["data"][0] == values.__array_interface__["data"][0]
    assert np.array_equal(taken, values)
    assert DLPackArray(values).shape == (3, 4)
    assert DLPackArray(values).__dlpack_device__() == (1, 0)


@pytest.mark.hf
def test_torch_shares_the_memory_which_outlives_its_maker() -> None:
    torch = pytest.importorskip("torch")
    values = rows()
    taken = torch.from_dlpack(DLPackArray(values))
    assert taken.data_ptr() == values.__array_interface__["data"][0]
    values[1, 2] = 99.0
    assert taken[1, 2] == 99.0
    gone = weakref.ref(values)
    del values
    gc.collect()
    assert gone() is not None
    assert taken[1, 2] == 99.0
    del taken
    gc.collect()
    assert gone() is None


@pytest.fixture(scope="module")
def engine(tiny_path: Path) -> Engine:
    return oxibonsai.load(tiny_path)


def test_what_the_engine_gives_is_taken_over_without_a_copy(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[np.ndarray[Any, Any]] = []

    class Watched(DLPackArray):
        def __init__(self, values: np.ndarray[Any, Any]) -> None:
            made.append(values)
            super().__init__(values)

    monkeypatch.setattr(whole_text_mixin, "DLPackArray", Watched)
    pairs = [
        (engine.embed(["abc", [66]], as_dlpack=True), engine.embed(["abc", [66]])),
        (engine.hidden_states("abc", as_dlpack=True), engine.hidden_states("abc")),
        (engine.logits("abc", as_dlpack=True), engine.logits("abc")),
    ]
    for (given, expected), values in zip(pairs, made, strict=True):
        taken = np.from_dlpack(given)
        assert np.shares_memory(taken, values)
        assert taken.tobytes() == expected.tobytes()


def test_hidden_states_are_what_vectors_are_pooled_from(engine: Engine) -> None:
    ids = engine.tokenizer.encode("a text")
    states = engine.hidden_states("a text")
    assert states.shape == (len(ids), engine.model.config.hidden_size)
    assert states.tobytes() == engine.hidden_states(ids).tobytes()
    last, mean = (
        engine.embed([ids], pooling=pooling, normalize=False)[0] for pooling in ("last", "mean")
    )
    assert np.array_equal(states[-1], last)
    assert np.allclose(states.mean(axis=0), mean, rtol=1e-4, atol=1e-5)


@pytest.mark.hf
def test_texts_become_tensors(engine: Engine) -> None:
    torch = pytest.importorskip("torch")
    text, ids = "a text", engine.tokenizer.encode("a text")
    assert torch.equal(engine.logits_torch(text), torch.from_numpy(engine.logits(ids)))
    assert torch.equal(engine.hidden_states_torch(text), engine.hidden_states_torch(ids))
    vector = engine.embeddings_torch(text, normalize=False)
    assert torch.equal(vector, torch.from_numpy(engine.embed([text], normalize=False)))
    assert vector.shape == (1, engine.embedder.dimensions)


def embeddings(engine: Engine, count: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    shape = (count, engine.model.config.hidden_size)
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def test_embeddings_are_a_prompt_by_what_they_hold(engine: Engine) -> None:
    rows, params = embeddings(engine, 70), SamplingParams(temperature=0.0, max_tokens=8)

    def tokens(values: Any, own: SamplingParams = params) -> list[int]:
        ids, options = engine.embedded_prompt(values)
        return list(engine.generate_tokens(ids, own, options))

    logits = engine.logits(inputs_embeds=rows)
    assert logits.shape == (70, engine.model.config.vocab_size)
    found = tokens(rows)
    assert found[0] == logits[-1].argmax()
    assert tokens(DLPackArray(rows)) == found
    other = rows.copy()
    other[5] *= -1.0
    assert tokens(other)[0] == engine.logits(inputs_embeds=other)[-1].argmax()
    assert engine.logits(inputs_embeds=other)[5:].tobytes() != logits[5:].tobytes()
    assert engine.logits(inputs_embeds=rows, chunk_size=3).tobytes() == logits.tobytes()
    half = rows.astype(np.float16)
    assert (
        engine.logits(inputs_embeds=half).tobytes()
        == engine.logits(inputs_embeds=half.astype(np.float32)).tobytes()
    )


def test_equal_embeddings_share_the_prefix_cache(engine: Engine) -> None:
    rows = embeddings(engine, 150, seed=8)
    other = rows.copy()
    other[-1, 0] += 1.0
    cached = []
    for values in (rows, rows, other):
        ids, options = engine.embedded_prompt(values)
        sequence = engine.submit(ids, SamplingParams(temperature=0.0, max_tokens=2), options)
        while not sequence.finished:
            engine.step()
        cached.append(sequence.num_cached)
    assert cached == [0, 128, 0]


def test_what_reads_no_embeddings_says_so(tmp_path: Path) -> None:
    convert(bert_folder.write(tmp_path / "model"), tmp_path / "m.gguf")
    with pytest.raises(UnsupportedError, match="is an encoder"):
        oxibonsai.load(tmp_path / "m.gguf").embedded_prompt(np.zeros((2, 128), np.float32))


def test_what_embeddings_stand_for_is_not_repeated(engine: Engine) -> None:
    """The ids in their places are none that a penalty counts."""
    rows = embeddings(engine, 9)
    logits = engine.logits(inputs_embeds=rows)[-1]
    placeholder = engine.embedded_prompt(rows)[0][0]
    bias = {placeholder: float(logits.max() - logits[placeholder]) + 1.0}
    penalised = SamplingParams(
        temperature=0.0, max_tokens=1, logit_bias=bias, repetition_penalty=100.0,
        repetition_window=-1,
    )  # fmt: skip
    ids, options = engine.embedded_prompt(rows)
    assert list(engine.generate_tokens(ids, penalised, options)) == [placeholder]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (lambda e: embeddings(e, 3)[:, :5], r"shape \[3, 5\]"),
        (lambda e: embeddings(e, 3)[0], r"shape \["),
        (lambda e: embeddings(e, 3)[:0], r"shape \[0"),
        (lambda e: embeddings(e, 3) * np.float32(np.nan), "not finite"),
        (lambda e: embeddings(e, 3).astype(np.float64), "type is float64"),
        (lambda e: "abc", "no array"),
    ],
)
def test_what_is_no_embedding_is_refused(values: Any, message: str, engine: Engine) -> None:
    with pytest.raises(RequestError, match=message):
        engine.embedded_prompt(values(engine))
    with pytest.raises(RequestError, match="and not both"):
        engine.logits([1], inputs_embeds=embeddings(engine, 1))
    with pytest.raises(RequestError, match="and not both"):
        engine.generate()


@pytest.mark.hf
def test_embeddings_go_to_torch_as_they_are(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    convert(bert_folder.write(tmp_path / "model"), tmp_path / "m.gguf")
    model = load_model(Checkpoint(tmp_path / "m.gguf"), _core.CpuDevice(1))
    vectors = Embedder(model, None).embed([[5, 6], [7]])
    for source in (vectors, DLPackArray(vectors)):
        assert torch.from_dlpack(source).data_ptr() == vectors.__array_interface__["data"][0]


def test_torch_is_not_imported(tmp_path: Path) -> None:
    convert(bert_folder.write(tmp_path / "model"), tmp_path / "m.gguf")
    code = (
        "import sys, numpy, oxibonsai\n"
        "from oxibonsai.engine.logits import DLPackArray\n"
        "from oxibonsai.engine.embedding import Embedder\n"
        f"e = oxibonsai.load({str(tmp_path / 'm.gguf')!r})\n"
        "v = Embedder(e.model, e.tokenizer).embed(['hello world'])\n"
        "print(numpy.from_dlpack(DLPackArray(v)).shape, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "(1, 128) False\n"
