"""``oxibonsai chat``: a conversation in the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from oxibonsai.chat import ChatRequest
from oxibonsai.cli.chat_options import (
    guess_template,
    reasoning_options,
    system_option,
    take_reasoning,
    take_template,
    template_options,
)
from oxibonsai.cli.conversation import Conversation
from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.generation_options import (
    context_shift_options,
    speculation_options,
    take_context_shift,
    take_speculation,
)
from oxibonsai.cli.image_options import image_option, image_path, vision_options
from oxibonsai.cli.model_choice import model_argument
from oxibonsai.cli.options import engine_options, load_engine, model_options
from oxibonsai.cli.output import OutputFile
from oxibonsai.cli.prompt import escape_option, file_option, prompt_option, read_file
from oxibonsai.cli.sampling_options import sampling_options, split_sampling
from oxibonsai.cli.tool_calls import ToolCalls, mcp_option, start_servers
from oxibonsai.engine import Options
from oxibonsai.errors import OxiBonsaiError, RequestError
from oxibonsai.files.cache_folder import cache_folder
from oxibonsai.files.home_paths import with_home

if TYPE_CHECKING:
    from prompt_toolkit.history import History

_HELP = """/reset          forget the conversation (also /clear)
/regen          answer the last message again
/set NAME VALUE set a sampling parameter: /set temperature 0.5; /set alone lists them
/image FILE     show a picture with the next message; several may be given one after the other
/system TEXT    set the system message and start anew
/save FILE      write the conversation and what the model has computed; FILE.json: the messages alone
/load FILE      read one back
/tools          list the tools that the model may call (--mcp-servers-config)
/help           this list (also /?)
/exit           leave (also /bye, Ctrl-D)
Enter sends; Alt-Enter, or a line that ends in \\, starts a new line; so does a message between
lines of \"\"\". Ctrl-C stops an answer."""

_QUOTES = '"""'
_SAME = {"/clear": "/reset", "/bye": "/exit", "/quit": "/exit", "/?": "/help"}
_COMMANDS = (
    "/reset", "/regen", "/set", "/system", "/save", "/load", "/image", "/tools", "/help", "/exit",
)  # fmt: skip


