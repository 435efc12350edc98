"""How the server names itself."""

from __future__ import annotations

from oxibonsai import __version__


def fingerprint() -> str:
    """``system_fingerprint``: begins with a b, as llama-server's build numbers do.

    Answers with a seed are equal where it is equal: results don't depend on the machine.
    """
    return f"b-oxibonsai-{__version__}"
