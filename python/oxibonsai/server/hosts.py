"""Allowed ``Host`` headers: protects servers without API keys against DNS rebinding.

A web page can have its own host name resolve to 127.0.0.1. The browser then treats this server as the
page's origin and lets the page read every response; but the ``Host`` header still has the page's name.
"""

from __future__ import annotations

import ipaddress
import re

from flask import Flask, request

from oxibonsai.server.access import KeyRing
from oxibonsai.server.errors import ApiError
from oxibonsai.server.settings import Settings

# Orchestrators send probes with any host name; they reveal nothing about requests.
_PROBES = ("health.",)
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d*)?")


def register_hosts(app: Flask, settings: Settings, keys: KeyRing) -> None:
    """Rejects requests without exactly one ``Host``; without API keys, also those to unknown hosts."""
    names = {name.lower().rstrip(".") for name in (*settings.host, *settings.allowed_hosts)}

    def check() -> None:
        host = request.environ.get("HTTP_HOST")
        if host is None:
            # Browsers always send it; only HTTP/1.0 clients may leave it out.
            if request.environ.get("SERVER_PROTOCOL") != "HTTP/1.0":
                raise ApiError(400, "The Host header is missing.")
            return
        if not host.strip() or "," in host:
            raise ApiError(400, "There must be one Host header with one name.")
        if not keys.is_open or "*" in names or (request.endpoint or "").startswith(_PROBES):
            return
        name = host_name(host)
        if not (is_local(name) or name in names):
            raise ApiError(
                403,
                f"Without API keys this server only accepts requests to localhost and IP addresses, "
                f"not to '{name[:80]}': start it with --allowed-host {name[:80]}, or set an API key.",
                code="host_not_allowed",
            )

    app.before_request(check)


def host_name(host: str) -> str:
    """Return the normalized name in a ``Host`` header, without the port."""
    found = _HOST.fullmatch(host.strip())
    return (host if found is None else found[1]).lower().rstrip(".")


def is_local(name: str) -> bool:
    """Whether the name can't be rebound by DNS: ``localhost``, a subdomain of it, an IP address."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
