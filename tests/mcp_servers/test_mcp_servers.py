"""Tools of real MCP servers, over both transports: listed, called, and what goes wrong."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

from given_servers import free_port, http_server, is_running, program, wait_until, write_config

from oxibonsai import RequestError, UnsupportedError
from oxibonsai.mcp import McpServers, read_config
from oxibonsai.mcp.result import MOST_CHARACTERS

Start = Callable[..., McpServers]
TOOLS = {
    "add", "note", "environment", "broken", "slow", "die", "huge", "controls", "picture",
    "odd_name_here", "visit",
}  # fmt: skip


@pytest.fixture
def notices() -> list[str]:
    return []


@pytest.fixture
def start(tmp_path: Path, notices: list[str]) -> Iterator[Start]:
    """Starts servers by their configurations, and waits for their tools."""
    with ExitStack() as stack:

        def make(**servers: Any) -> McpServers:
            made = McpServers(read_config(write_config(tmp_path, **servers)), notices.append)
            stack.callback(made.close)
            made.wait()
            return made

        yield make


@pytest.fixture(params=["stdio", "http"])
def servers(request: pytest.FixtureRequest, start: Start, tmp_path: Path) -> Iterator[McpServers]:
    """The tests' server as ``t``, over one transport."""
    if request.param == "stdio":
        yield start(t=program(env={"NOTES": str(tmp_path / "notes")}))
        return
    port = free_port()
    with http_server(port):
        yield start(t={"url": f"http://127.0.0.1:{port}/mcp"})


def test_tools_are_listed_as_a_request_offers_them(servers: McpServers) -> None:
    tools = {tool.name: tool for tool in servers.tools()}
    assert set(tools) == {f"t_{name}" for name in TOOLS}
    add = tools["t_add"]
    assert (add.server, add.tool, add.reads_only) == ("t", "add", True)
    assert not tools["t_note"].reads_only
    assert tools["t_note"].title == "Put a note down"
    function = add.definition["function"]
    assert function["description"] == "Add two numbers."
    assert function["parameters"]["required"] == ["a", "b"]
    (state,) = servers.states()
    assert (state.name, state.status, state.error, state.tools) == ("t", "ready", "", len(TOOLS))


def test_a_call_gives_the_tools_text(servers: McpServers) -> None:
    result = servers.call("t_add", {"a": 20, "b": 22})
    assert (result.text, result.failed, result.message) == ("42", False, "42")
    assert servers.call("t_odd_name_here", {}).text == "odd"


def test_a_tool_that_fails_is_a_result_that_says_so(servers: McpServers) -> None:
    result = servers.call("t_broken", {})
    assert result.failed
    assert "broken" in json.loads(result.message)["error"]
    assert servers.call("t_add", {"a": "no number"}).failed


def test_a_tool_whose_name_is_taken_is_left_out_and_said_once(
    start: Start, notices: list[str]
) -> None:
    made = program()
    servers = start(**{"a b": made, "a_b": made})
    for _ in range(2):
        tools = servers.tools()
        assert {t.server for t in tools} == {"a b"}
    told = [n for n in notices if "a_b_add" in n]
    assert told == ["MCP: the tool 'add' of a_b is left out: a_b_add is 'add' of a b"]
    assert len(notices) == len(TOOLS)


def test_an_unknown_tool_is_refused(servers: McpServers) -> None:
    for name in ("add", "t_nothing", "", "t_odd.name/here"):
        with pytest.raises(RequestError, match="there is no tool"):
            servers.call(name, {})


def test_hostile_results_are_bounded_and_command_no_terminal(servers: McpServers) -> None:
    huge = servers.call("t_huge", {}).text
    assert huge.startswith("x" * MOST_CHARACTERS + "\n[")
    assert "5000000 characters" in huge
    assert len(huge) < MOST_CHARACTERS + 200
    assert servers.call("t_controls", {}).text == "a\ufffd[2Jb\ufffdc\ufffdd\te\nf"


def test_what_is_no_text_is_described(servers: McpServers) -> None:
    assert servers.call("t_picture", {}).text.startswith("see\n[image (image/png)")


def test_a_server_that_ends_fails_the_call_and_is_tried_again(
    start: Start, notices: list[str]
) -> None:
    servers = start(t=program())
    result = servers.call("t_die", {})
    assert result.failed
    assert "The MCP server t ended during the call" in result.text
    assert "I have had enough\\x1b[31m" in result.text, "its last line, escaped"
    (state,) = servers.states()
    assert state.status == "failed"
    assert "it ended" in state.error
    refused = servers.call("t_add", {"a": 1, "b": 2})
    assert "can't be asked: it ended" in refused.text
    assert refused.failed
    wait_until(lambda: servers.states()[0].status == "ready")
    assert servers.call("t_add", {"a": 1, "b": 2}).text == "3"
    assert [n for n in notices if "failed" in n] == [
        "MCP server t failed: it ended; its last words: I have had enough\\x1b[31m; it is tried again"
    ]


def test_a_server_over_http_may_go_and_come_back(start: Start) -> None:
    port = free_port()
    servers = start(t={"url": f"http://127.0.0.1:{port}/mcp"})
    assert [s.status for s in servers.states()] == ["failed"]
    assert servers.tools() == []
    with http_server(port):
        wait_until(lambda: servers.states()[0].status == "ready")
        assert servers.call("t_add", {"a": 1, "b": 2}).text == "3"
        assert servers.call("t_die", {}).failed
        assert servers.call("t_add", {"a": 1, "b": 2}).failed
    with http_server(port):
        wait_until(lambda: servers.states()[0].status == "ready")
        assert servers.call("t_add", {"a": 1, "b": 2}).text == "3"


