"""Merges settings from flags, environment variables, a TOML or JSON file and defaults, in this order."""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource

from oxibonsai.errors import RequestError
from oxibonsai.files.json_object import unique_keys
from oxibonsai.files.platform import HAS_FORK, MOST_SELECTED
from oxibonsai.server.settings import ENV_PREFIX, Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def variable(field: str) -> str:
    """Name of a field's environment variable."""
    return ENV_PREFIX + field.upper()


def flag(field: str) -> str:
    """Return a field's flag on the command line."""
    return "--" + field.replace("_", "-")


def load_settings(
    flags: Mapping[str, Any],
    config: str | os.PathLike[str] | None = None,
    fallbacks: Mapping[str, Any] = MappingProxyType({}),
    fallback_origins: Mapping[str, str] = MappingProxyType({}),
) -> Settings:
    """Merge the sources and check the result.

    Args:
        flags: Values of flags that were given, by field name.
        config: A file of TOML, or of JSON if its name ends in ``.json``; None: ``OXIBONSAI_CONFIG``,
            else none.
        fallbacks: Values of fields that no other source names, in place of their defaults.
        fallback_origins: Where each of them comes from, for messages.

    Raises:
        RequestError: A value out of range, an unknown key, a file that can't be read, or a public
            address without an API key. The message names the flag, variable or key.
    """
    config = config or os.environ.get("OXIBONSAI_CONFIG")
    file = _read_config(Path(config)) if config else {}
    variables = EnvSettingsSource(Settings)()
    try:
        settings = Settings(**{**fallbacks, **file, **variables, **flags})
    except ValidationError as e:
        origin = dict(fallback_origins)
        origin |= {field: f"{field} in {config}" for field in file}
        origin |= {field: variable(field) for field in variables}
        origin |= {field: flag(field) for field in flags}
        raise RequestError(_sentence(e, origin)) from e
    _check_public(settings)
    _check_tools(settings)
    check_shared(settings)
    _check_http_server(settings)
    return settings


def _read_config(path: Path) -> dict[str, Any]:
    kind = "JSON" if path.suffix == ".json" else "TOML"
    try:
        with path.open("rb") as file:
            table = (
                json.load(file, object_pairs_hook=unique_keys)
                if kind == "JSON"
                else tomllib.load(file)
            )
    except OSError as e:
        raise RequestError(f"cannot read the configuration {path}: {e.strerror}") from e
    except ValueError as e:  # of texts, and of numbers that are too long for Python
        raise RequestError(f"{path} is not {kind}: {e}") from e
    except RecursionError as e:
        raise RequestError(f"{path} is nested too deeply: settings are flat") from e
    if not isinstance(table, dict):
        raise RequestError(f"{path} holds no JSON object of settings")
    values: dict[str, Any] = {}
    for name, value in table.items():
        field = name.replace("-", "_")
        if field not in Settings.model_fields:
            near = difflib.get_close_matches(field, Settings.model_fields, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise RequestError(f"{path} sets {name!r}, which is not a setting{hint}")
        if field in values:
            raise RequestError(
                f"{path} sets {field} twice, once with a dash and once with an underscore"
            )
        values[field] = value
    return values


def _sentence(error: ValidationError, origin: Mapping[str, str]) -> str:
    first = error.errors(include_url=False)[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    reason = first["msg"][:1].lower() + first["msg"][1:]
    # An API key must not appear in a terminal or log.
    known = Settings.model_fields.get(field)
    shown = "" if known is not None and not known.repr else f" is {first['input']!r}"
    return f"{origin.get(field, field)}{shown}: {reason}"


def _check_public(settings: Settings) -> None:
    guarded = settings.api_key or settings.api_key_file or settings.allow_public
    for host in settings.host:
        if not guarded and not _is_loopback(host):
            raise RequestError(
                f"--host {host} would let other machines use this server, and no API key is set: "
                "give --api-key or --api-key-file, or --allow-public to allow it deliberately"
            )


# Settings of limits that waitress lacks.
_OF_GUNICORN = ("write_timeout", "keep_alive")


def _check_http_server(settings: Settings) -> None:
    """Check that the HTTP server runs on this system, and has what the other settings ask of it."""
    if settings.http_server == "gunicorn":
        if not HAS_FORK:
            raise RequestError(
                "--http-server gunicorn needs fork, which this operating system lacks: leave it out"
            )
        return
    for field in _OF_GUNICORN:
        if field in settings.model_fields_set:
            raise RequestError(
                f"{flag(field)} needs --http-server gunicorn: waitress has no such limit"
            )
    for host in settings.host:
        if host.startswith("unix:"):
            raise RequestError(
                f"--host {host} needs --http-server gunicorn: with waitress, name an address"
            )
    if MOST_SELECTED is None or "max_connections" not in settings.model_fields_set:
        return
    if settings.max_connections > MOST_SELECTED // 2:
        raise RequestError(
            f"--max-connections must be at most {MOST_SELECTED // 2} on this operating system"
        )


def _check_tools(settings: Settings) -> None:
    """Check that it is settled who may call the tools of MCP servers, which act on this machine."""
    if settings.mcp_servers_config is None or settings.admin_key or settings.admin_key_file:
        return
    given = {
        "--api-key": settings.api_key or settings.api_key_file,
        "--allow-public": settings.allow_public,
        "--cors-origins *": "*" in settings.cors_origins,
        # A name beyond this machine is that of a proxy which others reach.
        "--allowed-host": settings.allowed_hosts,
    }
    for name in (name for name, value in given.items() if value):
        raise RequestError(
            f"--mcp-servers-config with {name} needs --admin-key or --admin-key-file: its keys alone "
            "may then call tools, which act on this machine"
        )


def check_shared(settings: Settings) -> None:
    """Check that servers which share a store can share it.

    Raises:
        RequestError: They can't.
    """
    if settings.shared_store and not settings.store_url.startswith("postgresql"):
        raise RequestError(
            f"--shared-store needs PostgreSQL, and the store {settings.store_url} belongs to one "
            "server: give --store postgresql+psycopg://user:password@host/name"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.startswith("unix:"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
