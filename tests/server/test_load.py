"""A real server under load: clients that leave, more of them than it takes, and 64 at once."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from real_server import real_server
from running_server import PATIENCE, RunningServer, read_all, status_of, wait_until

import tiny_model

pytestmark = pytest.mark.suite

SLOTS, QUEUE = 4, 2
# Tokens of an answer that nobody waits for the end of.
CONTEXT, LONG = 32768, 30_000
ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses")
# What the last event of an answer that was cut says.
CUT = {ROUTES[2]: b"max_tokens", ROUTES[3]: b"response.incomplete"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("load") / "tiny.gguf"
    tiny_model.write(path, changes={"qwen3.context_length": (CONTEXT, "u32")})
    return path


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[RunningServer]:
    flags = ("--ctx-size", str(CONTEXT), "--parallel", str(SLOTS), "--queue-size", str(QUEUE))
    template = ("--chat-template-file", str(Path(__file__).with_name("tool_template.jinja")))
    flags += (*template, "--metrics", "--alias", "tiny")
    with real_server(model, model.parent, *flags) as running:
        yield running


def body(route: str, prompt: str, tokens: int, *, stream: bool = True) -> dict[str, Any]:
    """A request whose answer depends on nothing but the prompt."""
    messages = [{"role": "user", "content": prompt}]
    asked = {"messages": messages, "max_tokens": tokens}
    if route == ROUTES[1]:
        asked = {"prompt": prompt, "max_tokens": tokens}
    elif route == ROUTES[3]:
        asked = {"input": messages, "max_output_tokens": tokens}
    options = {"temperature": 0, "seed": 1, "ignore_eos": True}
    return {"model": "tiny", "stream": stream, **options, **asked}


def send(server: RunningServer, route: str, fields: dict[str, Any]) -> socket.socket:
    data = json.dumps(fields).encode()
    head = f"POST {route} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Connection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    return server.connect(head.encode() + data, timeout=PATIENCE)


def events(answer: bytes) -> list[dict[str, Any]]:
    """What a stream's data lines hold."""
    assert status_of(answer) == 200, answer[:2000]
    lines = answer.replace(b"\r\n", b"\n").split(b"\n")
    texts = [x[6:] for x in lines if x.startswith(b"data: ") and x != b"data: [DONE]"]
    return [json.loads(text) for text in texts]


def text_of(answer: bytes) -> str:
    """The text of a whole chat stream."""
    found = events(answer)
    assert b"data: [DONE]" in answer
    deltas = [choice["delta"] for event in found for choice in event["choices"]]
    return "".join(d.get("content") or d.get("reasoning_content") or "" for d in deltas)


def ask(server: RunningServer, prompt: str, tokens: int) -> str:
    """The text that a chat request gets."""
    with send(server, ROUTES[0], body(ROUTES[0], prompt, tokens)) as sock:
        return text_of(read_all(sock, 120))


def metrics(server: RunningServer) -> dict[str, float]:
    with server.connect(
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    ) as sock:
        text = read_all(sock).partition(b"\r\n\r\n")[2].decode()
    return {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples}


def load(server: RunningServer) -> tuple[int, int]:
    """Requests that run, and those that wait."""
    values = metrics(server)
    return (
        int(values["llamacpp:requests_processing"]),
        int(values["llamacpp:requests_deferred"]),
    )


def wait_for_load(server: RunningServer, running: int, waiting: int) -> None:
    wanted = (running, waiting)
    wait_until(lambda: load(server) == wanted, lambda: (load(server), wanted))


def check_left(server: RunningServer) -> None:
    """What was left is over, and none of it by coming to its end."""
    wait_until(lambda: load(server)[0] <= 1)
    assert metrics(server)["llamacpp:n_tokens_max_total"] < LONG


def read_until(sock: socket.socket, count: int, end: bytes = b"") -> None:
    """Reads so many events of a stream, or up to some bytes."""
    data = b""
    while data.count(b"data: ") < count or end not in data:
        piece = sock.recv(4096)
        assert piece, data
        data += piece


def calling(route: str, *, stream: bool) -> dict[str, Any]:
    """A request that is answered with a long call of a tool."""
    many = {"type": "array", "items": {"type": "boolean"}, "minItems": 400}
    schema = {"type": "object", "properties": {"on": many}, "required": ["on"]}
    fields = body(route, "hello", LONG, stream=stream)
    if route == ROUTES[2]:
        tool = {"name": "lamps", "input_schema": schema}
        return {**fields, "tools": [tool], "tool_choice": {"type": "any"}}
    tool = {"type": "function", "function": {"name": "lamps", "parameters": schema}}
    return {**fields, "tools": [tool], "tool_choice": "required"}