def test_one_server_that_can_not_start_leaves_the_others_alone(
    start: Start, notices: list[str]
) -> None:
    servers = start(gone={"command": "/no/such/program"}, t=program())
    assert [s.status for s in servers.states()] == ["failed", "ready"]
    assert servers.states()[0].error == "/no/such/program: No such file or directory"
    assert "MCP server gone failed: /no/such/program: No such file or directory" in "".join(notices)
    assert servers.call("t_add", {"a": 1, "b": 2}).text == "3"


def test_a_program_that_is_no_mcp_server_is_a_failed_server(start: Start) -> None:
    servers = start(t={"command": "echo", "args": ["\x1b[31mhello"]})
    (state,) = servers.states()
    assert (state.status, state.tools) == ("failed", 0)
    assert state.error.isprintable()


def test_a_slow_tool_is_given_up_and_the_server_goes_on(start: Start, tmp_path: Path) -> None:
    quick = start(q=program(timeout_ms=500))
    result = quick.call("q_slow", {"file": str(tmp_path / "called")})
    assert result.text == "The tool gave no result within 0.5 s."
    assert result.failed
    assert (tmp_path / "called").exists()
    assert quick.states()[0].status == "ready"


def test_a_caller_may_give_up(servers: McpServers, tmp_path: Path) -> None:
    called = tmp_path / "called"

    def look() -> None:
        if called.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        servers.call("t_slow", {"file": str(called)}, look)
    assert servers.call("t_add", {"a": 1, "b": 2}).text == "3"


def test_programs_get_no_variables_but_a_few_and_their_own(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OXIBONSAI_API_KEY", "secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    servers = start(t=program(env={"OWN": "1"}))
    found = json.loads(servers.call("t_environment", {}).text)
    assert found.keys() <= {
        "HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "OWN", "LC_CTYPE", "PWD",
    }  # fmt: skip
    assert found["OWN"] == "1"


def test_arguments_reach_the_program_as_they_are(start: Start, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    odd = tmp_path / "a; touch b $(touch c) `touch d`"
    start(t=program("--mark", str(odd)), u=program("--mark", str(mark)))
    assert odd.exists()
    assert {p.name for p in tmp_path.iterdir()} == {odd.name, "mark", "mcp_servers.json"}


def test_without_the_package_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)  # as if it were not installed
    wanted = r"mcp is not installed: pip install 'oxibonsai\[mcp\]' brings it"
    with pytest.raises(UnsupportedError, match=wanted):
        McpServers(read_config(write_config(tmp_path, t=program())))


@pytest.mark.parametrize("flags", [(), ("--stubborn",)])
def test_close_ends_the_programs(tmp_path: Path, flags: tuple[str, ...]) -> None:
    mark = tmp_path / "pid"
    config = write_config(tmp_path, t=program("--mark", str(mark), *flags))
    servers = McpServers(read_config(config))
    servers.wait()
    pid = int(mark.read_text())
    assert is_running(pid)
    servers.close()
    assert not is_running(pid)
    servers.close()
    with pytest.raises(RequestError, match="have been ended"):
        servers.call("t_add", {"a": 1, "b": 2})


def test_a_call_that_runs_at_the_end_is_a_failed_one(tmp_path: Path) -> None:
    servers = McpServers(read_config(write_config(tmp_path, t=program())))
    servers.wait()
    called = tmp_path / "called"
    results = []
    work = lambda: results.append(servers.call("t_slow", {"file": str(called)}))  # noqa: E731
    thread = threading.Thread(target=work)
    thread.start()
    wait_until(called.exists)
    servers.close()
    thread.join()
    assert results[0].failed


class _Redirecting(http.server.BaseHTTPRequestHandler):
    """Sends everybody elsewhere."""

    def do_POST(self) -> None:
        self.send_response(307)
        self.send_header("Location", f"http://127.0.0.1:{self.server.elsewhere}/mcp")  # type: ignore[attr-defined]
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_redirects_to_another_server_are_not_followed(start: Start) -> None:
    elsewhere = free_port()
    sender: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Redirecting)
    sender.elsewhere = elsewhere
    threading.Thread(target=sender.serve_forever, daemon=True).start()
    try:
        with http_server(elsewhere):
            servers = start(t={"url": f"http://127.0.0.1:{sender.server_port}/mcp"})
            assert servers.tools() == []
            assert servers.states()[0].status == "failed"
    finally:
        sender.shutdown()
        sender.server_close()


class _Endless(http.server.BaseHTTPRequestHandler):
    """Answers with JSON that does not end."""

    def do_POST(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        try:
            while True:
                self.wfile.write(b" " * 2**20)
        except OSError:
            pass

    def log_message(self, *_: object) -> None:
        pass


def test_an_answer_without_end_is_cut_off(start: Start) -> None:
    endless = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Endless)
    threading.Thread(target=endless.serve_forever, daemon=True).start()
    try:
        servers = start(t={"url": f"http://127.0.0.1:{endless.server_port}/mcp"})
        assert servers.states()[0].status == "failed"
    finally:
        endless.shutdown()
        endless.server_close()
