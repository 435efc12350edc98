"""waitress with strict framing, and error responses in the usual format."""

from __future__ import annotations

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.task import ErrorTask

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


class StrictParser(HTTPRequestParser):  # type: ignore[misc]  # waitress has no types
    """Refuses a request that says in two ways how long it is, as gunicorn does."""

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


class JsonChannel(HTTPChannel):  # type: ignore[misc]  # waitress has no types
    """A connection."""

    parser_class = StrictParser
    error_task_class = JsonErrorTask

    @property
    def is_busy(self) -> bool:
        """Whether a request of it runs or waits, or a response is on its way."""
        return bool(self.requests or self.total_outbufs_len)
