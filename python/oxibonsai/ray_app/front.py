"""A front: reads requests, and passes them to replicas and answers back."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import AsyncIterator
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from oxibonsai.ray_app.forwarded import AnswerHead, ForwardedRequest
from oxibonsai.ray_app.prefix_affinity import prompt_blocks

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

_log = logging.getLogger("oxibonsai.server")

_SCOPE = ("type", "method", "path", "root_path", "query_string", "scheme", "http_version")
_NO_KEY = (
    "This server has no API key and answers only clients of its own machine: set api_key_file, or "
    "allow_public to allow others deliberately."
)
# A larger body is not searched for its prompt: all other requests of the front would wait for that.
_SEARCHED_BYTES = 8 * 2**20
_LOST = "The replica that answered was lost: try again."


class Front:
    """The ingress; an actor of Ray Serve that needs next to no processor time.

    Args:
        engines: The replicas.
        max_body_bytes: Largest request body.
        share_prefix_cache: Whether requests of different API keys share prefix caches.
        allow_public: Whether to answer other machines: there are API keys, or it was allowed. Ray
            decides where its proxy listens, so it is the request that shows who can connect.
    """

    def __init__(
        self,
        engines: DeploymentHandle,
        *,
        max_body_bytes: int,
        share_prefix_cache: bool,
        allow_public: bool,
    ) -> None:
        self._engines = engines.options(stream=True)
        self._max_body_bytes = max_body_bytes
        self._share_prefix_cache = share_prefix_cache
        self._allow_public = allow_public

    async def __call__(self, request: Request) -> Response:
        """Answer a request of a client."""
        if not self._allow_public and not _is_local(request):
            return _error(403, _NO_KEY, "permission_error")
        body = await self._body(request)
        if body is None:
            message = f"The body is larger than {self._max_body_bytes} bytes."
            return _error(413, message, "invalid_request_error")
        pieces = self._engines.answer.remote(self._forwarded(request, body))
        try:
            head = await anext(pieces)
        except (RayError, RayServeException) as e:
            _log.warning("a request failed with its replica: %s", e)
            return _error(503, _LOST, "server_error")
        response = StreamingResponse(_body_of(pieces, head), head.status)
        response.raw_headers = head.headers
        return response

    async def _body(self, request: Request) -> bytes | None:
        """Return the body; None if it is too large."""
        pieces, size = [], 0
        async for piece in request.stream():
            size += len(piece)
            if size > self._max_body_bytes:
                return None
            pieces.append(piece)
        return b"".join(pieces)

    def _forwarded(self, request: Request, body: bytes) -> ForwardedRequest:
        given = request.scope
        scope: dict[str, Any] = {name: given[name] for name in _SCOPE if name in given}
        scope["headers"] = [(bytes(name), bytes(value)) for name, value in given["headers"]]
        scope["client"] = given.get("client") and tuple(given["client"])
        scope["server"] = given.get("server") and tuple(given["server"])
        blocks = []
        if request.method == "POST" and body[:1] == b"{" and len(body) <= _SEARCHED_BYTES:
            key = "" if self._share_prefix_cache else _key_of(request)
            blocks = prompt_blocks(body, hashlib.sha256(key.encode()).hexdigest() if key else "")
        return ForwardedRequest(scope, body, blocks)


async def _body_of(pieces: Any, head: AnswerHead) -> AsyncIterator[bytes]:
    """Return the body; if the replica is lost, a stream of events ends with an error event."""
    try:
        async for piece in pieces:
            yield piece
    except (RayError, RayServeException) as e:
        _log.warning("an answer was cut off with its replica: %s", e)
        kinds = [value for name, value in head.headers if name.lower() == b"content-type"]
        if not kinds or not kinds[0].startswith(b"text/event-stream"):
            raise
        error = {"error": {"message": _LOST, "type": "server_error", "code": "lost", "param": None}}
        yield f"event: error\ndata: {json.dumps(error)}\n\n".encode()


def _key_of(request: Request) -> str:
    """Return the API key as OpenAI's or Anthropic's clients send it."""
    key: str = request.headers.get("authorization") or request.headers.get("x-api-key", "")
    return key


def _is_local(request: Request) -> bool:
    try:
        return request.client is not None and ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def _error(status: int, message: str, kind: str) -> JSONResponse:
    error = {"message": message, "type": kind, "code": None, "param": None}
    return JSONResponse({"error": error}, status, {"Retry-After": "1"} if status == 503 else None)
