"""waitress with strict framing, and error responses in the usual format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, NoReturn

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.task import ErrorTask
from werkzeug.exceptions import Unauthorized

from oxibonsai.server.http.client import error_json


class JsonErrorTask(ErrorTask):  # type: ignore[misc]  # waitress has no types
    """Rejects a request that never reaches the application."""

    def execute(self) -> None:
        """Write the response."""
        error = self.request.error
        body = error_json(error.code, f"{error.reason}: {error.body}"[:400])
        self.status = f"{error.code} {error.reason}"
        self.response_headers.append(("Content-Type", "application/json"))
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class _UnkeptBody:
    """Counts the bytes of a body in place of a buffer that keeps them."""

    def __init__(self) -> None:
        self._count = 0

    def append(self, data: bytes) -> None:
        """Count bytes."""
        self._count += len(data)

    def __len__(self) -> int:
        return self._count

    def getfile(self) -> _UnkeptStream:
        """Return what the application would read."""
        return _UnkeptStream()

    def close(self) -> None:
        """Do nothing."""


class _UnkeptStream(BytesIO):
    """A body that is gone: its key was accepted only when all of it had come."""

    def read(self, size: int | None = -1) -> NoReturn:
        """Refuse the request."""
        raise Unauthorized("The API key was not valid when the request began.")


class StrictParser(HTTPRequestParser):  # type: ignore[misc]  # waitress has no types
    """Refuses a request that says in two ways how long it is, as gunicorn does.

    Args:
        adj: waitress's settings.
        admits: Whether the body of a request with such headers is kept for the application. Others are
            read, so that the client gets its response, but not into files.
    """

    def __init__(self, adj: Any, admits: Callable[[Mapping[str, str]], bool]) -> None:
        super().__init__(adj)
        self._admits = admits

    def parse_header(self, header_plus: bytes) -> None:
        """Read the header.

        Raises:
            ParsingError: It is malformed.
        """
        try:
            super().parse_header(header_plus)
        except ValueError as e:  # of a number or an address
            raise ParsingError("the request line or a header is malformed") from e
        if "TRANSFER_ENCODING" in self.headers:  # waitress takes it out where it obeys it
            raise ParsingError("Transfer-Encoding needs a later version of HTTP")
        if self.chunked and "CONTENT_LENGTH" in self.headers:
            raise ParsingError("Content-Length and Transfer-Encoding exclude each other")
        if self.body_rcv is not None:
            credentials = {"Authorization": "AUTHORIZATION", "X-Api-Key": "X_API_KEY"}
            found = {name: self.headers.get(key, "") for name, key in credentials.items()}
            if not self._admits(found):
                self.body_rcv.buf = _UnkeptBody()


class JsonChannel(HTTPChannel):  # type: ignore[misc]  # waitress has no types
    """A connection of a listener whose ``admits`` is that of :class:`StrictParser`."""

    error_task_class = JsonErrorTask

    def parser_class(self, adj: Any) -> StrictParser:
        """Return what reads the next request."""
        return StrictParser(adj, self.server.admits)

    @property
    def is_busy(self) -> bool:
        """Whether a request of it runs or waits, or a response is on its way."""
        return bool(self.requests or self.total_outbufs_len)
