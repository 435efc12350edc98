"""oxibonsai chat with tools of MCP servers: calls are shown, asked about, run, and answered."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

sys.path.append(str(Path(__file__).parents[1] / "mcp_servers"))

from given_servers import program, write_config

import oxibonsai
import tiny_model
from forked import run_oxibonsai
from oxibonsai import SamplingParams
from oxibonsai.chat import ChatReply, ChatRequest, answer, model_template
from oxibonsai.cli import conversation as conversation_module
from oxibonsai.cli.conversation import Conversation
from oxibonsai.cli.tool_calls import ToolCalls
from oxibonsai.engine import Engine, Options
from oxibonsai.mcp import McpServers, read_config
from oxibonsai.output import ToolCall

Talk = Callable[..., Conversation]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    path = tmp_path_factory.mktemp("tools") / "model.gguf"
    tiny_model.write(path, changes={"qwen3.context_length": (8192, "u32")})
    return oxibonsai.load(path)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


@pytest.fixture
def servers(tmp_path: Path, notes: Path) -> Iterator[McpServers]:
    config = write_config(tmp_path, t=program(env={"NOTES": str(notes)}))
    with McpServers(read_config(config), lambda _: None) as made:
        made.wait()
        yield made


def lines(*given: str) -> Callable[[], str]:
    """What the user types; then the end of the input."""
    left = list(given)

    def read() -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    return read


@pytest.fixture
def talk(engine: Engine, servers: McpServers, monkeypatch: pytest.MonkeyPatch) -> Talk:
    """Makes a conversation whose model calls t_note in the first `rounds` answers to a message."""

    def make(*words: str, rounds: int = 1) -> Conversation:
        def forced(engine: Engine, request: ChatRequest, *given: Any, **named: Any) -> ChatReply:
            roles = [m["role"] for m in request.messages]
            since = roles[::-1].index("user")
            calls = since < 2 * rounds
            choice = {"type": "function", "function": {"name": "t_note"}} if calls else "none"
            return answer(engine, replace(request, tool_choice=choice), *given, **named)

        monkeypatch.setattr(conversation_module, "answer", forced)
        template = model_template(engine)
        assert template is not None
        return Conversation(
            engine,
            template,
            SamplingParams(temperature=1, seed=1, max_tokens=120),
            Options(),
            ChatRequest([], enable_thinking=False),
            tools=ToolCalls(servers, lines(*words)),
        )

    return make


def written(conversation: Conversation) -> list[str]:
    """The texts that the model asked to note down."""
    calls = [c for m in conversation.messages for c in m.get("tool_calls", ())]
    return [json.loads(c["function"]["arguments"])["text"] for c in calls]


def test_an_allowed_call_runs_and_the_model_goes_on(
    talk: Talk, notes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conversation = talk("y")
    conversation.answer("note")
    roles = [m["role"] for m in conversation.messages]
    assert roles == ["user", "assistant", "tool", "assistant"]
    (text,) = written(conversation)
    assert notes.read_text() == text + "\n"
    called, result = conversation.messages[1:3]
    assert result["tool_call_id"] == called["tool_calls"][0]["id"]
    assert result["content"] == "noted"
    said = capsys.readouterr().err
    shown = said.index("[t_note is to run with {")
    assert (
        shown < said.index("Run it? y: yes, n: no, a: always") < said.index("t_note gives: noted")
    )


@pytest.mark.parametrize("words", [("n",), (), ("what", "", "no")])
def test_a_declined_call_does_not_run_and_the_model_is_told(
    talk: Talk, notes: Path, words: tuple[str, ...]
) -> None:
    conversation = talk(*words)
    conversation.answer("note")
    assert not notes.exists()
    assert [m["role"] for m in conversation.messages] == ["user", "assistant", "tool", "assistant"]
    assert json.loads(conversation.messages[2]["content"]) == {
        "error": "The user declined this call."
    }


def test_always_holds_for_the_tool_in_this_session(
    talk: Talk, notes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conversation = talk("a", rounds=2)
    conversation.answer("note")
    conversation.answer("and again")
    texts = written(conversation)
    assert len(texts) == 4
    assert notes.read_text() == "".join(f"{t}\n" for t in texts)
    said = capsys.readouterr().err
    assert said.count("Run it?") == 1
    assert said.count("t_note is to run with") == 4, "each is shown all the same"


def test_each_call_of_an_answer_has_its_own_question(servers: McpServers, notes: Path) -> None:
    tools = ToolCalls(servers, lines("a", "n"))
    note = ToolCall("1", "t_note", '{"text": "one"}')
    messages, goes_on = tools.run(
        [note, ToolCall("2", "t_add", '{"a": 1, "b": 2}'), replace(note, id="3")]
    )
    assert goes_on
    assert [m["tool_call_id"] for m in messages] == ["1", "2", "3"]
    assert [m["content"] for m in messages][::2] == ["noted", "noted"]
    assert "declined" in messages[1]["content"]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("t_nothing", "{}", "There is no tool 't_nothing'."),
        ("add", "{}", "There is no tool 'add'."),
        ("t_note", "[1]", "The arguments are no JSON object."),
        ("t_note", '{"text"', "The arguments are no JSON object."),
    ],
)
def test_what_can_not_run_is_not_asked_about(
    servers: McpServers, name: str, arguments: str, message: str
) -> None:
    def read() -> str:
        raise AssertionError("it asks")

    messages, goes_on = ToolCalls(servers, read).run([ToolCall("1", name, arguments)])
    assert goes_on
    assert json.loads(messages[0]["content"]) == {"error": message}


def test_what_is_shown_commands_no_terminal_and_is_whole(
    servers: McpServers, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\u202e\x1b[2J\u009b1m" + "x" * 5000 + "; rm -rf /"
    call = ToolCall("1", "t_note", json.dumps({"text": text}, ensure_ascii=False))
    ToolCalls(servers, lines("n")).run([call])
    said = capsys.readouterr().err
    assert "; rm -rf /" in said
    assert all(c.isprintable() or c == "\n" for c in said)
    ToolCalls(servers, lines("y")).run([ToolCall("1", "t_controls", "{}")])
    said = capsys.readouterr().err
    assert "t_controls gives: a\\ufffd[2Jb" in said.replace("\ufffd", "\\ufffd")
    assert all(c.isprintable() or c == "\n" for c in said)


def test_a_tool_that_goes_away_during_the_question_gives_a_result(servers: McpServers) -> None:
    def read() -> str:
        servers.close()
        return "y"

    call = ToolCall(name="t_note", arguments=json.dumps({"text": "a"}), id="call_1")
    (message,), goes_on = ToolCalls(servers, read).run([call])
    assert "have been ended" in message["content"]
    assert goes_on


def test_ctrl_c_at_a_question_stops_the_answer(talk: Talk, notes: Path) -> None:
    conversation = talk()

    def read() -> str:
        raise KeyboardInterrupt

    assert conversation.tools is not None
    conversation.tools._read = read
    conversation.answer("note")
    assert [m["role"] for m in conversation.messages] == ["user", "assistant", "tool"]
    assert "stopped" in conversation.messages[2]["content"]
    assert not notes.exists()
    conversation.tools._read = lines("n")
    conversation.answer("go on")  # the conversation is whole
    assert conversation.messages[-1]["role"] == "assistant"


def test_old_turns_are_left_out_with_their_calls(engine: Engine, talk: Talk) -> None:
    conversation = talk("a")
    conversation.answer("x" * 500)
    conversation.messages[0]["content"] = "x" * 7000
    conversation.answer("now")
    assert [m["role"] for m in conversation.messages] == ["user", "assistant", "tool", "assistant"]
    assert conversation.messages[0]["content"] == "now"


def test_a_chat_with_calls_is_saved_and_read_back(talk: Talk, tmp_path: Path) -> None:
    conversation = talk("y")
    conversation.answer("note")
    conversation.save(tmp_path / "talk.json")
    messages = conversation.messages
    conversation.reset()
    conversation.load(tmp_path / "talk.json")
    assert conversation.messages == messages


def test_the_command_starts_servers_lists_tools_and_ends_them(
    tiny_path: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "pid"
    config = write_config(tmp_path, t=program("--mark", str(mark)), gone={"command": "/no/such"})
    line = ["chat", "-m", tiny_path, "--mcp-servers-config", config]
    done = run_oxibonsai(*line, stdin="/tools\n/exit\n")
    assert done.returncode == 0, done.stderr
    assert "[MCP server t: 11 tools]" in done.stderr
    assert "[MCP server gone failed: /no/such: No such file or directory" in done.stderr
    assert "t_add: Add two numbers." in done.stderr
    assert not Path(f"/proc/{mark.read_text()}").exists()


def test_a_fault_in_the_file_ends_the_command(tiny_path: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, t={"command": ""})
    done = run_oxibonsai("chat", "-m", tiny_path, "--mcp-servers-config", config)
    assert done.returncode == 2
    assert "command is empty: it names a program" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_option_there_are_no_tools(tiny_path: Path) -> None:
    done = run_oxibonsai("chat", "-m", tiny_path, stdin="/tools\n/exit\n")
    assert "there are no tools: --mcp-servers-config FILE names servers of them" in done.stderr
