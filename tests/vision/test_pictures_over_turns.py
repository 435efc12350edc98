"""A conversation with pictures, over HTTP: each picture is encoded and read once, however it goes on.

The model is a small Bonsai 2, whose delta rules keep snapshots of their state. An answer is that of a
server which keeps nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")
from bonsai2_vision import write_model
from model_app import close_model_app, make_model_app
from odd_pictures import drawn, saved
from PIL import Image

from oxibonsai.convert.language_model import convert
from oxibonsai.convert.vision_tower import convert_tower
from oxibonsai.server.server import Server
from oxibonsai.vision import ImageEmbedding, PixelGrid, Tower
from oxibonsai.vision.towers.qwen3vl import Qwen3VLTower

pytestmark = pytest.mark.hf
CONTEXT = 1024
Serve = Callable[..., Server]
Message = dict[str, Any]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two files that are published."""
    place = tmp_path_factory.mktemp("sees")
    write_model(place / "folder")
    convert(place / "folder", place / "bonsai.gguf", dtype="f32")
    convert_tower(place / "folder", place / "bonsai-mmproj.gguf")
    return place / "bonsai.gguf"


@pytest.fixture
def serve(model: Path, tmp_path: Path) -> Iterator[Serve]:
    """Starts servers, which end with the test."""
    running: list[Server] = []

    def start(**values: Any) -> Server:
        settings = {"ctx_size": CONTEXT, "parallel": 1, **values}
        running.append(make_model_app(model, tmp_path / f"state{len(running)}", **settings))
        return running[-1]

    yield start
    for server in running:
        close_model_app(server)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The sides of every picture for which a tower runs."""
    found: list[tuple[int, ...]] = []
    encode = Qwen3VLTower.encode

    def counting(
        self: Qwen3VLTower, pixels: PixelGrid, digest: bytes
    ) -> list[str | ImageEmbedding]:
        found.append(pixels.pixels.shape[2:])
        return encode(self, pixels, digest)

    monkeypatch.setattr(Qwen3VLTower, "encode", counting)
    return found


def keep_no_rows(server: Server) -> None:
    """As a tower does whose pictures need more room than it has: only the last one's rows stay."""
    reader = server.submitter.engine.image_reader
    assert reader is not None
    assert isinstance(reader.tower, Tower)
    reader.tower._kept_bytes = 0


def picture(height: int, width: int) -> Message:
    data = base64.b64encode(saved(Image.fromarray(drawn(height, width)))).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


WIDE, HIGH, THIRD, FOURTH = (picture(*s) for s in ((40, 300), (300, 50), (120, 90), (64, 200)))


def text(said: str) -> Message:
    return {"type": "text", "text": said}


def user(*parts: Message) -> Message:
    return {"role": "user", "content": [*parts]}


@dataclass
class Turn:
    """One request.

    Attributes:
        answer: Its message and the logarithms of its tokens' probabilities.
        content: What the message says.
        read: Prompt tokens that were read for it.
        cached: Prompt tokens that were found.
        new: Prompt tokens that no earlier text began with.
    """

    answer: tuple[Any, Any]
    content: str
    read: int
    cached: int
    new: int


@dataclass
class Client:
    """Talks to a server, and knows what its prompts share."""

    server: Server
    texts: list[list[int]] = field(default_factory=list)

    def ask(self, messages: list[Message], seed: int = 0, **more: Any) -> Turn:
        body = {
            "messages": messages, "max_tokens": 12, "seed": seed, "logprobs": True,
            "temperature": 0.0 if seed % 2 else 1.0, "ignore_eos": True, **more,
        }  # fmt: skip
        answer = self.server.test_client().post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        whole = answer.get_json()
        slots = self.server.submitter.slots.slots
        sequence = max(slots, key=lambda s: s.task).sequence
        assert sequence is not None
        ids = sequence.cache_ids[: sequence.num_prompt_tokens]  # pictures by their content
        assert whole["usage"]["prompt_tokens"] == len(ids)
        known = max((common(ids, earlier) for earlier in self.texts), default=0)
        self.texts.append(list(sequence.cache_ids))
        (choice,) = whole["choices"]
        turn = Turn(
            (choice["message"], choice["logprobs"]),
            choice["message"]["content"],
            whole["timings"]["prompt_n"],
            whole["usage"]["prompt_tokens_details"]["cached_tokens"],
            len(ids) - known,
        )
        assert turn.read + turn.cached == len(ids)
        return turn


