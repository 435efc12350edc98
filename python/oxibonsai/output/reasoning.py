"""Reasoning between tags, kept apart from the answer, and a budget for it."""

from __future__ import annotations

import codecs
import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oxibonsai.errors import RequestError
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
    """Return whether what comes after a prompt is reasoning.

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


class ThinkingBudget:
    r"""The budget of reasoning: counts its tokens, and ends it once they are spent.

    Args:
        limit: Tokens of reasoning, 0 or more. 0 ends it as soon as it has begun. A character that
            is cut there is completed first, so it can be up to 3 more.
        token_bytes: The bytes that a token stands for; of a tag's token, the tag.
        closing: Tokens of the close tag and what follows it, ``"</think>\n\n"``.
        opening: The open tag, where it is one token.
        tags: Around the reasoning.
        inside: The prompt ends with an open tag.

    Raises:
        RequestError: The limit is negative, or ``closing`` does not spell the close tag.
    """

    def __init__(
        self,
        limit: int,
        *,
        token_bytes: Callable[[int], bytes],
        closing: Sequence[int],
        opening: int | None = None,
        tags: ReasoningTags,
        inside: bool,
    ) -> None:
        if limit < 0:
            raise RequestError(f"thinking_budget is {limit}: it is 0 or more tokens")
        if tags.close.encode() not in b"".join(map(token_bytes, closing)):
            raise RequestError(f"the tokens that end reasoning do not spell {tags.close!r}")
        self._limit = limit
        self._token_bytes = token_bytes
        self._closing = tuple(closing)
        self.opening = opening
        # Bytes as characters: a token may end within a character.
        as_bytes = ReasoningTags(_latin(tags.open.encode()), _latin(tags.close.encode()))
        self._splitter = ReasoningSplitter(as_bytes, inside=inside)
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._spent = 0
        self._given: int | None = None  # tokens of the closing that have been fed

    def feed(self, token: int) -> None:
        """Take the next token of the reply.

        Raises:
            RequestError: Another token was forced.
        """
        forced = self.forced()
        if forced and token != forced[0]:
            raise RequestError(f"token {token} came where the thinking budget forces {forced[0]}")
        if forced:
            self._given = (self._given or 0) + 1
        was_inside = self._splitter.inside
        piece = self._token_bytes(token)
        self._characters.decode(piece)
        self._splitter.feed(_latin(piece))
        self._spent += was_inside and self._splitter.inside

    def forced(self) -> list[int]:
        """Return the tokens that have to come next, in this order; empty where the model chooses."""
        if self._given is not None:
            return list(self._closing[self._given :])
        spent = self._splitter.inside and self._spent >= self._limit
        cut = self._characters.getstate()[0] != b""
        return list(self._closing) if spent and not cut else []

    def fork(self) -> ThinkingBudget:
        """Return a second reply that goes on from here on its own."""
        other = copy.copy(self)
        other._splitter = copy.deepcopy(self._splitter)
        other._characters = codecs.getincrementaldecoder("utf-8")("replace")
        other._characters.setstate(self._characters.getstate())
        return other

    @property
    def inside(self) -> bool:
        """Whether the next token is part of the reasoning or its close tag."""
        return self._splitter.inside

    @property
    def spent(self) -> int:
        """Return the tokens of reasoning so far, without the tags."""
        return self._spent


def _latin(data: bytes) -> str:
    return data.decode("latin-1")
