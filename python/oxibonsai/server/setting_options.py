"""The flags of ``oxibonsai serve``, derived from the fields of :class:`Settings`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import click
from click.shell_completion import CompletionItem
from pydantic.fields import FieldInfo

from oxibonsai.server.model_settings import Flag, Names, Paths, Switch
from oxibonsai.server.setting_sources import flag
from oxibonsai.server.settings import Settings

Command = Callable[..., Any]

# Fields that a file can be given to, among other things.
_FILES_OR_SOURCES = ("model", "models", "image_model", "draft_model", "mmproj", "lora")


def setting_options(command: Command) -> Command:
    """Add a flag for every field; its value is None or () if it is not given."""
    for name, field in reversed(Settings.model_fields.items()):
        command = _option(name, field)(command)
    return command


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the flags that were given, by field name."""
    return {name: value for name, value in options.items() if value not in (None, ())}


def _option(name: str, field: FieldInfo) -> Callable[[Command], Command]:
    aliases = next((m.aliases for m in field.metadata if isinstance(m, Flag)), ())
    help_text = f"{field.description}{_default(field)}"
    names = [flag(name), *aliases]
    if _is_switch(field):
        # An alias with a slash is a name of one of the two alone.
        pairs = [f"{n}/--no-{n[2:]}" if n.startswith("--") and "/" not in n else n for n in names]
        return click.option(*pairs, name, default=None, help=help_text)
    return click.option(
        *names, name, default=None, multiple=_is_list(field), metavar=_metavar(field),
        help=help_text, shell_complete=_completion(name, field),
    )  # fmt: skip


def _is_switch(field: FieldInfo) -> bool:
    return field.annotation is get_args(Switch)[0]


def _is_list(field: FieldInfo) -> bool:
    return field.annotation in (get_args(Names)[0], get_args(Paths)[0])


def _default(field: FieldInfo) -> str:
    value = field.default
    if field.default_factory is not None or value in (None, (), ""):
        return ""
    if isinstance(value, bool):
        value = "on" if value else "off"
    return f" [default: {', '.join(value) if isinstance(value, tuple) else value}]"


def _words(field: FieldInfo) -> list[str]:
    """Return the values of a field that has no others."""
    if "Literal" not in str(field.annotation):
        return []
    words = [w for a in (field.annotation, *get_args(field.annotation)) for w in get_args(a)]
    return [w for w in words if isinstance(w, str)]


def _presets() -> list[str]:
    from oxibonsai.sampling import PRESETS  # not needed to start a server

    return list(PRESETS)


def _completion(name: str, field: FieldInfo) -> Callable[..., list[CompletionItem]]:
    """Return the shell completion of a flag's value."""
    takes_file = name in _FILES_OR_SOURCES or "Path" in str(field.annotation)

    def complete(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
        words = _presets() if name == "preset" else _words(field)
        found = [CompletionItem(w) for w in words if w.startswith(begun)]
        return found or ([CompletionItem(begun, type="file")] if takes_file else [])

    return complete


def _metavar(field: FieldInfo) -> str:
    text = str(field.annotation)
    if words := _words(field):
        return "[" + "|".join(words) + "]"
    kinds = {"int": "N", "float": "X", "Path": "PATH"}
    return next((word for kind, word in kinds.items() if kind in text), "TEXT")
