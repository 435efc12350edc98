"""The configuration of MCP servers: the JSON that llama.cpp and Claude Desktop read, checked.

An object ``mcpServers`` has, by the server's name, either ``command``, ``args``, ``env`` and ``cwd`` of
a program, or ``url`` and ``headers`` of a server that is reached by streamable HTTP.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from oxibonsai.errors import RequestError

_MOST_BYTES = 2**20
_MOST_SERVERS = 64
_LONGEST_NAME = 64
_DEFAULT_TIMEOUT_MS = 60_000
_MOST_TIMEOUT_MS = 3_600_000
_STDIO_FIELDS = ("command", "args", "env", "cwd")
_HTTP_FIELDS = ("url", "headers")
_COMMON_FIELDS = ("type", "disabled", "timeout_ms")
# What other programs call the two transports.
_STDIO_TYPES = ("stdio", "local")
_HTTP_TYPES = ("http", "streamable-http", "streamable_http", "streamableHttp", "remote")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")


@dataclass(frozen=True)
class StdioServer:
    """A server that is a program on this machine, started without a shell.

    Attributes:
        name: What the configuration calls it.
        timeout: Seconds that a call may take.
        command: The program: a path, or a name that PATH has.
        args: Its arguments.
        env: Its variables, beside those few that every server gets; they may be secrets.
        cwd: Its folder; None: that of this process.
    """

    name: str
    timeout: float
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None


@dataclass(frozen=True)
class HttpServer:
    """A server that is reached by streamable HTTP.

    Attributes:
        name: What the configuration calls it.
        timeout: Seconds that a call may take.
        url: Its address.
        headers: Sent with each request to it; they may be secrets.
    """

    name: str
    timeout: float
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


ServerConfig: TypeAlias = StdioServer | HttpServer


def read_config(path: str | os.PathLike[str]) -> list[ServerConfig]:
    """Return the servers that a file names, without those that it disables.

    Raises:
        RequestError: The file can't be read, or something in it is wrong; the message names it.
    """
    servers = _object(_document(Path(path)), str(path))
    _only_known(servers, ("mcpServers",), str(path))
    if "mcpServers" not in servers:
        raise RequestError(f"{path} has no mcpServers: it names servers as llama.cpp's file does")
    named = _object(servers["mcpServers"], f"{path}: mcpServers")
    if len(named) > _MOST_SERVERS:
        raise RequestError(f"{path} names {len(named)} servers: at most {_MOST_SERVERS} are taken")
    read = [
        _server(name, value, f"{path}: {name[:_LONGEST_NAME]!r}") for name, value in named.items()
    ]
    return [server for server in read if server is not None]


def _document(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as e:
        raise RequestError(f"cannot read the MCP servers in {path}: {e.strerror}") from e
    if len(data) > _MOST_BYTES:
        raise RequestError(f"{path} is larger than 1 MiB: it holds no list of MCP servers")
    try:
        return json.loads(data, object_pairs_hook=lambda pairs: _unique(pairs, path))
    except RecursionError as e:
        raise RequestError(f"{path} is nested too deeply for a list of MCP servers") from e
    except ValueError as e:
        if isinstance(e, RequestError):
            raise
        raise RequestError(f"{path} is not JSON: {e}") from e


def _unique(pairs: list[tuple[str, Any]], path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise RequestError(f"{path} has {name[:_LONGEST_NAME]!r} twice in one object")
        found[name] = value
    return found


def _server(name: str, value: Any, place: str) -> ServerConfig | None:
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise RequestError(
            f"{place}: a server's name has 1 to {_LONGEST_NAME} printable characters"
        )
    fields = _object(value, place)
    is_http = "url" in fields
    if is_http == ("command" in fields):
        raise RequestError(f"{place} needs either a command or a url")
    own = _HTTP_FIELDS if is_http else _STDIO_FIELDS
    _only_known(fields, (*own, *_COMMON_FIELDS), place)
    _check_type(fields.get("type"), is_http, place)
    disabled = fields.get("disabled", False)
    if not isinstance(disabled, bool):
        raise RequestError(f"{place}.disabled is neither true nor false")
    made = (_http if is_http else _stdio)(name, _timeout(fields, place), fields, place)
    return None if disabled else made


def _check_type(kind: Any, is_http: bool, place: str) -> None:
    if kind == "sse":
        raise RequestError(
            f"{place}.type is sse, a transport that MCP has given up: give the server's address of "
            "streamable HTTP, with type http"
        )
    if kind is not None and kind not in (_HTTP_TYPES if is_http else _STDIO_TYPES):
        fits = "http" if is_http else "stdio"
        raise RequestError(f"{place}.type is {str(kind)[:40]!r}: leave it out, or write {fits}")


def _timeout(fields: Mapping[str, Any], place: str) -> float:
    value = fields.get("timeout_ms", _DEFAULT_TIMEOUT_MS)
    if type(value) is not int or not 1 <= value <= _MOST_TIMEOUT_MS:
        raise RequestError(
            f"{place}.timeout_ms is no whole number from 1 to {_MOST_TIMEOUT_MS}, milliseconds"
        )
    return value / 1000


def _stdio(name: str, timeout: float, fields: Mapping[str, Any], place: str) -> StdioServer:
    command = _text(fields["command"], f"{place}.command")
    if not command:
        raise RequestError(f"{place}.command is empty: it names a program")
    args = fields.get("args", [])
    if not isinstance(args, list):
        raise RequestError(f"{place}.args is not a list of texts")
    read = tuple(_text(a, f"{place}.args[{i}]") for i, a in enumerate(args))
    env = _texts(fields.get("env", {}), f"{place}.env")
    for variable in env:
        if not variable or "=" in variable:
            raise RequestError(f"{place}.env: {variable[:80]!r} can't be a variable's name")
    cwd = fields.get("cwd")
    if cwd is not None and not os.path.isdir(_text(cwd, f"{place}.cwd")):
        raise RequestError(f"{place}.cwd is {cwd[:200]!r}, where there is no folder")
    return StdioServer(name, timeout, command, read, env, cwd)


def _http(name: str, timeout: float, fields: Mapping[str, Any], place: str) -> HttpServer:
    url = _text(fields["url"], f"{place}.url")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or not url.isprintable() or " " in url:
        raise RequestError(
            f"{place}.url is no address: it begins with http:// or https:// and a host"
        )
    if "@" in parts.netloc:
        raise RequestError(f"{place}.url holds a user or password: put them into headers")
    headers = _texts(fields.get("headers", {}), f"{place}.headers")
    for header, value in headers.items():
        if not _HEADER_NAME.fullmatch(header) or not _HEADER_VALUE.fullmatch(value):
            raise RequestError(
                f"{place}.headers: {header[:80]!r} has a character that no header has"
            )
    return HttpServer(name, timeout, url, headers)


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RequestError(f"{place} is not a JSON object")
    return value


def _only_known(fields: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for name in fields:
        if name not in known:
            near = difflib.get_close_matches(name[:_LONGEST_NAME], known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise RequestError(f"{place} has an unknown field {name[:_LONGEST_NAME]!r}: {hint}")


def _texts(value: Any, place: str) -> dict[str, str]:
    return {k: _text(v, f"{place}.{k[:80]}") for k, v in _object(value, place).items()}


def _text(value: Any, place: str) -> str:
    """Return a text that a program can be given; a value is never quoted, since it may be a secret."""
    if not isinstance(value, str):
        raise RequestError(f"{place} is not a text")
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise RequestError(f"{place} holds a character that no program can be given")
    return value
