"""The parts of an application on Ray, each without a cluster."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'oxibonsai[ray]'")
a2wsgi = pytest.importorskip("a2wsgi", reason="a2wsgi is not installed")
requests = pytest.importorskip("starlette.requests", reason="starlette is not installed")

pytestmark = [
    pytest.mark.slow,  # Ray takes seconds to import
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]
SCOPE = {
    "type": "http", "method": "POST", "path": "/v1/x", "root_path": "", "query_string": b"",
    "scheme": "http", "http_version": "1.1", "headers": [], "server": ("127.0.0.1", 80),
    "client": ("127.0.0.1", 5),
}  # fmt: skip


class Engines:
    """What a front is given, and what it has sent there."""

    def __init__(self, *pieces: object) -> None:
        self._pieces = pieces
        self.sent: list[Any] = []
        self.answer = SimpleNamespace(remote=self._remote)

    def options(self, **_: object) -> Engines:
        return self

    async def _remote(self, request: Any) -> AsyncIterator[Any]:
        self.sent.append(request)
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece


def ask(engines: Engines, body: bytes = b"", client: str = "127.0.0.1", **given: Any) -> Any:
    """Status and body of what a front answers."""
    from oxibonsai.ray_app.front import Front

    options = {"max_body_bytes": 100, "share_prefix_cache": False, "allow_public": False, **given}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def run() -> tuple[int, bytes]:
        scope = {**SCOPE, "client": (client, 5)}
        response = await Front(engines, **options)(requests.Request(scope, receive))
        parts: list[bytes] = []
        if hasattr(response, "body_iterator"):
            parts = [part async for part in response.body_iterator]
        else:
            parts = [response.body]
        return response.status_code, b"".join(parts)

    return asyncio.run(run())


def head(kind: bytes = b"text/event-stream") -> Any:
    from oxibonsai.ray_app.forwarded import AnswerHead

    return AnswerHead(200, [(b"content-type", kind)])


def lost() -> Exception:
    from ray.exceptions import RayActorError

    return RayActorError()


def test_a_front_passes_on_what_it_is_asked_and_answered() -> None:
    engines = Engines(head(), b"one ", b"two")
    assert ask(engines, b"{}") == (200, b"one two")
    (sent,) = engines.sent
    assert sent.body == b"{}"
    assert sent.scope["path"] == "/v1/x"


def test_without_keys_other_machines_are_refused() -> None:
    engines = Engines(head())
    status, body = ask(engines, client="192.0.2.7")
    assert status == 403
    assert b"no API key" in body
    assert engines.sent == []
    assert ask(engines, client="192.0.2.7", allow_public=True)[0] == 200


def test_a_body_that_is_too_large_is_refused() -> None:
    engines = Engines(head())
    assert ask(engines, bytes(101))[0] == 413
    assert ask(engines, bytes(100))[0] == 200


def test_a_front_reads_the_beginning_of_a_prompt_that_is_not_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from oxibonsai.ray_app import front

    body = json.dumps({"prompt": "x" * 600}).encode()
    engines = Engines(head())
    ask(engines, body, max_body_bytes=1000)
    monkeypatch.setattr(front, "_SEARCHED_BYTES", len(body) - 1)
    ask(engines, body, max_body_bytes=1000)
    assert [len(sent.blocks) for sent in engines.sent] == [2, 0]


def test_a_replica_that_is_lost_before_its_answer_is_a_503() -> None:
    status, body = ask(Engines(lost()))
    assert status == 503
    assert b"try again" in body


def test_a_stream_whose_replica_is_lost_ends_with_an_error_event() -> None:
    status, body = ask(Engines(head(), b"data: 1\n\n", lost()))
    assert status == 200
    assert body.startswith(b"data: 1\n\nevent: error\ndata: {")


def test_another_answer_whose_replica_is_lost_is_cut_off() -> None:
    with pytest.raises(type(lost())):
        ask(Engines(head(b"application/json"), b"{", lost()))


def test_the_work_for_a_client_that_is_gone_ends() -> None:
    from oxibonsai.ray_app.forwarded import ForwardedRequest
    from oxibonsai.ray_app.replica import EngineReplica
    from oxibonsai.server.http.client import client_is_gone

    closed = threading.Event()
    seen: list[bool] = []

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        try:
            seen.append(client_is_gone(environ))
            while True:
                yield b"x"
        finally:
            seen.append(client_is_gone(environ))
            closed.set()

    replica = EngineReplica.__new__(EngineReplica)
    replica._app = app  # type: ignore[assignment]
    asgi = a2wsgi.WSGIMiddleware(replica._wsgi, workers=1)
    replica._asgi = asgi

    async def run() -> None:
        pieces = replica.answer(ForwardedRequest(SCOPE, b""))
        assert (await anext(pieces)).status == 200
        assert set(await anext(pieces)) == {ord("x")}
        await pieces.aclose()

    try:
        asyncio.run(run())
    finally:
        del replica._asgi  # so that there is nothing to end
    assert closed.wait(60)
    assert seen == [False, True]


def test_the_router_prefers_the_replica_that_has_the_beginning() -> None:
    from oxibonsai.ray_app.forwarded import ForwardedRequest
    from oxibonsai.ray_app.router import PrefixAffinityRouter

    class Router(PrefixAffinityRouter):
        replica_queue_len_cache: ClassVar[Any] = {"a": 1, "b": 3}

    router = Router.__new__(Router)
    router.initialize_state(max_imbalance=2)
    replicas = [SimpleNamespace(replica_id=name) for name in ("a", "b", "c")]

    def ranks(*blocks: int) -> list[list[str]]:
        pending = SimpleNamespace(args=[ForwardedRequest({}, b"", blocks)])
        chosen = asyncio.run(router.choose_replicas(replicas, pending))
        return [[r.replica_id for r in rank] for rank in chosen]

    router.on_request_routed(SimpleNamespace(args=[ForwardedRequest({}, b"", (1, 2))]), "a", None)
    preferred, others = ranks(1, 2, 3)
    assert preferred == ["a"]
    assert len(set(others)) == 2
    (two,) = ranks(7)
    assert len(set(two)) == 2
    router.on_request_routed(SimpleNamespace(args=[ForwardedRequest({}, b"", (7,))]), "b", None)
    assert len(ranks(7)) == 1  # "b" has three more requests than "c"


@pytest.mark.parametrize(
    ("fronts", "nodes", "most"), [(1, 3, 1), (2, 1, 2), (2, 2, 1), (3, 2, 2)], ids=str
)
def test_fronts_are_spread_evenly(
    fronts: int, nodes: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oxibonsai.ray_app import application

    alive = [{"Alive": True, "Resources": {"CPU": 1.0}}] * nodes
    gone = {"Alive": False, "Resources": {}}
    monkeypatch.setattr("ray.nodes", lambda: [gone, *alive])
    made = application.make_application(
        {"model": "seedling-ternary", "threads": 1, "fronts": fronts}
    )
    assert made._bound_deployment._replica_config.max_replicas_per_node == most
