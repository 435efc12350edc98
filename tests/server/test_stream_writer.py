"""The engine's thread writes the streams of clients that keep up; others are handed back."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from flask import Flask

from oxibonsai.errors import CapacityError
from oxibonsai.server.http.stream_writer import OutputEvent, StreamWriter, writable_socket
from oxibonsai.server.sse import stream_response


class Text:
    """Frames that the test adds, as a text that grows."""

    def __init__(self, writer: StreamWriter) -> None:
        self.output_event = OutputEvent(writer)
        self._writer = writer
        self._new: queue.SimpleQueue[str | Exception | None] = queue.SimpleQueue()
        self.thread = ""  # that took the newest frame

    def add(self, *frames: str | Exception | None) -> None:
        """A step of the engine makes new frames; None ends the text."""
        for frame in frames:
            self._new.put(frame)
        self.output_event.set()
        self._writer.write()

    def frames(self) -> Iterator[str | None]:
        while True:
            self.output_event.clear()
            with contextlib.suppress(queue.Empty):
                while True:
                    frame = self._new.get_nowait()
                    self.thread = threading.current_thread().name
                    if frame is None:
                        return
                    if isinstance(frame, Exception):
                        raise frame
                    yield frame
            if not self.output_event.wait(self.output_event.poll_timeout):
                yield None


def chunk(text: str) -> bytes:
    """A chunk of an HTTP answer."""
    data = text.encode()
    return b"%X\r\n%b\r\n" % (len(data), data)


class Stream:
    """A text, its client, and the thread of its request, which hands the stream to the writer."""

    def __init__(self, writer: StreamWriter, threads: ThreadPoolExecutor) -> None:
        self.text = Text(writer)
        self.ours, self.client = socket.socketpair()
        self.ours.settimeout(20)
        self.client.settimeout(20)
        self.stopping = False
        self.came_back = 0
        self.ended: Future[None] = threads.submit(self._follow)

    def _follow(self) -> None:
        frames = self.text.frames()
        with self.ours:
            for frame in frames:
                if frame is not None:
                    self.ours.sendall(chunk(frame))
                if self.stopping:
                    return
                self.text.output_event.hand_over(self.ours, frames, lambda: self.stopping)
                self.came_back += 1
                assert self.ours.gettimeout() == 20

    def received(self) -> str:
        """The text of one chunk that the client has got."""
        header = b""
        while not header.endswith(b"\r\n"):
            header += self._bytes(1)
        size = int(header, 16)
        data = self._bytes(size + 2)
        assert data.endswith(b"\r\n")
        return data[:-2].decode()

    def _bytes(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            piece = self.client.recv(count - len(found))
            assert piece, f"the stream ended after {bytes(found)!r}"
            found += piece
        return bytes(found)


Begin = Callable[[], Stream]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Makes streams of one writer."""
    writer, streams = StreamWriter(), []
    with ThreadPoolExecutor(4) as threads:

        def make() -> Stream:
            streams.append(Stream(writer, threads))
            return streams[-1]

        yield make
        for stream in streams:
            stream.stopping = True
            stream.text.add(None)
            stream.client.close()


def test_the_engines_thread_writes_all_streams_that_grow(begin: Begin) -> None:
    streams = [begin(), begin()]
    writers: set[str] = set()
    for i in range(100):
        for stream in streams:
            stream.text.add(f"für {i}")
            assert stream.received() == f"für {i}"
            writers.add(stream.text.thread)
    assert threading.current_thread().name in writers


def test_a_text_that_pauses_comes_back_and_goes_on(begin: Begin) -> None:
    stream = begin()
    stream.text.add("one")
    assert stream.received() == "one"
    while stream.came_back == 0:
        time.sleep(0.01)
    stream.text.add("two")
    assert stream.received() == "two"
    stream.text.add(None)
    stream.ended.result(20)


def test_a_client_that_does_not_read_stops_nobody_and_loses_nothing(begin: Begin) -> None:
    slow, quick = begin(), begin()
    long = "x" * 4_000_000
    slow.text.add(long)
    for i in range(20):
        quick.text.add(f"word {i}")
        assert quick.received() == f"word {i}"
    assert slow.received() == long
    slow.text.add("the end", None)
    assert slow.received() == "the end"
    slow.ended.result(20)


