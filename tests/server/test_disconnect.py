"""Whether the client of a request has left."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest

from oxibonsai.server.http.client import client_is_gone
from oxibonsai.server.http.connection import is_closed

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Our end of a connection, with a timeout as the server sets it, and the client's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    ours.settimeout(30)
    with ours, client:
        yield ours, client


def is_gone(pair: Pair) -> bool:
    return is_closed(pair[0])


def test_a_client_that_waits_is_there(pair: Pair) -> None:
    assert not is_gone(pair)
    pair[1].sendall(b"GET / HTTP/1.1")  # its next request
    assert not is_gone(pair)


def test_a_client_that_closed_is_gone(pair: Pair) -> None:
    pair[1].close()
    assert is_gone(pair)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere unread bytes hide the end")
def test_a_client_that_sent_more_and_closed_is_gone(pair: Pair) -> None:
    pair[1].sendall(b"\r\n")
    pair[1].close()
    assert is_gone(pair)
    assert pair[0].recv(9) == b"\r\n"


def test_without_a_socket_it_is_taken_to_be_there() -> None:
    assert not client_is_gone({})
