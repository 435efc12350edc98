"""What the site changes in the pages: paths of the repository lead nowhere from there."""

from __future__ import annotations

import re
from typing import Any

# A link out of docs/, such as [dialect.h](../csrc/gpu/dialect.h).
_OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./([^)#]+)[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Shows such a link as its text, followed by the path where the text does not end with it."""

    def plain(link: re.Match[str]) -> str:
        text, path = link.groups()
        return text if text.strip("`").endswith(path.rsplit("/", 1)[-1]) else f"{text} (`{path}`)"

    return _OUTSIDE.sub(plain, markdown)