def common(a: list[int], b: list[int]) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def said(turn: Turn) -> Message:
    return {"role": "assistant", "content": turn.content}


def conversation(client: Client) -> list[tuple[list[Message], Turn]]:
    """Two pictures, a question about them, a third picture; then the last turn is edited twice."""
    turns: list[tuple[list[Message], Turn]] = []
    messages = [user(WIDE, HIGH, text("Which one is wide?"))]

    def go(*more: Message) -> None:
        asked = [*messages, *more]
        turns.append((asked, client.ask(asked, seed=len(turns))))

    go()
    messages += [said(turns[-1][1]), user(text("And which one is high, then?"))]
    go()
    messages.append(said(turns[-1][1]))
    go(user(text("Another: "), THIRD, text(" What is this?")))
    go(user(text("Another: "), THIRD, text(" Is it red?")))  # edited behind its picture
    go(user(text("Another: "), FOURTH, text(" Is it red?")))  # the picture is another one
    go(user(text("No picture.")))
    return turns


# Pictures for which a tower runs, turn by turn.
RUNS = [2, 0, 1, 0, 1, 0]


@pytest.mark.parametrize("keeps", [True, False], ids=["rows kept", "rows given up"])
def test_each_picture_is_encoded_and_read_once(
    keeps: bool, serve: Serve, encoded: list[tuple[int, ...]]
) -> None:
    server = serve()
    if not keeps:
        keep_no_rows(server)
    client, runs = Client(server), []
    ask = client.ask

    def counted(*arguments: Any, **named: Any) -> Turn:
        before = len(encoded)
        turn = ask(*arguments, **named)
        runs.append(len(encoded) - before)
        return turn

    client.ask = counted  # type: ignore[method-assign]
    turns = conversation(client)
    assert runs == RUNS
    for _, turn in turns:
        # A turn's head is read again, and what is less than a step behind a snapshot.
        assert turn.read <= turn.new + 20
    fresh = Client(serve(cache_ram=0))
    for number, (messages, turn) in enumerate(turns):
        again = fresh.ask(messages, seed=number)
        assert again.cached == 0
        assert again.answer == turn.answer, number


def test_a_picture_that_is_encoded_late_waits_for_its_turn(serve: Serve) -> None:
    """As one that is read: no number of requests blocks all threads at the tower."""
    server = serve(cache_ram=0)
    keep_no_rows(server)
    client = Client(server)
    messages = [user(WIDE, HIGH, text("Which one is wide?"))]
    client.ask(messages)
    engine = server.submitter.engine
    assert engine.image_reader is not None
    entered: list[object] = []
    queue = engine.image_reader.queue
    enter = queue.enter

    def counted(look: Callable[[], None] | None = None) -> Callable[[], None]:
        entered.append(look)
        return enter(look)

    queue.enter = counted  # type: ignore[method-assign]
    client.ask(messages)
    assert len(entered) == 3, "two pictures are read, and then encoded"
    assert None not in entered


def test_pages_that_were_taken_are_read_again_and_their_pictures_encoded(
    serve: Serve, encoded: list[tuple[int, ...]]
) -> None:
    """Another text fills the whole cache, and there is no memory for what leaves it."""
    server = serve(cache_ram=1, ctx_size=384)
    keep_no_rows(server)
    client = Client(server)
    messages = [user(WIDE, HIGH, text("Which one is wide?"))]
    first = client.ask(messages)
    messages += [said(first), user(text("And which one is high?"))]
    before = len(encoded)
    filler = {"prompt": [200] * 370, "n_predict": 1}
    assert server.test_client().post("/completion", json=filler).status_code == 200
    again = client.ask(messages)
    fresh = Client(serve(cache_ram=0)).ask(messages)
    assert again.answer == fresh.answer
    assert (again.cached == 0) == (len(encoded) - before > 2), "a picture is encoded if it is read"
