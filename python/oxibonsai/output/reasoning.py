"""Reasoning between tags, kept apart from the answer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from oxibonsai.output.stop import StopScanner


@dataclass(frozen=True)
class ReasoningTags:
    """The texts that a model writes around its reasoning.

    Attributes:
        open, close: Around it.
        after: What is written behind the close tag where the model is made to write it.
        answer: What the model writes before an answer; where that is something, reasoning and answer
            are messages with heads of their own (:class:`oxibonsai.output.channels.ChannelSplitter`).
    """

    open: str = "<think>"
    close: str = "</think>"
    after: str = "\n\n"
    answer: str = ""

    @property
    def marks(self) -> frozenset[str]:
        """All texts that may be special tokens."""
        parts = _MARK.findall(self.open + self.close + self.after + self.answer)
        return frozenset({self.open, self.close, *parts})


_MARK = re.compile(r"<[^<>]+>")
CHANNELS = ReasoningTags(
    "<|channel|>analysis<|message|>",
    "<|end|>",
    after="<|start|>assistant",
    answer="<|channel|>final<|message|>",
)


# Pairs of tags that reasoning models use.
KNOWN_TAGS = (
    CHANNELS,  # gpt-oss
    ReasoningTags("<seed:think>", "</seed:think>"),  # Seed-OSS
    ReasoningTags("<mm:think>", "</mm:think>"),  # MiniMax M3
    ReasoningTags("<|channel>thought", "<channel|>"),  # Gemma 4
    ReasoningTags("<|START_THINKING|>", "<|END_THINKING|>"),  # Command R7B and A
    ReasoningTags("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    ReasoningTags(),
    ReasoningTags("[THINK]", "[/THINK]"),  # Mistral
    ReasoningTags("<thinking>", "</thinking>"),  # Apriel
)


def find_reasoning_tags(template_source: str) -> ReasoningTags | None:
    """Return the tags that a chat template knows; None for a model that does not think."""
    for tags in KNOWN_TAGS:
        if tags.open in template_source or (not tags.answer and tags.close in template_source):
            return tags
    return None


def starts_inside(prompt: str, tags: ReasoningTags, *, prefill: str = "") -> bool:
    """Whether what comes after a prompt is reasoning.

    So it is where the template has ended the prompt with an open tag. An open tag in somebody's
    message is none: the template closes every message.

    Args:
        prompt: As rendered.
        tags: Of the model.
        prefill: The beginning of the answer, where the prompt ends with one.
    """
    inside = prompt.removesuffix(prefill).rstrip().endswith(tags.open)
    opened, closed = prefill.rfind(tags.open), prefill.rfind(tags.close)
    return inside if opened == closed else opened > closed


class ReasoningSplitter:
    """Splits a streamed text into reasoning and answer.

    Reasoning is one block at the beginning of the text, or what comes before the close tag when
    the text starts inside of it; without a close tag it is all of the text. An open tag further on
    is text: a model may write about tags. New lines next to the tags belong to neither side, as
    in the templates that put the two together again.

    Args:
        tags: Around the reasoning.
        inside: The text starts inside; a further open tag at its beginning is skipped.

    Attributes:
        inside: What comes next is reasoning, as far as one can see.
    """

    def __init__(self, tags: ReasoningTags, *, inside: bool = False) -> None:
        self._tags = tags
        self.inside = inside
        self._starting = True
        self._space: list[str] = []  # before a first open tag
        self._tag = ""  # part of a first open tag
        self._lines: list[str] = []  # new lines that a close tag may follow
        self._skip_lines = False
        self._closing = StopScanner([tags.close])

    def feed(self, text: str) -> tuple[str, str]:
        """Take a piece of the text; return pieces of reasoning and of the answer."""
        if self._starting:
            text = self._start(text)
        if not self.inside:
            return "", self._without_first_lines(text)
        reasoning, end = self._closing.scan(text, 0)
        shown = self._without_last_lines(self._without_first_lines(reasoning))
        if self._closing.hit is None:
            return shown, ""
        self.inside, self._skip_lines = False, True
        return shown, self._without_first_lines(text[end:])

    def finish(self) -> tuple[str, str]:
        """Return the text is over: what was held back."""
        head = "".join(self._space) + self._tag if self._starting else ""
        self._starting = False
        if not self.inside:
            return "", head
        rest = head.lstrip("\n") + self._closing.flush()
        return self._without_last_lines(rest), ""

    @property
    def over(self) -> bool:
        """Whether there is no reasoning to come."""
        return not self._starting and not self.inside

    def _start(self, text: str) -> str:
        """Look for a first open tag; return the text behind it, or all where there is none."""
        if not self._tag:
            stripped = text.lstrip()
            self._space.append(text[: len(text) - len(stripped)])
            text = stripped
        tag = self._tag + text
        if len(tag) < len(self._tags.open) and self._tags.open.startswith(tag):
            self._tag = tag
            return ""
        self._starting = False
        self._skip_lines = self.inside
        if tag.startswith(self._tags.open):
            self.inside = self._skip_lines = True
            return tag[len(self._tags.open) :]
        return "".join(self._space) + tag

    def _without_first_lines(self, text: str) -> str:
        if self._skip_lines:
            text = text.lstrip("\n")
            self._skip_lines = not text
        return text

    def _without_last_lines(self, text: str) -> str:
        body = text.rstrip("\n")
        if not body:
            self._lines.append(text)
            return ""
        shown = "".join(self._lines) + body
        self._lines = [text[len(body) :]]
        return shown
