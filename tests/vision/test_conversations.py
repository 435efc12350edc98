"""Pictures in conversations: where they stand in a prompt, what is refused, and in which forms."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from odd_pictures import ODD_PICTURES, drawn, saved
from PIL import Image
from toy_tower import MARKER, TEXT_TEMPLATE, TOKENS, ToyTower, write_model

import oxibonsai
from oxibonsai.chat import ChatRequest, PreparedPrompt, prepare, render
from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.vision import ImageLimits, ImageReader
from oxibonsai.vision.processors import Gemma3Processor

PNG = saved(Image.fromarray(drawn(16, 24)))
DATA_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()


def seeing(path: Path, template: str | None = None, *, special: bool = True) -> Engine:
    """An engine with the toy tower."""
    if template is None:
        write_model(path, special=special)
    else:
        write_model(path, template, special=special)
    engine = oxibonsai.load(path)
    engine.image_reader = ImageReader.of_tower(ToyTower())
    return engine


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return seeing(tmp_path_factory.mktemp("sees") / "model.gguf")


def prepared(engine: Engine, *parts: Any, **fields: Any) -> PreparedPrompt:
    content = [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]
    return prepare(engine, ChatRequest([{"role": "user", "content": content}], **fields))


def tower(engine: Engine) -> ToyTower:
    assert engine.image_reader is not None
    found = engine.image_reader.tower
    assert isinstance(found, ToyTower)
    return found


def url(address: str, **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": address, **fields}}


def test_a_picture_stands_where_the_template_puts_it(engine: Engine) -> None:
    made = prepared(engine, "See ", url(DATA_URL), " there")
    assert made.prompt == (
        f"<|im_start|>user\nSee {MARKER} there<|im_end|>\n<|im_start|>assistant\n"
    )
    start, pad, end = (tower(engine).placeholder + i for i in (-1, 0, 1))
    (placed,) = made.options.images
    assert made.ids[placed.first : placed.end] == [pad] * 6  # 16 x 24 pixels
    assert made.ids[placed.first - 1] == start
    assert made.ids[placed.end] == end
    text = made.prompt.replace(TOKENS[1], TOKENS[1] * 6)
    assert made.ids == engine.tokenizer.encode(text, add_special=False, parse_special=True)
    assert placed.embedding.grid == (1, 2, 3)


def test_pictures_keep_their_order(engine: Engine) -> None:
    other = saved(Image.fromarray(drawn(8, 8, seed=9)))
    messages = [
        {"role": "user", "content": [{"type": "image", "image": PNG}, {"type": "image", "image": other}]},
        {"role": "assistant", "content": "Two."},
        {"role": "user", "content": [{"type": "text", "text": "And?"}, {"type": "image", "image": PNG}]},
    ]  # fmt: skip
    images = prepare(engine, ChatRequest(messages)).options.images
    assert [len(p.embedding) for p in images] == [6, 1, 6]
    assert images[0].embedding.digest == images[2].embedding.digest != images[1].embedding.digest
    assert [p.first for p in images] == sorted(p.first for p in images)


@pytest.mark.parametrize(
    "part",
    [
        url(DATA_URL),
        {"type": "image_url", "image_url": DATA_URL},
        {"type": "input_image", "image_url": DATA_URL, "detail": "high"},
        {"type": "image", "image": PNG},
        {"type": "image", "image": DATA_URL},
        {"type": "image", "url": DATA_URL},
        {"type": "image", "base64": base64.b64encode(PNG).decode()},
        {"type": "image", "image": Image.fromarray(drawn(16, 24))},
        {"type": "image", "image": drawn(16, 24)},
    ],
    ids=lambda part: "-".join(f"{k}:{type(v).__name__}" for k, v in part.items()),
)
def test_every_form_of_a_picture_gives_the_same_rows(engine: Engine, part: dict[str, Any]) -> None:
    expected = prepared(engine, url(DATA_URL)).options.images[0]
    found = prepared(engine, part).options.images[0]
    assert found.embedding.digest == expected.embedding.digest
    assert np.array_equal(found.embedding.rows, expected.embedding.rows)


def test_a_path_is_read_where_a_program_gives_it_and_never_where_it_is_text(
    engine: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "cat.png"
    file.write_bytes(PNG)
    assert len(prepared(engine, {"type": "image", "image": file}).options.images) == 1
    for part in (
        {"type": "image", "image": str(file)},
        {"type": "image", "url": f"file://{file}"},
        {"type": "image", "path": str(file)},
        url(str(file)),
        url(f"FILE://{file}"),
    ):
        with pytest.raises(RequestError):
            prepared(engine, part)


def test_low_detail_takes_fewer_tokens(tmp_path: Path) -> None:
    engine = seeing(tmp_path / "model.gguf")
    assert engine.image_reader is not None
    large = replace(ToyTower.processor, max_pixels=1 << 22)
    engine.image_reader = replace(engine.image_reader, processor=large)
    data = (
        "data:image/png;base64," + base64.b64encode(saved(Image.fromarray(drawn(80, 640)))).decode()
    )
    rows = {d: len(prepared(engine, url(data, detail=d)).ids) for d in ("low", "auto", "high")}
    assert rows["low"] < rows["auto"] == rows["high"]
    with pytest.raises(RequestError, match="detail is 'tiny'"):
        prepared(engine, url(data, detail="tiny"))


def test_a_template_without_pictures_gets_their_markers_as_text(tmp_path: Path) -> None:
    engine = seeing(tmp_path / "model.gguf", TEXT_TEMPLATE)
    made = prepared(engine, url(DATA_URL), "What is this?")
    assert f"user\n{MARKER}\nWhat is this?<|im_end|>" in made.prompt
    assert len(made.options.images) == 1


def test_a_template_that_reads_lists_alone_gets_lists(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{{ m.role }}:{% for part in m['content'] %}{% if part['type'] == 'text' %}"
        "{{ part['text'] }}{% elif part['type'] == 'image' %}" + MARKER + "{% endif %}{% endfor %};"
        "{% endfor %}"
    )  # fmt: skip
    engine = seeing(tmp_path / "model.gguf", template)
    for content in ("plain", [{"type": "text", "text": "plain"}]):
        messages = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": content},
        ]
        assert render(engine, ChatRequest(messages)) == "system:Be brief.;user:plain;"
    assert prepared(engine, "a", url(DATA_URL)).prompt == f"user:a{MARKER};"
    engine.image_reader = None
    assert prepared(engine, "text alone").prompt == "user:text alone;"


def test_placeholders_that_are_no_special_tokens_split_no_text_of_their_own(tmp_path: Path) -> None:
    engine = seeing(tmp_path / "model.gguf", TEXT_TEMPLATE, special=False)
    made = prepared(engine, "a", url(DATA_URL), "b")
    (placed,) = made.options.images
    assert made.ids[placed.first : placed.end] == [tower(engine).placeholder] * 6
    encode = engine.tokenizer.encode
    before = f"<|im_start|>user\na\n{TOKENS[0]}"
    assert made.ids[: placed.first] == encode(before, add_special=False, parse_special=True)


@pytest.mark.parametrize("text", [MARKER, TOKENS[1], f"x{TOKENS[1]}y"])
def test_a_text_may_not_forge_a_picture(engine: Engine, text: str) -> None:
    before = tower(engine).encoded
    with pytest.raises(RequestError, match="stands for a picture"):
        prepared(engine, text, url(DATA_URL))
    assert tower(engine).encoded - before <= 1


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (url("https://example.org/cat.png"), "--allow-image-urls"),
        (url("http://127.0.0.1/"), "--allow-image-urls"),
        (url("data:image/png;base64,AAAA"), "PNG, JPEG, WebP or GIF"),
        (url("data:image/svg+xml;base64,PHN2Zz4="), "SVG"),
        ({"type": "image_url"}, "neither an image nor the address"),
        ({"type": "image_url", "image_url": {}}, "neither an image nor the address"),
        ({"type": "image_url", "image_url": 3}, "not int"),
        ({"type": "image", "image": [1, 2]}, "not list"),
        ({"type": "input_audio", "input_audio": {}}, "text and pictures"),
    ],
)
def test_what_is_no_picture_is_refused(engine: Engine, part: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        prepared(engine, part)


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_only_users_and_tools_show_pictures(engine: Engine, role: str) -> None:
    messages = [
        {"role": role, "content": [url(DATA_URL)]},
        {"role": "user", "content": "hi"},
    ]
    with pytest.raises(RequestError, match=f"not of {role}"):
        prepare(engine, ChatRequest(messages))
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "tool", "tool_call_id": "a", "content": [url(DATA_URL)]},
    ]
    assert len(prepare(engine, ChatRequest(messages)).options.images) == 1


def test_a_model_without_a_tower_says_so(tmp_path: Path) -> None:
    engine = seeing(tmp_path / "model.gguf")
    engine.image_reader = None
    with pytest.raises(RequestError, match="the model reads text only"):
        prepared(engine, url(DATA_URL))


def test_pictures_are_counted_before_they_are_encoded(engine: Engine) -> None:
    assert engine.image_reader is not None
    before = tower(engine).encoded
    many = [url(DATA_URL)] * (engine.image_reader.most_images + 1)
    with pytest.raises(RequestError, match="33 pictures, more than 32"):
        prepared(engine, *many)
    assert tower(engine).encoded == before
    counted: list[int] = []

    def watch(tokens: int) -> None:
        counted.append(tokens)
        if tokens > 12:
            raise RequestError("too long")

    content = [url(DATA_URL)] * 3
    with pytest.raises(RequestError, match="too long"):
        prepare(engine, ChatRequest([{"role": "user", "content": content}]), watch=watch)
    assert max(counted) == 18
    assert tower(engine).encoded == before + 2


def test_limits_hold_in_conversations(engine: Engine) -> None:
    assert engine.image_reader is not None
    small = replace(engine.image_reader, limits=ImageLimits(max_bytes=len(PNG) - 1))
    part = url(DATA_URL)
    with pytest.raises(RequestError, match="more than"):
        small.read_part(part)
    few = replace(engine.image_reader, limits=ImageLimits(max_pixels=100))
    with pytest.raises(RequestError, match="16 pixels, more than 100"):
        few.read_part(part)


def test_bounds_of_tokens_are_those_of_the_processor(engine: Engine) -> None:
    assert engine.image_reader is not None
    part = {"type": "image", "image": ODD_PICTURES["square"]}
    rows = [
        len(p) for most in (1, 4, 9) for p in engine.image_reader.with_tokens(None, most).read_part(part)
        if not isinstance(p, str)
    ]  # fmt: skip
    assert rows == [1, 4, 9]
    assert engine.image_reader.with_tokens(None, None) is engine.image_reader
    fixed = replace(engine.image_reader, processor=Gemma3Processor(64))
    with pytest.raises(UnsupportedError, match="--image-max-tokens"):
        fixed.with_tokens(None, 5)
