"""HTTP to public hosts and to no others."""

from __future__ import annotations

import socket

import httpx2

from oxibonsai.sources.http import Refused
from oxibonsai.sources.public_hosts import public_address, resolve

_PORTS = {"http": 80, "https": 443}


class PublicTransport(httpx2.HTTPTransport):
    """A transport that connects to an address that it has checked, for each request anew.

    Proxies of the environment are left aside, since they would resolve the name again.
    """

    def __init__(self) -> None:
        # A connection is kept by its address, and the next name there needs a certificate of its own.
        super().__init__(limits=httpx2.Limits(max_keepalive_connections=0))

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request.

        Raises:
            Refused: The host is no public one.
        """
        url = request.url
        try:
            address = public_address(url.host, url.port or _PORTS.get(url.scheme, 0), resolve)
        except (OSError, UnicodeError) as e:
            if isinstance(e, socket.gaierror) and e.errno == socket.EAI_AGAIN:
                raise httpx2.ConnectError(f"the name of {url.host} can't be looked up now") from e
            raise Refused(f"the name of {url.host} is unknown") from e
        if address is None:
            raise Refused(f"{url.host} is no public host")
        # The header Host is set from the name already, and the certificate has to be for the name.
        pinned = httpx2.Request(
            request.method,
            url.copy_with(host=address),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": url.host},
        )
        return super().handle_request(pinned)