def test_what_the_text_raises_is_raised_for_its_request(begin: Begin) -> None:
    stream, other = begin(), begin()
    stream.text.add("one", ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        stream.ended.result(20)
    assert stream.received() == "one"
    other.text.add("two")
    assert other.received() == "two"


def test_a_client_that_left_ends_its_stream(begin: Begin) -> None:
    stream = begin()
    stream.client.close()
    stream.text.add("one")
    with pytest.raises(ConnectionError):
        stream.ended.result(20)


def test_streams_come_back_when_the_server_stops(begin: Begin) -> None:
    stream = begin()
    stream.text.add("one")
    assert stream.received() == "one"
    stream.stopping = True
    stream.ended.result(20)


def test_an_error_comes_after_the_text_before_it_although_the_client_is_slow(begin: Begin) -> None:
    stream = begin()
    stream.text.add("one")
    assert stream.received() == "one"
    long = "y" * 10_000_000  # more than the socket holds
    stream.text.add(long, CapacityError("too much"))
    assert stream.received() == long
    with pytest.raises(CapacityError):
        stream.ended.result(20)


def test_what_came_together_is_written_together(begin: Begin) -> None:
    stream = begin()
    stream.text.add("one", "two", "three", None)
    assert stream.received() == "one"
    assert stream.received() == "twothree"
    stream.ended.result(20)
    assert stream.came_back == 1


def test_a_step_that_ends_while_a_stream_is_taken_over_is_not_missed() -> None:
    writer = StreamWriter()
    output_event = OutputEvent(writer)

    def frames() -> Iterator[str | None]:
        output_event.set()  # the last step, behind our look at what there is
        writer.write()
        yield None
        yield "one"

    ours, client = socket.socketpair()
    with ours, client:
        output_event.hand_over(ours, frames(), lambda: False)
        client.setblocking(False)
        assert client.recv(100) == chunk("one")


def test_what_a_text_holds_can_be_freed_while_its_client_does_not_read(begin: Begin) -> None:
    stream, relieved = begin(), threading.Event()
    stream.text.output_event.release_finished = relieved.set
    stream.text.add("one")
    assert stream.received() == "one"
    long = "y" * 10_000_000  # more than the socket holds
    stream.text.add(long, None)
    assert relieved.wait(20)
    assert stream.received() == long
    stream.ended.result(20)


def test_a_text_that_shows_nothing_comes_back(begin: Begin) -> None:
    """Control tokens, halves of characters: somebody has to look after the client meanwhile."""
    stream = begin()
    stream.text.add("one")
    assert stream.received() == "one"
    before, deadline = stream.came_back, time.monotonic() + 60
    while stream.came_back == before:
        assert time.monotonic() < deadline
        stream.text.add("")
        time.sleep(0.01)


def test_nothing_is_written_before_the_header() -> None:
    writer = StreamWriter()
    output_event = OutputEvent(writer)
    ours, client = socket.socketpair()

    def frames() -> Iterator[str | None]:
        output_event.set()  # a token without text
        yield None
        yield "one"

    environ = {"gunicorn.socket": ours, "SERVER_PROTOCOL": "HTTP/1.1"}
    with ours, client, Flask("x").test_request_context(environ_base=environ):
        response = stream_response(
            frames(), close=lambda: None, stopping=lambda: False, output_event=output_event
        )
        assert next(iter(response.response)) == "one"  # which the server sends behind the header
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)


def test_only_chunks_on_a_plain_socket_are_written_past_the_server() -> None:
    ours, client = socket.socketpair()
    with ours, client:
        environ = {"gunicorn.socket": ours, "SERVER_PROTOCOL": "HTTP/1.1"}
        assert writable_socket(environ) is ours
        assert writable_socket({**environ, "SERVER_PROTOCOL": "HTTP/1.0"}) is None
        assert writable_socket({"SERVER_PROTOCOL": "HTTP/1.1"}) is None
