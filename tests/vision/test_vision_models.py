"""A model that sees, end to end: its tower is found, pictures reach the text, every face gives the same."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from odd_pictures import ODD_PICTURES, drawn, saved
from PIL import Image
from vision_model import TOKEN_PIXELS, write_tower, write_vision_model

import oxibonsai
import tiny_model
from oxibonsai import LLM, AutoModelForImageTextToText, AutoProcessor, SamplingParams
from oxibonsai.cli.chat import chat
from oxibonsai.cli.run import run
from oxibonsai.engine import Engine, EnginePool
from oxibonsai.errors import FormatError, RequestError, SourceError, UnsupportedError
from oxibonsai.vision.processors import Qwen2VLProcessor

PICTURE = drawn(40, 56)
ROWS = 35
GREEDY = SamplingParams(max_tokens=12, temperature=0)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vision_model(tmp_path_factory.mktemp("sees"))


@pytest.fixture(scope="module")
def engine(path: Path) -> Engine:
    return oxibonsai.load(path)


def asks(text: str, *pictures: Any) -> list[dict[str, Any]]:
    parts = [{"type": "image", "image": picture} for picture in pictures]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]


def tokens(engine: Any, messages: list[dict[str, Any]]) -> list[int]:
    reply = engine.chat(messages, GREEDY)
    list(reply)
    generated: list[int] = reply.sequence.generated
    return generated


def test_the_answer_depends_on_the_picture(engine: Engine) -> None:
    seen = [tokens(engine, asks("What?", drawn(40, 56, seed=s))) for s in (0, 1, 0)]
    assert seen[0] == seen[2] != seen[1]
    assert tokens(engine, asks("What?")) != seen[0]


def test_a_second_question_about_a_picture_finds_it_in_the_cache(path: Path) -> None:
    engine: Any = oxibonsai.load(path)
    pictures = [PICTURE, drawn(48, 40)]
    first = engine.chat(asks("One?", *pictures), GREEDY)
    list(first)
    second = engine.chat(asks("Two, then?", *pictures), GREEDY)
    list(second)
    assert second.sequence.num_cached == 64
    third = engine.chat(asks("Two, then?", drawn(40, 56, seed=3), pictures[1]), GREEDY)
    list(third)
    assert third.sequence.num_cached == 0
    plain = oxibonsai.load(path, prefix_cache=False)
    assert tokens(plain, asks("Two, then?", *pictures)) == second.sequence.generated


@pytest.mark.parametrize("cached", [True, False])
def test_rows_that_were_given_up_are_computed_where_they_are_read(path: Path, cached: bool) -> None:
    engine: Any = oxibonsai.load(path, prefix_cache=cached)
    engine.image_reader.tower._kept_bytes = 0  # the last picture's rows stay
    asked = asks("One?", PICTURE, drawn(48, 40))
    truth = tokens(engine, asked)
    reply = engine.chat(asked, GREEDY)
    first, second = (image.embedding for image in reply.sequence.options.images)
    assert (first.is_encoded, second.is_encoded) == (False, True)
    list(reply)
    assert reply.sequence.generated == truth
    # Its rows lie in cached pages, as far as there are any.
    assert reply.sequence.num_cached == (64 if cached else 0)
    assert first.is_encoded is not cached


def test_pictures_of_all_kinds_are_answered(engine: Engine) -> None:
    for name, data in ODD_PICTURES.items():
        assert len(tokens(engine, asks("What?", data))) > 0, name


def test_a_batch_gives_the_bytes_of_each_alone(path: Path, engine: Engine) -> None:
    conversations = [
        asks("What is this?", PICTURE),
        asks("No picture."),
        asks("Both?", PICTURE, drawn(16, 16)),
    ]
    alone = [tokens(engine, c) for c in conversations]
    with LLM(path) as llm:
        outputs = llm.chat(conversations, GREEDY)
        assert [o.outputs[0].token_ids for o in outputs] == alone
        count = len(outputs[0].prompt_token_ids)
        assert count == len(outputs[1].prompt_token_ids) + ROWS + 2 + len("What is this?") - len(
            "No picture."
        )


def test_bounds_on_the_tokens_of_a_picture(path: Path) -> None:
    few = oxibonsai.load(path, image_max_tokens=4)
    assert few.image_reader is not None
    assert isinstance(few.image_reader.processor, Qwen2VLProcessor)
    assert few.image_reader.processor.max_pixels == 4 * TOKEN_PIXELS
    reply = few.chat(asks("", PICTURE), GREEDY)
    assert len(reply.sequence.options.images[0].embedding) <= 4
    with pytest.raises(RequestError, match="image_max_tokens is 0"):
        oxibonsai.load(path, image_max_tokens=0)
    with pytest.raises(RequestError, match="--mmproj"):
        oxibonsai.load(path, mmproj=False, image_max_tokens=4)


@pytest.mark.parametrize(
    ("bounds", "rows"),
    [({}, ROWS), ({"image_max_tokens": 12}, 8), ({"image_min_tokens": 40, "image_max_tokens": 70}, 48)],
)  # fmt: skip
def test_the_same_bounds_everywhere_give_the_same_prompt(
    bounds: dict[str, int], rows: int, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In ``load``, ``LLM``, ``from_pretrained``, ``run``, ``chat``, ``serve`` and its variables."""
    from model_app import close_model_app, make_model_app

    file = tmp_path / "cat.png"
    file.write_bytes(saved(Image.fromarray(PICTURE)))
    flags = [t for k, v in bounds.items() for t in (f"--{k.replace('_', '-')}", str(v))]
    counts: dict[str, int] = {}
    reply: Any = oxibonsai.load(path, **bounds).chat(asks("Hi", PICTURE), GREEDY)
    (image,) = reply.sequence.options.images
    assert len(image.embedding) == rows
    counts["load"] = reply.sequence.num_prompt_tokens
    with LLM(path, **bounds) as llm:
        (output,) = llm.chat([asks("Hi", PICTURE)], GREEDY)
        counts["LLM"] = len(output.prompt_token_ids)
    model = AutoModelForImageTextToText.from_pretrained(path, **bounds)
    inputs = AutoProcessor.from_pretrained(model).apply_chat_template(
        asks("Hi", PICTURE), tokenize=True, add_generation_prompt=True, return_tensors="np"
    )
    counts["from_pretrained"] = inputs["input_ids"].shape[1]
    common = ["-m", str(path), *flags, "--image", str(file), "--max-tokens", "2", "--json"]
    done = CliRunner().invoke(run, [*common, "Hi"], catch_exceptions=False)
    counts["run"] = len(json.loads(done.stdout)["prompt_tokens"])
    done = CliRunner().invoke(chat, common, input="Hi\n", catch_exceptions=False)
    counts["chat"] = json.loads(done.stdout.splitlines()[0])["prompt_tokens"]
    url = "data:image/png;base64," + base64.b64encode(file.read_bytes()).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "Hi"}]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
    for name, values in (("serve", bounds), ("variables", {})):
        if not values:
            for key, value in bounds.items():
                monkeypatch.setenv(f"OXIBONSAI_{key.upper()}", str(value))
        app = make_model_app(path, tmp_path / name, **values)
        try:
            answer = app.test_client().post("/v1/chat/completions", json=body)
            counts[name] = answer.get_json()["usage"]["prompt_tokens"]
        finally:
            close_model_app(app)
    assert set(counts.values()) == {counts["load"]}, counts


