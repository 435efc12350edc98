"""``oxibonsai chat``: a conversation in the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.cli.options import (
    engine_options,
    load_engine,
    model_options,
    sampling_options,
    split_sampling,
)
from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError
from oxibonsai.sampling import SamplingParams

_HELP = """/reset          forget the conversation
/system TEXT    set the system message and start anew
/save FILE      write the conversation as JSON
/load FILE      read one back
/help           this list
/exit           leave (also Ctrl-D)
Enter sends; Alt-Enter, or a line that ends in \\, starts a new line. Ctrl-C stops an answer."""

_ANSWER_ROOM = 64  # positions that an answer needs at least


@click.command()
@model_options
@click.option("--system", metavar="TEXT", help="System message.")
@engine_options
@sampling_options
def chat(model: str | None, quant_type: str, system: str | None, **options: Any) -> None:
    """Talk with a model in the terminal; /help lists the commands."""
    params = split_sampling(options)
    engine = load_engine(model, quant_type, **options)
    if engine.chat_template is None:
        raise RequestError("this model has no chat template; use `oxibonsai run --raw` instead")
    conversation = Conversation(engine, params)
    conversation.set_system(system)
    _loop(conversation, _reader())


class Conversation:
    """Messages so far, and how to add to them."""

    def __init__(self, engine: Engine, params: SamplingParams) -> None:
        self.engine = engine
        self.params = params
        self.messages: list[dict[str, str]] = []

    def set_system(self, text: str | None) -> None:
        """Starts anew, with a system message where there is one."""
        self.messages = [{"role": "system", "content": text}] if text else []

    def reset(self) -> None:
        """Forgets everything but the system message."""
        self.messages = [m for m in self.messages if m["role"] == "system"]

    def save(self, path: Path) -> None:
        """Writes the messages as JSON, under the final name only when complete."""
        temporary = path.with_name(path.name + ".part")
        temporary.write_text(json.dumps(self.messages, ensure_ascii=False, indent=1), "utf-8")
        temporary.replace(path)

    def load(self, path: Path) -> None:
        """Reads messages back; RequestError where the file holds something else."""
        try:
            messages = json.loads(path.read_text("utf-8"))
        except ValueError as e:
            raise RequestError(f"{path} is no saved conversation: {e}") from e
        if not isinstance(messages, list) or not all(_is_message(m) for m in messages):
            raise RequestError(f"{path} is no saved conversation: not a list of role and content")
        self.messages = messages

    def answer(self, text: str) -> None:
        """Adds a user's message and streams the answer; Ctrl-C keeps what has come."""
        self.messages.append({"role": "user", "content": text})
        try:
            ids, dropped = self._fit()
        except RequestError:
            self.messages.pop()
            raise
        if dropped:
            print(
                f"[the context is full: the {dropped} oldest messages are left out]",
                file=sys.stderr,
            )
        pieces: list[str] = []
        stream = self.engine.generate(ids, self.params)
        try:
            for piece in stream:
                pieces.append(piece)
                sys.stdout.write(piece)
                sys.stdout.flush()
        except KeyboardInterrupt:
            print(" [stopped]", end="", file=sys.stderr)
        finally:
            stream.close()  # type: ignore[attr-defined]
        print()
        if self.engine.last is not None and self.engine.last.finish_reason == "length":
            print(
                "[the answer was cut: its token limit or the context is reached]", file=sys.stderr
            )
        self.messages.append({"role": "assistant", "content": "".join(pieces)})

    def _fit(self) -> tuple[list[int], int]:
        """Ids of the conversation, its oldest turns left out until it fits; how many were."""
        template = self.engine.chat_template
        assert template is not None
        start = 1 if self.messages and self.messages[0]["role"] == "system" else 0
        for dropped in range(0, len(self.messages) - start, 2):
            kept = self.messages[:start] + self.messages[start + dropped :]
            ids = self.engine.tokenizer.encode(
                template.render(kept), add_special=False, parse_special=True
            )
            if len(ids) + _ANSWER_ROOM <= self.engine.ctx_size:
                self.messages = kept
                return ids, dropped
        raise RequestError(
            f"the message alone has {len(ids)} tokens, too many for the context of "
            f"{self.engine.ctx_size}: shorten it or raise --ctx-size"
        )


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(k), str) for k in ("role", "content")
    )


def _reader() -> Callable[[], str]:
    """Reads one message: with editing and history in a terminal, plain lines from a pipe."""
    if not sys.stdin.isatty():
        return lambda: _joined_lines(input)
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _new_line(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(key_bindings=keys)
    return lambda: _joined_lines(lambda: session.prompt("> "))


def _joined_lines(read: Callable[[], str]) -> str:
    lines = [read()]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(read())
    return "\n".join(lines)


def _loop(conversation: Conversation, read: Callable[[], str]) -> None:
    print("Type a message, or /help.", file=sys.stderr)
    while True:
        try:
            text = read().strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            continue
        if text == "/exit":
            return
        try:
            if text.startswith("/"):
                _command(conversation, text)
            elif text:
                conversation.answer(text)
        except (RequestError, OSError) as e:
            print(f"[{e}]", file=sys.stderr)


def _command(conversation: Conversation, text: str) -> None:
    name, _, argument = text.partition(" ")
    argument = argument.strip()
    if name in ("/save", "/load") and not argument:
        raise RequestError(f"{name} needs a file name")
    if name == "/reset":
        conversation.reset()
    elif name == "/system":
        conversation.set_system(argument)
    elif name == "/save":
        conversation.save(Path(argument))
    elif name == "/load":
        conversation.load(Path(argument))
    elif name == "/help":
        print(_HELP, file=sys.stderr)
    else:
        raise RequestError(f"there is no command {name}; /help lists them")
