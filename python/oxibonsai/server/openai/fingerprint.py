"""``system_fingerprint``: identifies the version of the server."""

from __future__ import annotations

from oxibonsai import __version__


def fingerprint() -> str:
    """Return the fingerprint; it begins with b, as llama-server's build numbers do.

    Requests with a seed have the same result where it is equal: results don't depend on the machine.
    """
    return f"b-oxibonsai-{__version__}"
