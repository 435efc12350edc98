"""Which hosts are of the public internet.

Whoever sends an address must not reach through this process what they can't reach themselves: a
host's name is resolved once, every address that it has must be a public one, and the connection goes
to an address that was checked, also after a redirect.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable

import httpx2

from oxibonsai.errors import SourceError

Resolve = Callable[[str, int], "list[str]"]  # a host's addresses

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# What `ipaddress` takes for public, depending on Python's version: protocol assignments, relays of
# 6to4, and examples of documents.
_NOT_PUBLIC = tuple(
    map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "3fff::/20"))
)
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")


class Refused(SourceError):
    """A server that is not to be asked, or that does not give what it is asked for."""


def resolve(host: str, port: int) -> list[str]:
    """Return all addresses of a host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def public_address(host: str, port: int, resolve: Resolve) -> str | None:
    """Return an address of a host that has public addresses only; None: it has others, or none.

    Raises:
        OSError, UnicodeError: The name is unknown.
    """
    addresses = resolve(host, port)
    return addresses[0] if addresses and all(map(is_public, addresses)) else None


def is_public(address: str) -> bool:
    """Return whether an address is one of the public internet, in whatever form or wrapping."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo and found.teredo[1])
        if found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner:
            return is_public(str(inner))
        if found not in _GLOBAL_UNICAST:
            return False
    if any(found in network for network in _NOT_PUBLIC):
        return False
    return found.is_global and not (found.is_multicast or found.is_reserved)


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
