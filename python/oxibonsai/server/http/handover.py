"""Requests that a worker lost as it failed, handed over with their connections to the one after it."""

from __future__ import annotations

from oxibonsai.files.platform import HAS_FORK

assert HAS_FORK

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator


class Handover:
    """A channel from each worker to the one after it; made before the fork.

    What is in it outlives the worker that sent it: the system keeps the connections open.
    """

    def __init__(self) -> None:
        self._sender, self._receiver = socket.socketpair()
        for end in (self._sender, self._receiver):
            end.setblocking(False)

    def close(self) -> None:
        """Close the channel, and the connections in it."""
        self._sender.close()
        self._receiver.close()

    def send(self, sock: socket.socket, request: bytes) -> bool:
        """Hand a connection over.

        Args:
            sock: The connection.
            request: All bytes of the request that it is to be answered.

        Returns:
            Whether there was room for it.
        """
        try:
            with tempfile.TemporaryFile() as file:
                file.write(request)
                file.flush()
                # A byte for each: the system keeps descriptors of different bytes apart.
                socket.send_fds(self._sender, [b"r"], [sock.fileno(), file.fileno()])
        except OSError:
            return False
        return True

    def receive(self) -> Iterator[tuple[socket.socket, bytes]]:
        """Yield the connections that were handed over, and their requests."""
        while True:
            try:
                _, descriptors, _, _ = socket.recv_fds(self._receiver, 1, 2)
            except BlockingIOError:
                return
            if len(descriptors) != 2:  # there was none left for one of them
                for descriptor in descriptors:
                    os.close(descriptor)
                continue
            with open(descriptors[1], "rb") as file:
                file.seek(0)
                request = file.read()
            sock = None
            with contextlib.suppress(OSError):
                sock = socket.socket(fileno=descriptors[0])
            if sock is None:
                os.close(descriptors[0])
            else:
                yield sock, request
