"""The file of MCP servers: what is taken, and one clear sentence for each fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oxibonsai import RequestError
from oxibonsai.mcp import HttpServer, ServerConfig, StdioServer, read_config


def read(folder: Path, servers: Any) -> list[ServerConfig]:
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return read_config(path)


def test_programs_and_addresses_are_read(tmp_path: Path) -> None:
    program = {
        "command": "uvx", "args": ["a", "--b=c d"], "env": {"A": "1"}, "cwd": str(tmp_path),
        "type": "stdio", "timeout_ms": 1500,
    }  # fmt: skip
    address = {"url": "https://wiki.example:8/mcp?a=b", "headers": {"Authorization": "Bearer x"}}
    assert read(tmp_path, {"my files": program, "wiki": address}) == [
        StdioServer("my files", 1.5, "uvx", ("a", "--b=c d"), {"A": "1"}, str(tmp_path)),
        HttpServer("wiki", 60, "https://wiki.example:8/mcp?a=b", {"Authorization": "Bearer x"}),
    ]


def test_a_disabled_server_is_checked_and_left_out(tmp_path: Path) -> None:
    servers = {"a": {"command": "x", "disabled": True}, "b": {"command": "y", "disabled": False}}
    assert [s.name for s in read(tmp_path, servers)] == ["b"]
    with pytest.raises(RequestError, match="args is not a list"):
        read(tmp_path, {"a": {"command": "x", "args": "y", "disabled": True}})


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    program = {"command": "x", "env": {"KEY": "hush"}}
    address = {"url": "http://a", "headers": {"Authorization": "hush"}}
    assert "hush" not in repr(read(tmp_path, {"a": program, "b": address}))
    for wrong in ({**program, "env": {"KEY": ["hush"]}}, {**address, "headers": {"A": "hush\n"}}):
        with pytest.raises(RequestError) as error:
            read(tmp_path, {"a": wrong})
        assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ([], "'a' is not a JSON object"),
        ({}, "needs either a command or a url"),
        ({"command": "x", "url": "http://a"}, "needs either a command or a url"),
        ({"command": ""}, "command is empty"),
        ({"command": ["x"]}, "command is not a text"),
        ({"command": "x\0y"}, "a character that no program can be given"),
        ({"command": "x", "args": "y"}, "args is not a list of texts"),
        ({"command": "x", "args": ["a", 1]}, r"args\[1\] is not a text"),
        ({"command": "x", "env": {"A": 1}}, "env.A is not a text"),
        ({"command": "x", "env": {"A=B": "1"}}, "'A=B' can't be a variable's name"),
        ({"command": "x", "env": {"": "1"}}, "can't be a variable's name"),
        ({"command": "x", "cwd": "/nonexistent"}, "'/nonexistent', where there is no folder"),
        ({"command": "x", "arg": []}, "unknown field 'arg': did you mean args?"),
        ({"command": "x", "alwaysAllow": []}, "unknown field 'alwaysAllow': known are command"),
        ({"command": "x", "headers": {}}, "unknown field 'headers'"),
        ({"command": "x", "type": "http"}, "type is 'http': leave it out, or write stdio"),
        ({"command": "x", "disabled": "no"}, "disabled is neither true nor false"),
        ({"command": "x", "timeout_ms": 0}, "timeout_ms is no whole number from 1"),
        ({"command": "x", "timeout_ms": True}, "timeout_ms is no whole number from 1"),
        ({"command": "x", "timeout_ms": 1.5}, "timeout_ms is no whole number from 1"),
        ({"url": "http://a", "type": "sse"}, "sse, a transport that MCP has given up"),
        ({"url": "file:///etc/passwd"}, "url is no address"),
        ({"url": "wiki.example/mcp"}, "url is no address"),
        ({"url": "http://[::1"}, "url is no address"),
        ({"url": "http://a:b@c/mcp"}, "put them into headers"),
        ({"url": "http://a", "headers": {"A B": "c"}}, "a character that no header has"),
        ({"url": "http://a", "headers": {"A": "b\r\nC: d"}}, "a character that no header has"),
    ],
)  # fmt: skip
def test_a_fault_is_named_in_one_sentence(tmp_path: Path, server: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message) as error:
        read(tmp_path, {"a": server})
    assert "servers.json" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ("{}", "has no mcpServers"),
        ('{"servers": {}}', "unknown field 'servers': did you mean mcpServers?"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "has 'a' twice"),
        ('{"mcpServers": {"": {"command": "x"}}}', "1 to 64 printable characters"),
        ('{"mcpServers": {"a\\n": {"command": "x"}}}', "1 to 64 printable characters"),
        ("[" * 100_000, "nested too deeply"),
        (" " * (2**20 + 1), "larger than 1 MiB"),
        ('{"mcpServers": {' + ",".join(f'"{i}": {{"command": "x"}}' for i in range(65)) + "}}",
         "names 65 servers: at most 64"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "servers.json"
    path.write_text(text)
    with pytest.raises(RequestError, match=message):
        read_config(path)


def test_a_file_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="No such file"):
        read_config(tmp_path / "none.json")
    with pytest.raises(RequestError, match="directory"):
        read_config(tmp_path)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(RequestError, match="is not JSON"):
        read_config(tmp_path / "bytes.json")
