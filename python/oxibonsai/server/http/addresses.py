"""Addresses as they are written before a port."""

from __future__ import annotations


def bracketed(host: str) -> str:
    """Return a host with the brackets that an IPv6 address needs."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