def leave_in(phase: str, server: RunningServer, route: str, stream: bool) -> None:
    """Sends a request and leaves in a phase of it."""
    long = "a long prompt " * 250 if phase == "prefill" else "hello"
    sock = send(server, route, body(route, long, LONG, stream=stream))
    with sock:
        if phase == "last" and stream:
            sock.close()
            with send(server, route, body(route, "hello", 40)) as sock:
                read_until(sock, 2, CUT.get(route, b'"length"'))
        elif stream and phase != "prefill":
            read_until(sock, {"first token": 2, "middle": 100}[phase])
        else:
            # Without a stream there is nothing to see: a moment of each phase, roughly.
            moments = {"prefill": 0.02, "first token": 0.05, "middle": 0.2, "last": 0.4}
            time.sleep(moments[phase])


@pytest.fixture
def bystander(server: RunningServer) -> Iterator[None]:
    """A client beside the others: its answers must be what they were before the others came."""
    alone = ask(server, "I was here first", 300)
    stop = threading.Event()
    texts: list[str] = []

    def stay() -> None:
        while not stop.is_set():
            texts.append(ask(server, "I was here first", 300))

    thread = threading.Thread(target=stay)
    thread.start()
    yield
    stop.set()
    thread.join(60)
    assert len(texts) >= 1
    assert set(texts) == {alone}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("phase", ["prefill", "first token", "middle", "last"])
@pytest.mark.usefixtures("bystander")
def test_a_client_that_leaves_frees_its_slot(
    server: RunningServer, route: str, stream: bool, phase: str
) -> None:
    for _ in range(2):
        leave_in(phase, server, route, stream)
        check_left(server)


@pytest.mark.parametrize("route", [ROUTES[0], ROUTES[2]])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.usefixtures("bystander")
def test_a_client_that_leaves_in_a_tool_call_frees_its_slot(
    server: RunningServer, route: str, stream: bool
) -> None:
    arguments = b'"arguments"' if route == ROUTES[0] else b"input_json_delta"
    for _ in range(2):
        with send(server, route, calling(route, stream=stream)) as sock:
            if stream:
                read_until(sock, 12, arguments)
            wait_until(lambda: load(server)[0] >= 1)
        check_left(server)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_the_queue_frees_its_place(
    server: RunningServer, route: str, stream: bool
) -> None:
    with contextlib.ExitStack() as stack:
        for i in range(SLOTS):
            fields = body(ROUTES[0], f"stay {i}", LONG)
            read_until(stack.enter_context(send(server, ROUTES[0], fields)), 2)
        for _ in range(2):
            with send(server, route, body(route, "queued", LONG, stream=stream)):
                wait_for_load(server, SLOTS, 1)
            wait_for_load(server, SLOTS, 0)
    wait_for_load(server, 0, 0)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue_says_when_to_come_back_and_those_who_wait_are_served(
    server: RunningServer, route: str, stream: bool
) -> None:
    with contextlib.ExitStack() as stack:
        runners = []
        for i in range(SLOTS):
            fields = body(ROUTES[0], f"stay {i}", LONG)
            runners.append(stack.enter_context(send(server, ROUTES[0], fields)))
            read_until(runners[-1], 2)
        waiters = []
        for i in range(QUEUE):
            waiters.append(
                stack.enter_context(send(server, route, body(route, "hello", 4, stream=stream)))
            )
            wait_for_load(server, SLOTS, i + 1)
        for _ in range(3):
            with send(server, route, body(route, "hello", 4, stream=stream)) as refused:
                answer = read_all(refused)
            assert status_of(answer) in (429, 503), answer
            assert b"retry-after: " in answer.lower()
            assert b'"error"' in answer
            server.check_health()
        for runner in runners:
            runner.close()
        for waiter in waiters:
            assert status_of(read_all(waiter)) == 200
    wait_for_load(server, 0, 0)


def resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def test_64_streams_for_half_a_minute_get_what_each_would_get_alone(
    model: Path, tmp_path: Path
) -> None:
    prompts = [f"{i}: tell me of number {i * i}" for i in range(64)]
    flags = ("--ctx-size", "512", "--parallel", "16", "--queue-size", "64", "--metrics")
    with real_server(model, tmp_path, *flags, "--http-threads", "80", "--alias", "tiny") as server:
        alone = [ask(server, prompt, 8 + i) for i, prompt in enumerate(prompts)]
        assert len(set(alone)) > 32
        pid = server.worker_pid()
        ends = time.monotonic() + 30
        resident: list[int] = []

        def client(i: int) -> int:
            count = 0
            while time.monotonic() < ends:
                assert ask(server, prompts[i], 8 + i) == alone[i], prompts[i]
                count += 1
            return count

        def watch() -> None:
            while time.monotonic() < ends:
                resident.append(resident_kib(pid))
                server.check_health()
                time.sleep(0.5)

        with ThreadPoolExecutor(65) as threads:
            watcher = threads.submit(watch)
            counts = list(threads.map(client, range(64)))
            watcher.result()
        assert min(counts) >= 1
        wait_for_load(server, 0, 0)
        # What comes with the first requests (caches, buffers, arenas) is no leak.
        third = len(resident) // 3
        assert max(resident[-third:]) < max(resident[third : 2 * third]) + 8 * 1024
