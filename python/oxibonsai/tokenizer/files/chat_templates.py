"""The chat templates of a folder: files of their own, or texts in the tokenizer's configuration."""

from __future__ import annotations

from pathlib import Path

from oxibonsai.errors import FormatError
from oxibonsai.files.json_object import read_object
from oxibonsai.tokenizer.files.tokens import read_text, special_tokens

_FILE, _OLDER_FILE = "chat_template.jinja", "chat_template.json"
_OTHERS = "additional_chat_templates"  # a folder with one file for each further name


def chat_templates(folder: Path) -> dict[str, str]:
    """Return Jinja sources by their names; ``"default"`` is the one that counts if none is asked for.

    Raises:
        FormatError: A file can't be read.
    """
    found: dict[str, str] = {}
    stated = special_tokens(folder).get("chat_template")
    if stated is None and (folder / _OLDER_FILE).is_file():
        stated = read_object(folder / _OLDER_FILE).get("chat_template")
    if isinstance(stated, str):
        found["default"] = stated
    elif isinstance(stated, list):
        for named in stated:
            if not isinstance(named, dict) or not all(
                isinstance(named.get(key), str) for key in ("name", "template")
            ):
                raise FormatError(f"{folder}: chat_template holds {named!r:.80}, no named template")
            found.setdefault(named["name"], named["template"])
    for file in template_files(folder):
        found["default" if file.name == _FILE else file.stem] = read_text(file)
    return found


def template_files(folder: Path) -> list[Path]:
    """Return the files that hold one template each."""
    own = folder / _FILE
    return [*([own] if own.is_file() else []), *sorted((folder / _OTHERS).glob("*.jinja"))]