@click.command(cls=Command)
@model_argument
@model_options
@system_option
@prompt_option("The first message.")
@file_option("A file with the first message.")
@escape_option
@click.option(
    "--word-wrap/--no-word-wrap",
    " /--nowordwrap",
    "word_wrap",
    default=True,
    help="Break lines of answers between words, on a terminal.  [default: on]",
)
@click.option(
    "--load", "load_path", type=click.Path(path_type=Path), help="Go on from a saved chat."
)
@click.option("--save", "save_path", type=OutputFile(), help="Save the chat at its end.")
@image_option
@vision_options
@engine_options
@sampling_options
@template_options
@reasoning_options
@speculation_options
@context_shift_options
@mcp_option
@click.option(
    "--json", "as_json", is_flag=True, help="Print each answer as one JSON object in a line."
)
def chat(
    model: str | None,
    quant_type: str,
    system: str | None,
    load_path: Path | None,
    save_path: Path | None,
    images: list[Path],
    prompt: str | None,
    file: Path | None,
    word_wrap: bool,
    mcp_servers_config: Path | None,
    hide_thinking: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Talk with a model in the terminal; /help lists the commands."""
    if prompt is not None and file is not None:
        raise RequestError("--prompt and --file exclude each other")
    first = prompt if file is None else read_file(file)
    sampling = split_sampling(options)
    make_speculate = take_speculation(options)
    own = Options(shift=take_context_shift(options))
    request = ChatRequest([], **take_reasoning(options))
    choose = take_template(options)
    engine = load_engine(model, quant_type, **options)
    template = choose(engine)
    if template is None:
        template = guess_template(engine)
    own = replace(own, speculate=make_speculate(engine))
    params = sampling.params(engine.recommended, request.thinks)
    with ExitStack() as stack:
        tools = None
        if mcp_servers_config is not None:
            tools = ToolCalls(stack.enter_context(start_servers(mcp_servers_config)))
        conversation = Conversation(
            engine, template, params, own, request, tools=tools,
            as_json=as_json, wraps=word_wrap, shows_reasoning=not hide_thinking,
        )  # fmt: skip
        conversation.set_system(system)
        if load_path is not None:
            conversation.load(load_path)
        for image in images:
            conversation.show(image)
        _loop(conversation, _reader(), first)
        if save_path is not None:
            conversation.save(save_path)


def _reader() -> Callable[[], str]:
    """Read one message: with editing and history in a terminal, plain lines from a pipe."""
    if not sys.stdin.isatty():
        return lambda: _joined_lines(input)
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _new_line(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        key_bindings=keys,
        history=_history(),
        completer=WordCompleter(list(_COMMANDS), sentence=True),
        complete_while_typing=False,
    )
    return lambda: _joined_lines(lambda: session.prompt("> "))


def _history() -> History:
    """Return the history of typed lines, kept in the cache folder where that can be written."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    folder = cache_folder()
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    file = folder / "chat_history"
    if not os.access(file if file.exists() else folder, os.W_OK):
        return InMemoryHistory()
    return FileHistory(str(file))


def _joined_lines(read: Callable[[], str]) -> str:
    lines = [read()]
    if lines[0].lstrip().startswith(_QUOTES):
        return _quoted(lines[0].lstrip().removeprefix(_QUOTES), read)
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(read())
    return "\n".join(lines)


def _quoted(line: str, read: Callable[[], str]) -> str:
    """Return all up to the closing quotes, which may end any line."""
    lines = []
    while not line.rstrip().endswith(_QUOTES):
        lines.append(line)
        line = read()
    lines.append(line.rstrip().removesuffix(_QUOTES))
    return "\n".join(lines).strip("\n")


def _loop(conversation: Conversation, read: Callable[[], str], first: str | None) -> None:
    print("Type a message, or /help.", file=sys.stderr)
    while True:
        try:
            text, first = (read() if first is None else first).strip(), None
        except EOFError:
            return
        except KeyboardInterrupt:
            continue
        if _SAME.get(text, text) == "/exit":
            return
        try:
            if text.startswith("/"):
                said = _command(conversation, text)
                if said:
                    print(said, file=sys.stderr)
            elif text:
                conversation.answer(text)
        except OxiBonsaiError as e:
            print(f"[{e}]", file=sys.stderr)
        except OSError as e:
            where = "" if e.filename is None else f"{e.filename}: "
            print(f"[{where}{e.strerror or e}]", file=sys.stderr)


def _command(conversation: Conversation, text: str) -> str:
    """Do what a line with a slash asks for; return the message about it."""
    name, _, argument = text.partition(" ")
    name, argument = _SAME.get(name, name), argument.strip()
    if name in ("/save", "/load", "/image") and not argument:
        raise RequestError(f"{name} needs a file name")
    if name == "/reset":
        conversation.reset()
        return "[the conversation is forgotten]"
    if name == "/regen":
        conversation.answer_again()
        return ""
    if name == "/set":
        return _set(conversation, argument)
    if name == "/system":
        conversation.set_system(argument)
        return "[a new conversation begins]"
    if name == "/save":
        conversation.save(with_home(argument))
        return f"[saved as {argument}]"
    if name == "/load":
        conversation.load(with_home(argument))
        return f"[{len(conversation.messages)} messages]"
    if name == "/image":
        return f"[{conversation.show(image_path(argument))}]"
    if name == "/tools":
        if conversation.tools is None:
            raise RequestError(
                "there are no tools: --mcp-servers-config FILE names servers of them"
            )
        return conversation.tools.listed()
    if name == "/help":
        return _HELP
    likely = get_close_matches(name, _COMMANDS, n=1)
    hint = f"; did you mean {likely[0]}?" if likely else "; /help lists them"
    raise RequestError(f"there is no command {name}{hint}")


def _set(conversation: Conversation, argument: str) -> str:
    """``NAME VALUE``, or as Ollama has it ``parameter NAME VALUE`` and ``system TEXT``."""
    name, _, value = argument.removeprefix("parameter ").strip().partition(" ")
    if not name:
        return "\n".join(f"{k} = {v!r}" for k, v in vars(conversation.params).items())
    if not value.strip():
        raise RequestError("/set needs a name and a value: /set temperature 0.5")
    if name == "system":
        conversation.set_system(value.strip())
        return "[a new conversation begins]"
    return f"[{name} = {conversation.set(name, value.strip())!r}]"
