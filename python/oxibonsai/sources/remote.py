"""The beginning of a remote file, as much of it as is asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from oxibonsai.errors import SourceError
from oxibonsai.sources.download import Patience
from oxibonsai.sources.http import Contradiction, Passing, Unreachable, asked, web_client
from oxibonsai.sources.partial_file import Version

if TYPE_CHECKING:
    import httpx2


class RemotePrefix:
    """Reads a file from its beginning; made by :func:`remote_prefix`.

    Attributes:
        data: What has been read.
        size: Bytes of the whole file, known after the first :meth:`extend`.
    """

    def __init__(self, client: httpx2.Client, url: str, patience: Patience) -> None:
        self._client = client
        self._url = url
        self._patience = patience
        self._version = Version()
        self.data = bytearray()
        self.size = 0

    def extend(self, count: int) -> None:
        """Read on until ``data`` holds the first ``count`` bytes, or all that there are.

        Raises:
            SourceError: The server refuses, or stays out of reach.
        """
        for i in range(self._patience.tries):
            try:
                while not self._version.size or len(self.data) < min(count, self.size):
                    self._read(count)
                return
            except Contradiction as e:
                self.data.clear()
                self._version, reason = Version(), str(e)
            except Passing as e:
                reason = str(e)
            time.sleep(self._patience.delay * 2.0**i)
        raise Unreachable(f"cannot read {self._url}: {reason}")

    def _read(self, count: int) -> None:
        first = len(self.data)
        with asked(self._client, self._url, first, self._version, count - 1) as answer:
            if answer.version.size is None:
                raise SourceError(f"the server does not say how large {self._url} is")
            if answer.first and answer.version != self._version:
                raise Contradiction("the file has changed at the server")
            self._version, self.size = answer.version, answer.version.size
            if answer.first == 0:
                self.data.clear()  # the server may know no ranges: then all comes again
            for piece in answer.pieces():
                self.data += piece[: count - len(self.data)]
                if len(self.data) == count:
                    return
        if len(self.data) == first:
            raise Passing("the connection ended early")


@contextmanager
def remote_prefix(
    url: str, headers: Mapping[str, str] | None = None, patience: Patience | None = None
) -> Iterator[RemotePrefix]:
    """Yield a file of which only the beginning is wanted.

    Args:
        url: Where it is.
        headers: Sent with every request.
        patience: How long to go on with a server that fails.
    """
    chosen = patience or Patience()
    with web_client(chosen.timeout, headers) as client:
        yield RemotePrefix(client, url, chosen)
