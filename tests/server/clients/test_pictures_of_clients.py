"""Official clients send pictures in every form that they have: Python's and JavaScript's."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import node_clients
import pytest
from odd_pictures import drawn, saved
from PIL import Image
from real_server import real_server
from running_server import RunningServer
from vision_model import write_vision_model
from weather import address

pytestmark = pytest.mark.suite

TEXT = "What is this?"
ROWS = 35  # of 40 x 56 pixels
AROUND = 2  # tokens before and behind them


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("seeing-server")
    with real_server(
        write_vision_model(folder), folder, "--alias", "served", "--parity", "off"
    ) as it:
        yield it


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("picture") / "cat.png"
    path.write_bytes(saved(Image.fromarray(drawn(40, 56))))
    return path


def test_openais_python_client(server: RunningServer, picture: Path) -> None:
    openai = pytest.importorskip("openai", reason="the openai package is not installed")
    client = openai.OpenAI(base_url=f"{address(server)}/v1", api_key="none", max_retries=0)
    data = "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()

    def chat(*parts: Any) -> int:
        content = [*parts, {"type": "text", "text": TEXT}]
        messages = [{"role": "user", "content": content}]
        answer = client.chat.completions.create(model="served", messages=messages, max_tokens=4)
        return int(answer.usage.prompt_tokens)

    def respond(*parts: Any) -> int:
        content = [*parts, {"type": "input_text", "text": TEXT}]
        answer = client.responses.create(
            model="served", input=[{"role": "user", "content": content}], max_output_tokens=4
        )
        return int(answer.usage.input_tokens)

    file = client.files.create(file=picture, purpose="vision")
    image_url = {"type": "image_url", "image_url": {"url": data, "detail": "auto"}}
    assert chat(image_url) - chat() == ROWS + AROUND
    for image in ({"image_url": data}, {"file_id": file.id, "detail": "low"}):
        assert respond({"type": "input_image", **image}) - respond() == ROWS + AROUND
    with pytest.raises(openai.BadRequestError, match="--allow-image-urls"):
        chat({"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}})


def test_anthropics_python_client(server: RunningServer, picture: Path) -> None:
    anthropic = pytest.importorskip("anthropic", reason="the anthropic package is not installed")
    client = anthropic.Anthropic(base_url=address(server), api_key="none", max_retries=0)
    data = base64.b64encode(picture.read_bytes()).decode()

    def ask(*blocks: Any) -> tuple[int, int]:
        messages = [{"role": "user", "content": [*blocks, {"type": "text", "text": TEXT}]}]
        counted = client.messages.count_tokens(model="served", messages=messages)
        answer = client.messages.create(model="served", messages=messages, max_tokens=4)
        used = answer.usage.input_tokens + answer.usage.cache_read_input_tokens
        return int(counted.input_tokens), int(used)

    source = {"type": "base64", "media_type": "image/png", "data": data}
    seen, plain = ask({"type": "image", "source": source}), ask()
    assert seen[0] == seen[1] == plain[0] + ROWS + AROUND
    url = {"type": "url", "url": f"data:image/png;base64,{data}"}
    assert ask({"type": "image", "source": url}) == seen


def test_javascript_clients(server: RunningServer, picture: Path, node_folder: Path) -> None:
    found = node_clients.run(node_folder, "pictures.mjs", address(server), picture)
    assert len(set(found["plain"])) == 1
    assert found["seen"] == [found["plain"][0] + ROWS + AROUND] * 5
