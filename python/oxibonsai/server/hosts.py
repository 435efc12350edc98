"""Under which names the server may be called: what keeps DNS rebinding out where no key does.

A web page can have its own name resolved to 127.0.0.1. Its browser then takes this server for the
page's own, and lets the page read every answer; but the ``Host`` header still has the page's name.
"""

from __future__ import annotations

import ipaddress
import re

from flask import Flask, request

from oxibonsai.server.access import KeyRing
from oxibonsai.server.errors import ApiError
from oxibonsai.server.settings import Settings

# Asked by orchestrators under any name; they say nothing of what the server does for whom.
_PROBES = ("health.",)
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d*)?")


def register_hosts(app: Flask, settings: Settings, keys: KeyRing) -> None:
    """Refuses requests without one ``Host``; without keys, those with a name that is not ours."""
    names = {name.lower().rstrip(".") for name in (*settings.host, *settings.allowed_hosts)}

    def check() -> None:
        host = request.environ.get("HTTP_HOST")
        if host is None:
            # No browser speaks HTTP/1.0 without it.
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
                f"Without API keys this server answers under localhost and IP addresses only, not "
                f"under '{name[:80]}': start it with --allowed-host {name[:80]}, or set a key.",
                code="host_not_allowed",
            )

    app.before_request(check)


def host_name(host: str) -> str:
    """The name in a ``Host`` header, without the port, as names are compared."""
    found = _HOST.fullmatch(host.strip())
    return (host if found is None else found[1]).lower().rstrip(".")


def is_local(name: str) -> bool:
    """Whether no web page can have this name: ``localhost``, one below it, an IP address."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
