"""What one timed request reports; its times are in test_load_timing.py."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from loadtest.fake_server import FakeServer
from oxibonsai.errors import OxiBonsaiError, RequestError
from oxibonsai.loadtest.client import ChatClient, Sample

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}


def ask(server: FakeServer, *, timeout: float = 60, api_key: str | None = None) -> Sample:
    async def go() -> Sample:
        async with ChatClient(server.url, timeout=timeout, api_key=api_key) as client:
            return await client.chat(BODY)

    return asyncio.run(go())


def test_tokens_are_the_servers_own_count(server: FakeServer) -> None:
    sample = ask(server)
    assert sample.error is None
    assert (sample.output_tokens, sample.counted_by_server) == (6, True)
    assert (sample.prompt_tokens, sample.cached_tokens) == (40, 10)
    assert len(sample.arrivals) == 5
    assert len(sample.gaps) == 4


def test_chunks_are_counted_where_there_is_no_usage(server: FakeServer) -> None:
    server.usage = False
    sample = ask(server)
    assert (sample.output_tokens, sample.counted_by_server) == (5, False)
    assert sample.prompt_tokens is None


def test_usage_is_asked_for_and_the_key_is_sent(server: FakeServer) -> None:
    ask(server, api_key="secret")
    assert server.requests == [BODY | {"stream": True, "stream_options": {"include_usage": True}}]
    assert "Bearer secret" in server.headers[0]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "tool_calls"])
def test_reasoning_and_tool_calls_are_usable_tokens(field: str) -> None:
    from oxibonsai.loadtest.client import _Stream

    stream = _Stream()
    stream.take(b'{"choices": [{"delta": {"role": "assistant", "content": ""}}]}', 1.0)
    stream.take(f'{{"choices": [{{"delta": {{"{field}": "x"}}}}]}}'.encode(), 2.0)
    assert stream.arrivals == [2.0]


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        ("cut", "the stream ended without [DONE]"),
        ("handed over", "the stream ended without a finish_reason"),
        ("error", "error in the stream: out of pages"),
        ("garbage", "an event is no chunk: b'{not json'"),
    ],
)
def test_a_stream_that_is_not_whole_is_an_error(
    server: FakeServer, ending: str, error: str
) -> None:
    server.ending = ending
    sample = ask(server)
    assert sample.error == error
    assert len(sample.arrivals) == 5


def test_a_refusal_is_an_error_with_the_servers_words(server: FakeServer) -> None:
    server.status = 429
    assert ask(server).error == "HTTP 429: queue is full"


def test_an_answer_that_takes_too_long_is_an_error(server: FakeServer) -> None:
    server.ttft = 30
    sample = ask(server, timeout=0.2)
    assert sample.error == "no whole answer in 0.2 s"
    assert sample.ttft is None


def test_an_unreachable_server_is_an_error_of_the_request() -> None:
    sample = ask(FakeServer(port=9))
    assert sample.error is not None
    assert sample.error.startswith("ConnectError")


def test_the_first_model_is_found(server: FakeServer) -> None:
    async def go(url: str) -> str:
        async with ChatClient(url) as client:
            return await client.first_model()

    assert asyncio.run(go(server.url)) == "fake-model"
    with pytest.raises(OxiBonsaiError, match="gave no list of models"):
        asyncio.run(go("http://127.0.0.1:9/v1"))


def test_a_malformed_url_is_refused() -> None:
    with pytest.raises(RequestError, match="is no URL"):
        ChatClient("http://127.0.0.1:port/v1")


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    for i in range(0, len(data), size):
        yield data[i : i + size]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_may_be_cut_anywhere(size: int) -> None:
    from oxibonsai.loadtest.client import _events

    async def collect() -> list[bytes]:
        async def pieces():  # type: ignore[no-untyped-def]
            for piece in _pieces(b": ping\r\n\r\ndata: one\r\n\r\ndata:two\n\nevent: x\n", size):
                yield piece

        return [event async for event in _events(pieces())]

    assert asyncio.run(collect()) == [b"one", b"two"]
