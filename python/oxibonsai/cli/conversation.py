"""A conversation in the terminal: its messages, its answers, how they are kept."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from oxibonsai.chat import ChatReply, ChatRequest, answer, prepare
from oxibonsai.chat_template import ChatTemplate
from oxibonsai.cli.image_options import check_sees, with_images
from oxibonsai.cli.output import WordWrap
from oxibonsai.cli.progress import read_prompt_of
from oxibonsai.cli.sampling_options import SAMPLING_FIELDS
from oxibonsai.cli.tool_calls import ToolCalls
from oxibonsai.engine import Engine, Options, Sequence, restore, save
from oxibonsai.errors import RequestError, printable
from oxibonsai.files.whole_file import written_whole
from oxibonsai.sampling import SamplingParams
from oxibonsai.vision.image_input import read_file

_ANSWER_ROOM = 64  # positions that an answer needs at least


class Conversation:
    """Messages so far, and how to add to them.

    Args:
        engine: Answers.
        template: How the conversation is written.
        params: How to choose tokens.
        options: Of the engine.
        request: What is asked of every answer; its messages and tools are left aside.
        tools: What the model may call; None: nothing.
        as_json: Print each answer as one JSON object in a line, when it is complete.
        wraps: Break lines between words, on a terminal.
        shows_reasoning: Print reasoning to stderr.
    """

    def __init__(
        self,
        engine: Engine,
        template: ChatTemplate,
        params: SamplingParams,
        options: Options,
        request: ChatRequest,
        *,
        tools: ToolCalls | None = None,
        as_json: bool = False,
        wraps: bool = True,
        shows_reasoning: bool = True,
    ) -> None:
        self.engine = engine
        self.template = template
        self.params = params
        self.options = options
        self.request = request
        self.tools = tools
        self.messages: list[dict[str, Any]] = []
        self.images: list[Path] = []  # shown with the next message
        self.as_json = as_json
        self.wraps = wraps
        self.shows_reasoning = shows_reasoning
        self._last: Sequence | None = None
        self._again = 0  # answers to the same message before this one

    def set_system(self, text: str | None) -> None:
        """Start anew, with a system message where there is one."""
        self.messages = [{"role": "system", "content": text}] if text else []

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.images = []
        self.messages = [m for m in self.messages if m["role"] == "system"]

    def show(self, path: Path) -> str:
        """Take an image for the next message; return its description.

        Raises:
            RequestError: The model reads text only, or the file holds no image.
        """
        check_sees(self.engine)
        assert self.engine.image_reader is not None
        image = read_file(path, self.engine.image_reader.limits)
        self.images.append(path.absolute())
        height, width = image.size
        return f"{printable(path.name)}, {width} x {height}, goes with the next message"

    def save(self, path: Path) -> None:
        """Write the messages, under the final name only when complete.

        Unless the file is called .json, the keys and values of the last answer are written, too.
        """
        if any(not isinstance(m["content"], str) for m in self.messages):
            raise RequestError("a conversation with pictures can't be saved")
        if path.suffix == ".json":
            with written_whole(path) as file:
                file.write(json.dumps(self.messages, ensure_ascii=False, indent=1).encode())
            return
        if self._last is None:
            raise RequestError("there is no answer to save yet")
        save(self.engine, self._last, path, {"messages": self.messages})

    def load(self, path: Path) -> None:
        """Read a conversation back; RequestError where the file holds something else."""
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

    def set(self, name: str, text: str) -> object:
        """Set a sampling parameter for the answers to come; return its value.

        Raises:
            RequestError: There is no such parameter, or the value is out of range.
        """
        name = {"temp": "temperature", "repeat_penalty": "repetition_penalty"}.get(name, name)
        if name not in SAMPLING_FIELDS:
            likely = get_close_matches(name, SAMPLING_FIELDS, n=1)
            hint = f"; did you mean {likely[0]}?" if likely else ""
            raise RequestError(f"there is no parameter {name}{hint}")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        if name == "stop" and isinstance(value, str):
            value = [value]
        self.params = replace(self.params, **{name: value})
        return getattr(self.params, name)

    def answer_again(self) -> None:
        """Answer the last message anew: with the next seed where one is set."""
        last = next((i for i, m in reversed(list(enumerate(self.messages))) if _asks(m)), None)
        if last is None:
            raise RequestError("there is no message to answer again")
        before, again = self.messages, self._again
        self.messages = before[:last]
        try:
            self._ask(before[last]["content"], again=again + 1)
        except RequestError:
            self.messages, self._again = before, again
            raise

    def answer(self, text: str) -> None:
        """Add a user's message and stream the answer; Ctrl-C keeps what has come."""
        self._ask(with_images(text, self.images))
        self.images = []

    def _ask(self, content: str | list[dict[str, Any]], *, again: int = 0) -> None:
        self.messages.append({"role": "user", "content": content})
        self._again = again
        params = self.params
        if params.seed is not None:
            params = replace(params, seed=(params.seed + again) % 2**64)
        try:
            reply = self._begin(params)
        except RequestError:
            self.messages.pop()
            raise
        self._complete(reply)
        while self._run_tools(reply):
            reply = self._begin(params)
            self._complete(reply)

    def _begin(self, params: SamplingParams) -> ChatReply:
        """Begin the answer to the messages so far."""
        if self.tools is not None:
            self.request = replace(self.request, tools=self.tools.definitions)
        dropped = self._fit()
        request = replace(self.request, messages=self.messages)
        reply = answer(self.engine, request, params, self.options, template=self.template)
        if dropped:
            print(
                f"[the context is full: the {dropped} oldest messages are left out]",
                file=sys.stderr,
            )
        return reply

    def _complete(self, reply: ChatReply) -> None:
        """Print an answer while it comes, and add it to the messages."""
        self._last = reply.sequence
        self._show(reply)
        said: dict[str, Any] = {"role": "assistant", "content": reply.reply.content}
        if reply.reply.reasoning_content:  # templates that keep it then repeat what was generated
            said["reasoning_content"] = reply.reply.reasoning_content
        if reply.reply.tool_calls:
            said["tool_calls"] = [call.message_form for call in reply.reply.tool_calls]
        self.messages.append(said)

    def _run_tools(self, reply: ChatReply) -> bool:
        """Run what an answer calls; return whether the model is to go on with the results."""
        if self.tools is None or not reply.reply.tool_calls:
            return False
        stopped = reply.finish_reason == "cancelled"
        results, goes_on = self.tools.run(reply.reply.tool_calls, stopped=stopped)
        self.messages += results
        return goes_on

    def _show(self, reply: ChatReply) -> None:
        pieces = iter(reply)
        wrap = WordWrap(_columns()) if self.wraps and sys.stdout.isatty() else None
        stopped = False
        try:
            if not self.as_json:
                read_prompt_of(self.engine, reply.sequence)
            for delta in pieces:
                if self.as_json:
                    continue
                if delta.reasoning_content and self.shows_reasoning:
                    print(delta.reasoning_content, end="", file=sys.stderr, flush=True)
                elif delta.content:
                    text = delta.content if wrap is None else wrap.feed(delta.content)
                    print(text, end="", flush=True)
        except KeyboardInterrupt:
            stopped = True
        finally:
            pieces.close()  # type: ignore[attr-defined]
            if wrap is not None:
                print(wrap.finish(), end="", flush=True)
        if stopped:
            print(" [stopped]", end="", file=sys.stderr, flush=True)
        if self.as_json:
            print(json.dumps(_facts(reply), ensure_ascii=False), flush=True)
            return
        print()
        for shift in reply.sequence.shifts:
            print(f"[the context was full: {shift.dropped} tokens left out]", file=sys.stderr)
        if reply.finish_reason == "length":
            print(
                "[the answer was cut: its token limit or the context is reached]", file=sys.stderr
            )
        speed = _tokens_per_second(reply.sequence)
        if not stopped:
            print(f"[{reply.sequence.num_generated} tokens, {speed:.1f} tok/s]", file=sys.stderr)

    def _fit(self) -> int:
        """Leave out the oldest turns until the rest fits; return how many messages that were."""
        start = 1 if self.messages and self.messages[0]["role"] == "system" else 0
        later = [i for i, m in enumerate(self.messages) if i > start and _asks(m)]
        for first in [start, *later]:
            dropped = first - start
            kept = self.messages[:start] + self.messages[first:]
            request = replace(self.request, messages=kept)
            prepared = prepare(self.engine, request, template=self.template)
            if len(prepared.ids) + _ANSWER_ROOM <= self.engine.ctx_size:
                self.messages = kept
                return dropped
        raise RequestError(
            f"the message alone has {len(prepared.ids)} tokens, too many for the context of "
            f"{self.engine.ctx_size}: shorten it or raise --ctx-size"
        )


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(k), str) for k in ("role", "content")
    )


def _asks(message: dict[str, Any]) -> bool:
    return bool(message["role"] == "user")


def _tokens_per_second(sequence: Sequence) -> float:
    """Return the speed of generation; the first token belongs to the prompt."""
    first, last = sequence.times.first_token, sequence.times.finished
    if first is None or last is None or last <= first:
        return 0.0
    return (sequence.num_generated - 1) / (last - first)


def _facts(reply: ChatReply) -> dict[str, Any]:
    s = reply.sequence
    facts: dict[str, Any] = {
        "content": reply.reply.content,
        "finish_reason": reply.finish_reason,
        "prompt_tokens": s.num_prompt_tokens,
        "completion_tokens": s.num_generated,
        "cached_tokens": s.num_cached,
        "seed": s.sampler.seed,
        "tok_s": round(_tokens_per_second(s), 2),
    }
    if reply.reply.reasoning_content:
        facts["reasoning_content"] = reply.reply.reasoning_content
    if reply.reply.tool_calls:
        facts["tool_calls"] = [call.message_form for call in reply.reply.tool_calls]
    return facts


def _columns() -> int:
    return shutil.get_terminal_size().columns
