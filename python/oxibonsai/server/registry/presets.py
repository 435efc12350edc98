"""Settings of single models: TOML, or the INI files of llama-server's ``--models-preset``."""

from __future__ import annotations

import configparser
import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from oxibonsai.errors import RequestError
from oxibonsai.files.home_paths import with_home
from oxibonsai.server.model_settings import Flag, ModelSettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_STARTUP = "load_on_startup"
# The section whose keys hold for every model.
_EVERY = "*"
_SWITCHES = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}


@dataclass(frozen=True)
class Preset:
    """A file's settings for one model.

    Attributes:
        source: Where the model is; None: its name says that.
        values: Settings by field name.
        load_on_startup: Load it when the server starts.
    """

    source: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    load_on_startup: bool = False


def read_presets(path: Path) -> dict[str, Preset]:
    """Return the presets of a file by model, in the file's order.

    A TOML file has a table for each model, ``["qwen3"]``; any other is read as llama-server's INI. The
    keys are settings of the model, as flags without their dashes; those of ``[*]`` hold for all.

    Raises:
        RequestError: The file can't be read, or has an unknown key or an invalid value.
    """
    tables = _read(path)
    shared = tables.pop(_EVERY, {})
    return {
        name: _preset({**_fields(shared, path, _EVERY), **_fields(table, path, name)}, path, name)
        for name, table in tables.items()
    }


def _read(path: Path) -> dict[str, Mapping[str, Any]]:
    try:
        text = with_home(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise RequestError(f"cannot read the presets {path}: {e}") from e
    if path.suffix == ".toml":
        try:
            tables = tomllib.loads(text)
        except ValueError as e:  # of texts, and of numbers that are too long for Python
            raise RequestError(f"{path} is not TOML: {e}") from e
        except RecursionError as e:
            raise RequestError(f"{path} is nested too deeply: a model has one flat table") from e
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise RequestError(f"{path} has the key {name!r} outside of a model's table [NAME]")
        return tables
    parser = configparser.ConfigParser(
        interpolation=None, default_section="\0", comment_prefixes=(";", "#")
    )
    try:
        # llama-server's files begin with a version, outside of any section.
        parser.read_string(f"[\1]\n{text}")
    except configparser.Error as e:
        raise RequestError(f"{path} is not an INI file: {e.message}") from e
    sections: dict[str, Mapping[str, Any]] = {
        name: dict(parser[name]) for name in parser.sections()
    }
    head = sections.pop("\1")
    if set(head) - {"version"}:
        raise RequestError(f"{path} has the key {sorted(head)[0]!r} outside of a model's section")
    return sections


def _fields(table: Mapping[str, Any], path: Path, name: str) -> dict[str, Any]:
    """Return the table by field names; a flag's other spellings are keys, too."""
    spellings = {_STARTUP: _STARTUP}
    for own, info in ModelSettings.model_fields.items():
        spellings[own] = own
        for alias in next((m.aliases for m in info.metadata if isinstance(m, Flag)), ()):
            spellings[alias.lstrip("-").replace("-", "_")] = own
    values: dict[str, Any] = {}
    for key, value in table.items():
        own = spellings.get(key.replace("-", "_"), "")
        if not own:
            near = difflib.get_close_matches(key.replace("-", "_"), spellings, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise RequestError(
                f"{path}: [{name}] sets {key!r}, which is no setting of a model{hint}"
            )
        if own in values:
            raise RequestError(f"{path}: [{name}] sets {own} twice")
        values[own] = value
    return values


def _preset(values: dict[str, Any], path: Path, name: str) -> Preset:
    startup = values.pop(_STARTUP, False)
    startup = _SWITCHES.get(startup.lower(), startup) if isinstance(startup, str) else startup
    if not isinstance(startup, bool):
        raise RequestError(f"{path}: [{name}] has load-on-startup {startup!r}; it is true or false")
    try:
        checked = ModelSettings.model_validate(values)
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"])) or "a value"
        raise RequestError(f"{path}: [{name}] has {key} {first['input']!r}: {first['msg']}") from e
    given = {key: getattr(checked, key) for key in checked.model_fields_set}
    return Preset(given.pop("model", None), given, startup)
