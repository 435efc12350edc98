"""``oxibonsai chat``: a conversation in the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.chat import ChatReply, ChatRequest, answer, prepare
from oxibonsai.chat_template import ChatTemplate
from oxibonsai.cli.chat_options import reasoning_options, take_template, template_options
from oxibonsai.cli.generation_options import (
    context_shift_options,
    speculation_options,
    take_context_shift,
    take_speculation,
)
from oxibonsai.cli.options import engine_options, load_engine, model_options
from oxibonsai.cli.sampling_options import sampling_options, split_sampling
from oxibonsai.engine import Engine, Options, Sequence, restore, save
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.files.whole_file import written_whole
from oxibonsai.sampling import SamplingParams

_HELP = """/reset          forget the conversation
/system TEXT    set the system message and start anew
/save FILE      write the conversation and what the model has computed; FILE.json: the messages alone
/load FILE      read one back
/help           this list
/exit           leave (also Ctrl-D)
Enter sends; Alt-Enter, or a line that ends in \\, starts a new line. Ctrl-C stops an answer."""

_ANSWER_ROOM = 64  # positions that an answer needs at least


@click.command()
@model_options
@click.option("--system", metavar="TEXT", help="System message.")
@click.option(
    "--load", "load_path", type=click.Path(path_type=Path), help="Go on from a saved chat."
)
@click.option(
    "--save", "save_path", type=click.Path(path_type=Path), help="Save the chat at its end."
)
@engine_options
@sampling_options
@template_options
@reasoning_options
@speculation_options
@context_shift_options
def chat(
    model: str | None,
    quant_type: str,
    system: str | None,
    load_path: Path | None,
    save_path: Path | None,
    enable_thinking: bool | None,
    thinking_budget: int | None,
    **options: Any,
) -> None:
    """Talk with a model in the terminal; /help lists the commands."""
    params = split_sampling(options)
    make_speculate = take_speculation(options)
    own = Options(shift=take_context_shift(options))
    choose = take_template(options)
    engine = load_engine(model, quant_type, **options)
    template = choose(engine)
    if template is None:
        raise RequestError(
            "this model has no chat template: give one with --chat-template (chatml, or Jinja) or "
            "--chat-template-file, or use `oxibonsai run --raw`"
        )
    own = replace(own, speculate=make_speculate(engine))
    request = ChatRequest([], enable_thinking=enable_thinking, thinking_budget=thinking_budget)
    conversation = Conversation(engine, template, params, own, request)
    conversation.set_system(system)
    if load_path is not None:
        conversation.load(load_path)
    _loop(conversation, _reader())
    if save_path is not None:
        conversation.save(save_path)


class Conversation:
    """Messages so far, and how to add to them.

    Args:
        engine: Answers.
        template: How the conversation is written.
        params: How to choose tokens.
        options: Of the engine.
        request: What is asked of every answer; its messages are left aside.
    """

    def __init__(
        self,
        engine: Engine,
        template: ChatTemplate,
        params: SamplingParams,
        options: Options,
        request: ChatRequest,
    ) -> None:
        self.engine = engine
        self.template = template
        self.params = params
        self.options = options
        self.request = request
        self.messages: list[dict[str, str]] = []
        self._last: Sequence | None = None

    def set_system(self, text: str | None) -> None:
        """Starts anew, with a system message where there is one."""
        self.messages = [{"role": "system", "content": text}] if text else []

    def reset(self) -> None:
        """Forgets everything but the system message."""
        self.messages = [m for m in self.messages if m["role"] == "system"]

    def save(self, path: Path) -> None:
        """Writes the messages, and unless the file is called .json the keys and values of the last
        answer, under the final name only when complete."""
        if path.suffix == ".json":
            with written_whole(path) as file:
                file.write(json.dumps(self.messages, ensure_ascii=False, indent=1).encode())
            return
        if self._last is None:
            raise RequestError("there is no answer to save yet")
        save(self.engine, self._last, path, {"messages": self.messages})

    def load(self, path: Path) -> None:
        """Reads a conversation back; RequestError where the file holds something else."""
        if path.suffix == ".json":
            try:
                messages = json.loads(path.read_text("utf-8"))
            except ValueError as e:
                raise RequestError(f"{path} is no saved conversation: {e}") from e
        else:
            restored = restore(self.engine, path)
            self.engine.cancel(restored.sequence)  # its pages stay known
            self._last = restored.sequence
            messages = restored.notes.get("messages")
        if not isinstance(messages, list) or not all(_is_message(m) for m in messages):
            raise RequestError(f"{path} is no saved conversation: not a list of role and content")
        self.messages = messages

    def answer(self, text: str) -> None:
        """Adds a user's message and streams the answer; Ctrl-C keeps what has come."""
        self.messages.append({"role": "user", "content": text})
        try:
            dropped = self._fit()
            request = replace(self.request, messages=self.messages)
            reply = answer(self.engine, request, self.params, self.options, template=self.template)
        except RequestError:
            self.messages.pop()
            raise
        if dropped:
            print(
                f"[the context is full: the {dropped} oldest messages are left out]",
                file=sys.stderr,
            )
        self._last = reply.sequence
        self._show(reply)
        self.messages.append({"role": "assistant", "content": reply.reply.content})

    def _show(self, reply: ChatReply) -> None:
        pieces = iter(reply)
        try:
            for delta in pieces:
                where = sys.stderr if delta.reasoning_content else sys.stdout
                print(delta.reasoning_content or delta.content, end="", file=where, flush=True)
        except KeyboardInterrupt:
            print(" [stopped]", end="", file=sys.stderr)
        finally:
            pieces.close()  # type: ignore[attr-defined]
        print()
        for shift in reply.sequence.shifts:
            print(f"[the context was full: {shift.dropped} tokens left out]", file=sys.stderr)
        if reply.finish_reason == "length":
            print(
                "[the answer was cut: its token limit or the context is reached]", file=sys.stderr
            )

    def _fit(self) -> int:
        """Leaves out the oldest turns until the rest fits; how many messages that were."""
        start = 1 if self.messages and self.messages[0]["role"] == "system" else 0
        for dropped in range(0, len(self.messages) - start, 2):
            kept = self.messages[:start] + self.messages[start + dropped :]
            request = replace(self.request, messages=kept)
            turn = prepare(self.engine, request, template=self.template)
            if len(turn.ids) + _ANSWER_ROOM <= self.engine.ctx_size:
                self.messages = kept
                return dropped
        raise RequestError(
            f"the message alone has {len(turn.ids)} tokens, too many for the context of "
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
        except (RequestError, FormatError, OSError) as e:
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
