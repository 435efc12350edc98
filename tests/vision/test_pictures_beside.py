"""Pictures with what else an engine does: samples, beams; and what it refuses, with a sentence why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from odd_pictures import drawn
from vision_model import write_vision_model

import oxibonsai
from oxibonsai import SamplingParams
from oxibonsai.chat import ChatRequest, prepare
from oxibonsai.devices import LayerSplit, open_device
from oxibonsai.engine import Engine, Options, beam_search, loading, save, submit_samples
from oxibonsai.engine.context_shift import ContextShift
from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.loading import open_model
from oxibonsai.models import Model, load_model


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return oxibonsai.load(write_vision_model(tmp_path_factory.mktemp("sees")), parallel=3)


def prepared(engine: Engine, seed: int = 0) -> Any:
    parts: list[Any] = [{"type": "image", "image": drawn(40, 56, seed=seed)}]
    parts.append({"type": "text", "text": "What is this?"})
    return prepare(engine, ChatRequest([{"role": "user", "content": parts}]))


def log_softmax(logits: Any) -> Any:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def test_samples_of_one_prompt_are_those_alone(engine: Engine) -> None:
    asked = prepared(engine)
    params = SamplingParams(max_tokens=6, temperature=1.0, seed=4, ignore_eos=True)
    samples = submit_samples(engine, asked.ids, params, asked.options, n=3)
    beside = [list(engine.follow_tokens(s)) for s in samples]
    alone = [list(engine.generate_tokens(asked.ids, s.params, asked.options)) for s in samples]
    assert beside == alone
    assert len({tuple(s) for s in beside}) > 1


def test_beams_have_the_probabilities_of_the_whole_text(engine: Engine) -> None:
    """Each from one pass over the prompt, its pictures and what was found."""
    asked = prepared(engine)
    images = asked.options.images
    found = beam_search(engine, asked.ids, width=3, max_new_tokens=5, images=images)
    assert len(found) == 3
    start = len(asked.ids)
    for beam in found:
        rows = engine.logits([*asked.ids, *beam.tokens], images=images)
        each = log_softmax(rows[start - 1 : -1])[range(len(beam.tokens)), beam.tokens]
        assert beam.score == pytest.approx(each.sum() / len(beam.tokens), rel=1e-4)
    greedy = SamplingParams(max_tokens=5, temperature=0)
    first = list(engine.generate_tokens(asked.ids, greedy, asked.options))
    assert (
        beam_search(engine, asked.ids, width=1, max_new_tokens=5, images=images)[0].tokens[
            : len(first)
        ]
        == first
    )
    other = beam_search(
        engine, asked.ids, width=3, max_new_tokens=5, images=prepared(engine, 1).options.images
    )
    assert [b.score for b in other] != [b.score for b in found]


def test_a_text_with_pictures_is_not_saved(engine: Engine, tmp_path: Path) -> None:
    asked = prepared(engine)
    sequence = engine.submit(asked.ids, SamplingParams(max_tokens=2), asked.options)
    list(engine.follow_tokens(sequence))
    with pytest.raises(UnsupportedError, match="a text with pictures can't be saved"):
        save(engine, sequence, tmp_path / "snapshot")
    assert not list(tmp_path.iterdir())


def test_a_context_with_pictures_is_not_shifted(engine: Engine) -> None:
    asked = prepared(engine)
    options = Options(images=asked.options.images, shift=ContextShift())
    with pytest.raises(RequestError, match="leave out the context shift"):
        engine.submit(asked.ids, SamplingParams(max_tokens=2), options)


def test_a_divided_model_reads_texts_only_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_vision_model(tmp_path)

    def place(device: str | None, gpu_layers: int | None, threads: int | None, *rest: Any) -> Model:
        split = LayerSplit(open_device("cpu", 1), [open_device("cpu", 1)], 1)
        return load_model(open_model(path), split)

    monkeypatch.setattr(loading, "place_model", place)
    with pytest.warns(UserWarning, match="pictures need the whole model on one device"):
        engine = oxibonsai.load(path)
    assert engine.image_reader is None
    with pytest.raises(UnsupportedError, match="leave out gpu_layers"):
        oxibonsai.load(path, mmproj=path.with_name("mmproj-eyes-F32.gguf"))