def test_a_tower_is_found_named_or_left_out(path: Path, tmp_path: Path) -> None:
    model = tmp_path / "eyes-Q1_0.gguf"
    shutil.copy(path, model)
    assert oxibonsai.load(model).image_reader is None
    own = path.with_name("mmproj-eyes-F32.gguf")
    assert oxibonsai.load(model, mmproj=own).image_reader is not None
    assert oxibonsai.load(path, mmproj=False).image_reader is None
    with pytest.raises(SourceError, match="does not exist"):
        oxibonsai.load(model, mmproj=tmp_path / "none.gguf")
    # One of another model lies beside it, then the right one, too.
    write_tower(
        tmp_path / "mmproj-eyes-F16.gguf",
        {"clip.vision.is_deepstack_layers": ([True, False, False], "arr[bool]")},
        deep=[True, False, False],
    )
    with pytest.warns(UserWarning, match=r"mmproj-eyes-F16\.gguf is not used: .*another model"):
        assert oxibonsai.load(model).image_reader is None
    shutil.copy(own, tmp_path / "mmproj-eyes-BF16.gguf")
    assert oxibonsai.load(model).image_reader is not None


def test_the_tower_of_another_model_is_refused(path: Path, tmp_path: Path) -> None:
    tower = tmp_path / "mmproj.gguf"
    write_tower(
        tower,
        {"clip.vision.is_deepstack_layers": ([True, False, False], "arr[bool]")},
        deep=[True, False, False],
    )
    with pytest.raises(RequestError, match="is the tower of another model: it makes rows of 256"):
        oxibonsai.load(path, mmproj=tower)
    text = tmp_path / "text.gguf"
    tiny_model.write(text)
    with pytest.raises(RequestError, match=r"no token <\|image_pad\|>"):
        oxibonsai.load(text, mmproj=path.with_name("mmproj-eyes-F32.gguf"))
    with pytest.raises(FormatError):
        oxibonsai.load(path, mmproj=path)
    write_tower(tower, {"clip.projector_type": ("cyclops", "str")})
    with pytest.raises(UnsupportedError, match="cyclops"):
        oxibonsai.load(path, mmproj=tower)


