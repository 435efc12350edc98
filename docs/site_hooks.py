"""What the site changes in the pages and docstrings that it shows."""

from __future__ import annotations

import re
from typing import Any

# A link out of docs/, such as [dialect.h](../csrc/gpu/dialect.h).
_OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./([^)#]+)[^)]*\)")

# A role of Sphinx before a name in a docstring: :func:`oxibonsai.load`.
_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):(?=<code)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Shows a link out of docs/ as its text, and the path where the text does not end with it."""

    def plain(link: re.Match[str]) -> str:
        text, path = link.groups()
        return text if text.strip("`").endswith(path.rsplit("/", 1)[-1]) else f"{text} (`{path}`)"

    return _OUTSIDE.sub(plain, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Leaves the name alone, without its role."""
    return _ROLE.sub("", html)
