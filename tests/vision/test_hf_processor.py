"""``AutoProcessor`` and ``AutoModelForImageTextToText`` give what transformers' and the engine give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from odd_pictures import ODD_PICTURES, drawn
from PIL import Image
from toy_tower import MARKER, TOKENS
from vision_model import MERGE, PATCH, write_vision_model

import oxibonsai
from oxibonsai import AutoModelForImageTextToText, AutoProcessor, SamplingParams
from oxibonsai.chat import ChatRequest, prepare
from oxibonsai.engine import beam_search
from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.hf import ImageTextToText, Processor
from oxibonsai.hf.pixels import as_columns, as_grids
from oxibonsai.vision.decoding import decode_image
from oxibonsai.vision.processors import (
    Gemma3Processor,
    Idefics3Processor,
    InternVLProcessor,
    LlavaNextProcessor,
    LlavaProcessor,
    PixtralProcessor,
    Qwen2VLProcessor,
)

PICTURES = [drawn(40, 56), drawn(16, 24)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vision_model(tmp_path_factory.mktemp("sees"))


@pytest.fixture(scope="module")
def model(path: Path) -> ImageTextToText:
    return AutoModelForImageTextToText.from_pretrained(path)


@pytest.fixture(scope="module")
def processor(model: ImageTextToText) -> Processor:
    return AutoProcessor.from_pretrained(model)


def conversation(*pictures: Any) -> list[dict[str, Any]]:
    parts = [{"type": "image", "image": picture} for picture in pictures]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": "What is this?"}]}]


def test_pixels_are_in_the_form_of_transformers() -> None:
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    names = ("wide", "37 x 1001", "grey")
    pictures = [decode_image(ODD_PICTURES[name]) for name in names]
    images = [picture.image for picture in pictures]
    own: Any = Qwen2VLProcessor(14, 2, 784, 784 * 64)
    peer: Any = Qwen2VLImageProcessorPil(size={"shortest_edge": 784, "longest_edge": 784 * 64})
    _check(own, pictures, peer(images, return_tensors="np"), ("pixel_values", "image_grid_thw"))
    from transformers.models.llava_next.image_processing_pil_llava_next import (
        LlavaNextImageProcessorPil,
    )
    from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

    square = {"size": {"shortest_edge": 56}, "crop_size": {"height": 56, "width": 56}}
    pinpoints = [[56, 112], [112, 56], [112, 112], [168, 56], [56, 168]]
    own = LlavaNextProcessor(56, tuple((h, w) for h, w in pinpoints))
    peer = LlavaNextImageProcessorPil(**square, image_grid_pinpoints=pinpoints)
    _check(own, pictures, peer(images, return_tensors="np"), ("pixel_values", "image_sizes"))
    own = PixtralProcessor(256, 28)
    peer = PixtralImageProcessorPil(
        size={"longest_edge": 256}, patch_size={"height": 28, "width": 28}
    )
    _check(own, pictures, peer(images, return_tensors="np"), ("pixel_values", "image_sizes"))
    own, peer = Gemma3Processor(56), Gemma3ImageProcessorPil(size={"height": 56, "width": 56})
    _check(own, pictures, peer(images, return_tensors="np"), ("pixel_values",))
    with pytest.raises(RequestError, match="have shape"):
        as_grids(LlavaProcessor(), {"pixel_values": np.zeros((3, 4), np.float32)})


def _check(own: Any, pictures: list[Any], expected: Any, names: tuple[str, ...]) -> None:
    grids = [own.prepare(picture) for picture in pictures]
    found = as_columns(own, grids, [len(grids)])
    for name in names:
        assert np.array_equal(found[name], expected[name]), name
    again = as_grids(own, found)
    assert [g.tiles for g in again] == [g.tiles for g in grids]
    assert [g.pixels.tobytes() for g in again] == [g.pixels.tobytes() for g in grids]


def test_tiles_are_in_the_form_of_transformers() -> None:
    """A model reads them one by one, since nothing says which are of one picture."""
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import (
        GotOcr2ImageProcessorPil,
    )
    from transformers.models.idefics3.image_processing_pil_idefics3 import (
        Idefics3ImageProcessorPil,
    )

    pictures = [decode_image(ODD_PICTURES[name]) for name in ("wide", "grey", "37 x 1001")]
    images = [picture.image for picture in pictures]
    intern: Any = InternVLProcessor(56, 1, 6)
    grids = [intern.prepare(picture) for picture in pictures]
    peer: Any = GotOcr2ImageProcessorPil(
        size={"height": 56, "width": 56}, crop_to_patches=True, min_patches=1, max_patches=6,
        image_mean=intern.image_mean, image_std=intern.image_std,
    )  # fmt: skip
    found = as_columns(intern, grids, [1, 2])
    assert np.array_equal(found["pixel_values"], peer(images, return_tensors="np")["pixel_values"])
    again = [g.pixels for g in as_grids(intern, found)]
    assert np.array_equal(np.concatenate(again), np.concatenate([g.pixels for g in grids]))

    own: Any = Idefics3Processor(128, 64)
    grids = [own.prepare(picture) for picture in pictures]
    peer = Idefics3ImageProcessorPil(
        size={"longest_edge": 128}, max_image_size={"longest_edge": 64},
        image_mean=own.image_mean, image_std=own.image_std,
    )  # fmt: skip
    expected = peer([images[:1], images[1:]], return_tensors="np")
    found = as_columns(own, grids, [1, 2])
    for name in ("pixel_values", "pixel_attention_mask"):
        assert np.array_equal(found[name], expected[name]), name
    tiles = np.concatenate([g.pixels for g in grids])
    for columns in (found, {"pixel_values": found["pixel_values"]}):
        assert np.array_equal(np.concatenate([g.pixels for g in as_grids(own, columns)]), tiles)
    found["pixel_attention_mask"][0, 0, 0, 0] = 0
    with pytest.raises(UnsupportedError, match="a part of a tile"):
        as_grids(own, found)


def test_text_gets_a_token_for_each_row(processor: Processor) -> None:
    inputs = processor(text=f"a{MARKER}b", images=PICTURES[0], return_tensors="np")
    _, rows, columns = inputs["image_grid_thw"][0]
    count = rows * columns // MERGE**2
    assert inputs["pixel_values"].shape == (rows * columns, 3 * 2 * PATCH * PATCH)
    expected = f"a{TOKENS[0]}{TOKENS[1] * count}{TOKENS[2]}b"
    assert inputs["input_ids"].tolist() == [processor.tokenizer(expected)["input_ids"]]
    plain = processor(text="no picture")
    assert set(plain) == {"input_ids", "attention_mask"}


@pytest.mark.parametrize("kind", ["np", "pt"])
def test_a_call_gives_the_engines_logits(
    model: ImageTextToText, processor: Processor, kind: str
) -> None:
    messages = conversation(*PICTURES)
    prepared = prepare(model.engine, ChatRequest(messages))
    inputs = processor.apply_chat_template(
        messages, tokenize=True, return_tensors=kind, add_generation_prompt=True
    )
    assert inputs["input_ids"].tolist() == [prepared.ids]
    logits = model(**inputs).logits
    assert type(logits).__module__.startswith("torch" if kind == "pt" else "numpy")
    expected = model.engine.logits(prepared.ids, images=prepared.options.images)
    assert np.array_equal(np.asarray(logits)[0], expected)


def test_a_batch_is_padded(model: ImageTextToText, processor: Processor) -> None:
    texts = [f"one {MARKER}", "none at all, but longer than the others so that they are padded" * 2]
    inputs = processor(
        text=[*texts, f"{MARKER}{MARKER}"],
        images=[[PICTURES[1]], [], [PICTURES[1], Image.fromarray(PICTURES[0])]],
        padding=True,
        return_tensors="np",
    )
    batch = model(**inputs).logits
    for i, (text, own) in enumerate(zip(texts, ([PICTURES[1]], None), strict=True)):
        alone = processor(text=text, images=own, return_tensors="np")
        shown = inputs["attention_mask"][i].astype(bool)
        single = model(**alone).logits if own else model.engine.logits(alone["input_ids"][0])[None]
        assert np.array_equal(batch[i][shown], single[0])
        assert not batch[i][~shown].any()


def test_generation_is_that_of_a_chat(model: ImageTextToText, processor: Processor) -> None:
    messages = conversation(PICTURES[0])
    chat: Any = oxibonsai.load(model.name_or_path)
    reply = chat.chat(messages, SamplingParams(max_tokens=8, temperature=0))
    list(reply)
    inputs = processor.apply_chat_template(
        messages, tokenize=True, return_tensors="np", add_generation_prompt=True
    )
    made = model.generate(**inputs, max_new_tokens=8)
    start = inputs["input_ids"].shape[1]
    assert made[0, start:].tolist()[: reply.sequence.num_generated] == reply.sequence.generated
    assert processor.batch_decode(made[:, start:])
    two = model.generate(**inputs, max_new_tokens=4, do_sample=True, num_return_sequences=2, seed=3)
    assert two.shape[0] == 2
    beams = model.generate(**inputs, num_beams=2, max_new_tokens=4)
    images = prepare(model.engine, ChatRequest(messages)).options.images
    best = beam_search(
        model.engine, inputs["input_ids"][0], width=2, max_new_tokens=4, images=images
    )
    assert beams[0, start:].tolist()[: len(best[0].tokens)] == best[0].tokens
    with pytest.raises(UnsupportedError, match="with pictures"):
        model.generate(**inputs, penalty_alpha=0.5)


def test_layers_that_read_more_than_embeddings_take_none(model: ImageTextToText) -> None:
    rows = np.zeros((2, model.engine.model.config.hidden_size), np.float32)
    with pytest.raises(UnsupportedError, match="reads more of a token than its embedding"):
        model.engine.embedded_prompt(rows)


def test_pictures_and_places_have_to_fit(model: ImageTextToText, processor: Processor) -> None:
    for images, text in (
        (PICTURES, MARKER),
        (None, MARKER),
        (PICTURES[0], "none"),
        ([[], []], "a"),
    ):
        with pytest.raises((RequestError, ValueError)):
            processor(text=text, images=images)
    inputs = dict(processor(text=f"a{MARKER}b", images=PICTURES[0], return_tensors="np"))
    short = {**inputs, "input_ids": inputs["input_ids"][:, :-5]}
    short["attention_mask"] = short["attention_mask"][:, :-5]
    other = {**inputs, "image_grid_thw": inputs["image_grid_thw"] * [1, 2, 1]}
    missing = {k: v for k, v in inputs.items() if k != "image_grid_thw"}
    nan = {**inputs, "pixel_values": inputs["pixel_values"] * np.float32("nan")}
    for wrong in (short, other, missing, nan):
        with pytest.raises(RequestError):
            model(**wrong)


def test_a_model_without_a_tower_is_refused(path: Path) -> None:
    with pytest.raises(RequestError, match="reads text only"):
        AutoModelForImageTextToText.from_pretrained(path, mmproj=False)