def test_replicas_share_a_tower(path: Path) -> None:
    pool = EnginePool.from_pretrained(path, replicas=2, threads=2)
    try:
        first, second = pool.engines
        assert first.image_reader is second.image_reader is not None
    finally:
        pool.close()


def test_the_command_line_sees(path: Path, engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "cat.png"
    file.write_bytes(saved(Image.fromarray(PICTURE)))
    line = ["-m", str(path), "--image", str(file), "--temp", "0", "--max-tokens", "12", "--json"]
    done = CliRunner().invoke(run, [*line, "What?"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["tokens"] == tokens(engine, asks("What?", PICTURE))
    fewer = CliRunner().invoke(run, [*line, "--image-max-tokens", "4", "What?"])
    assert len(json.loads(fewer.stdout)["prompt_tokens"]) <= len(result["prompt_tokens"]) - 31
    for options in (["--no-mmproj"], ["--no-mmproj-auto"]):
        with pytest.raises(RequestError, match="--mmproj"):
            CliRunner().invoke(run, [*line, *options, "What?"], catch_exceptions=False)


def test_the_server_sees(path: Path, engine: Engine, tmp_path: Path) -> None:
    from model_app import close_model_app, make_model_app

    url = "data:image/png;base64," + base64.b64encode(saved(Image.fromarray(PICTURE))).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What?"}]
    body = {
        "messages": [{"role": "user", "content": content}],
        "temperature": 0, "max_tokens": 12, "seed": 1,
    }  # fmt: skip
    app = make_model_app(path, tmp_path / "a", max_images=1, image_max_tokens=24)
    try:
        client = app.test_client()
        assert client.get("/props").get_json()["modalities"]["vision"] is True
        answer = client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        usage = answer.get_json()["usage"]
        reply: Any = oxibonsai.load(path, image_max_tokens=24)
        reply = reply.chat(asks("What?", PICTURE), GREEDY)
        assert usage["prompt_tokens"] == reply.sequence.num_prompt_tokens
        list(reply)
        assert answer.get_json()["choices"][0]["message"]["content"] == reply.reply.content
        body["messages"] = [{"role": "user", "content": content * 2}]
        refused = client.post("/v1/chat/completions", json=body)
        assert (refused.status_code, "more than 1" in refused.text) == (400, True)
        reader = app.submitter.engine.image_reader
        assert reader is not None
        assert reader.fetch is None
    finally:
        close_model_app(app)
    app = make_model_app(path, tmp_path / "b", mmproj_auto=False, allow_image_urls=True)
    try:
        assert app.test_client().get("/props").get_json()["modalities"]["vision"] is False
    finally:
        close_model_app(app)
    app = make_model_app(path, tmp_path / "c", allow_image_urls=True)
    try:
        reader = app.submitter.engine.image_reader
        assert reader is not None
        assert reader.fetch is not None
    finally:
        close_model_app(app)


def test_logits_do_not_depend_on_chunks(engine: Engine) -> None:
    from oxibonsai.chat import ChatRequest, prepare

    prepared = prepare(engine, ChatRequest(asks("What is this?", PICTURE)))
    whole = engine.logits(prepared.ids, images=prepared.options.images)
    for size in (1, 7, 64):
        assert np.array_equal(
            engine.logits(prepared.ids, size, images=prepared.options.images), whole
        )
