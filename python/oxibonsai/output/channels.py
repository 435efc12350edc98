"""Replies of several messages, each with a head that says what it is (gpt-oss's harmony format).

``<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...``: analysis is
reasoning, final and commentary are the answer, and a message to ``functions.NAME`` is a call.
"""

from __future__ import annotations

import re

from oxibonsai.output.stop import StopScanner

_MESSAGE = "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_HEADS = ("<|start|>", "<|channel|>")
# What the first head of a reply can begin with: anything else is the text of an answer.
_BEGINNINGS = (*_HEADS, _MESSAGE, "<|constrain|>", "to=")
_LONGEST_HEAD = 512
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"to=([^\s<]+)")
CALL_HEAD = "<|channel|>commentary to=functions."


class ChannelSplitter:
    """Splits a streamed text into reasoning and answer.

    A call stays in the answer, its head always written as ``<|channel|>commentary
    to=functions.NAME<|message|>``; other heads belong to neither side. Messages of one side are parted
    by an empty line.

    Args:
        inside: The text starts inside of reasoning.
    """

    def __init__(self, *, inside: bool = False) -> None:
        self._head: str | None = None if inside else ""  # None: inside of a message
        self._starting = not inside
        self._is_reasoning = inside
        self._written = {True: False, False: False}  # whether a side has text
        self._parts = False  # an empty line goes before the message's text
        self._bodies = StopScanner([*_ENDS, *_HEADS])

    def feed(self, text: str) -> tuple[str, str]:
        """Take a piece of the text; return pieces of reasoning and of the answer."""
        sides: dict[bool, list[str]] = {True: [], False: []}
        position = 0
        while position < len(text):
            if self._head is not None:
                position = self._read_head(text, position, sides)
                continue
            shown, position = self._bodies.scan(text, position)
            self._write(shown, sides)
            hit = self._bodies.hit
            if hit is not None:
                self._bodies.reset()
                self._head = hit if hit in _HEADS else ""
        return "".join(sides[True]), "".join(sides[False])

    def finish(self) -> tuple[str, str]:
        """Return the text is over: what was held back. A head that was not complete says nothing."""
        sides: dict[bool, list[str]] = {True: [], False: []}
        if self._head is None:
            self._write(self._bodies.flush(), sides)
        elif self._starting and not self._head.lstrip().startswith("<|"):
            self._write(self._head, sides)
        return "".join(sides[True]), "".join(sides[False])

    def _read_head(self, text: str, position: int, sides: dict[bool, list[str]]) -> int:
        """Take characters of a head; return the index of the first that it has not taken."""
        head = self._head or ""
        for i in range(position, len(text)):
            head += text[i]
            if head.endswith(_MESSAGE):
                self._head = None
                self._begin(head, sides)
                return i + 1
            if (self._starting and not _may_begin(head)) or len(head) > _LONGEST_HEAD:
                self._head, self._starting, self._is_reasoning = None, False, False
                self._write(head, sides)
                return i + 1
        self._head = head
        return len(text)

    def _begin(self, head: str, sides: dict[bool, list[str]]) -> None:
        self._starting = False
        channels, to = _CHANNEL.findall(head), _RECIPIENT.search(head)
        recipient = "assistant" if to is None else to[1]
        # Where the model begins a head twice, the last counts.
        self._is_reasoning = recipient == "assistant" and channels[-1:] == ["analysis"]
        self._parts = self._written[self._is_reasoning]
        if recipient.startswith("functions."):
            name = recipient.removeprefix("functions.")
            self._write(f"{CALL_HEAD}{name}{_MESSAGE}", sides)
        elif recipient != "assistant":
            self._write(head, sides)

    def _write(self, text: str, sides: dict[bool, list[str]]) -> None:
        if not text:
            return
        if self._parts:
            text = "\n\n" + text
        self._parts = False
        self._written[self._is_reasoning] = True
        sides[self._is_reasoning].append(text)


def _may_begin(head: str) -> bool:
    begun = head.lstrip()
    return any(b.startswith(begun[: len(b)]) for b in _BEGINNINGS)
