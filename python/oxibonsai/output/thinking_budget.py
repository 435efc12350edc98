"""A bound on the tokens that a model spends on reasoning."""

from __future__ import annotations

import codecs
import copy
from collections.abc import Callable, Sequence

from oxibonsai.errors import RequestError
from oxibonsai.output.reasoning import ReasoningSplitter, ReasoningTags


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
        """Tokens of reasoning so far, without the tags."""
        return self._spent


def _latin(data: bytes) -> str:
    return data.decode("latin-1")
