"""Models with their towers end to end: converted, asked about a picture in Python and through the server.

The truth are transformers' logits of the same ids and pixels, and its greedy answer.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")
import torch
from model_app import close_model_app, make_model_app
from odd_pictures import drawn, saved
from PIL import Image
from random_vision import MODELS, glm4v
from test_towers import Case, distance, truth_inputs
from tower_folders import save

import oxibonsai
from oxibonsai import LLM, SamplingParams
from oxibonsai.chat import ChatRequest, prepare
from oxibonsai.convert.language_model import convert
from oxibonsai.convert.vision_tower import convert_tower
from oxibonsai.engine import Engine
from oxibonsai.vision.image_input import read_image

pytestmark = [pytest.mark.hf, pytest.mark.slow]
PICTURE = drawn(40, 56)  # in tiles of 24 x 24 pixels: 2 rows of 3
NEW = 6
OPTIONS: dict[str, Any] = {"kv_type": "f32", "threads": 1, "ctx_size": 512, "parity": "off"}
GREEDY = SamplingParams(temperature=0.0, max_tokens=NEW, ignore_eos=True)
MADE = {
    "llama4": MODELS["llama4"],
    "glm4v": MODELS["glm4v"],
    "glm46v": partial(glm4v, kind="Glm46V"),
}


@dataclass
class Whole:
    """A model in transformers, as a folder, and as the two files made of it."""

    case: Case
    folder: Path
    files: Path


@pytest.fixture(scope="module", params=sorted(MADE))
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    place = tmp_path_factory.mktemp(request.param)
    (place / "eyed").mkdir()
    eyed = MADE[request.param](place / "eyed")
    folder = save(eyed, request.param, place / "folder")
    (place / "files").mkdir()
    convert(folder, place / "files/seeing-F32.gguf", dtype="f32")
    convert_tower(folder, place / "files/mmproj-seeing-F32.gguf", dtype="f32")
    nothing: Any = None
    return Whole(
        Case(request.param, eyed, nothing, nothing), folder, place / "files/seeing-F32.gguf"
    )


def messages(picture: Any) -> list[dict[str, Any]]:
    parts = [{"type": "text", "text": "Hello"}, {"type": "image", "image": picture}]
    return [{"role": "user", "content": parts}]


def true_logits(whole: Whole, engine: Engine, ids: list[int], picture: Any) -> np.ndarray[Any, Any]:
    """Of the last id."""
    reader = engine.image_reader
    assert reader is not None
    grid = reader.processor.prepare(read_image(picture))
    truth, row = whole.case.eyed.truth, torch.tensor([ids])
    truth.config.image_token_id = reader.tower.placeholder
    named: dict[str, Any] = {}
    if whole.case.name.startswith("glm"):
        named["mm_token_type_ids"] = (row == reader.tower.placeholder).int()
    with torch.no_grad():
        found = truth(input_ids=row, use_cache=False, **named, **truth_inputs(whole.case, [grid]))
    return np.asarray(found.logits[0, -1].numpy())


def true_answer(whole: Whole, engine: Engine, picture: Any) -> list[int]:
    """Greedy, each token from a pass of its own over the whole text."""
    ids = list(prepare(engine, ChatRequest(messages(picture))).ids)
    start = len(ids)
    for _ in range(NEW):
        ids.append(int(true_logits(whole, engine, ids, picture).argmax()))
    return ids[start:]


@pytest.mark.parametrize("source", ["folder", "files"])
def test_a_picture_in_a_conversation_has_the_logits_of_transformers(
    whole: Whole, source: str
) -> None:
    engine = oxibonsai.load(getattr(whole, source), **OPTIONS)
    for picture in (PICTURE, drawn(24, 24)):
        made = prepare(engine, ChatRequest(messages(picture)))
        got = engine.logits(made.ids, images=made.options.images)[-1]
        assert distance(got, true_logits(whole, engine, made.ids, picture)) < 1e-5


def test_answers_are_those_of_transformers_in_python_and_through_the_server(
    whole: Whole, tmp_path: Path
) -> None:
    llm = LLM(whole.folder, **OPTIONS)
    (found,) = llm.chat(messages(PICTURE), GREEDY)
    engine = oxibonsai.load(whole.files, **OPTIONS)
    wanted = true_answer(whole, engine, PICTURE)
    assert list(found.outputs[0].token_ids) == wanted
    assert wanted != true_answer(whole, engine, drawn(24, 24))
    app = make_model_app(whole.files, tmp_path, ctx_size=512, kv_type="f32")
    try:
        encoded = base64.b64encode(saved(Image.fromarray(PICTURE))).decode()
        address = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}}
        body = {
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}, address]}],
            "max_tokens": NEW, "temperature": 0, "ignore_eos": True,
        }  # fmt: skip
        answer = app.test_client().post("/v1/chat/completions", json=body)
    finally:
        close_model_app(app)
    assert answer.status_code == 200, answer.text
    assert answer.get_json()["choices"][0]["message"]["content"] == found.outputs[0].text
