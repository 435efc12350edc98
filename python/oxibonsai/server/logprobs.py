"""Log-probabilities in the forms of OpenAI's two APIs and of llama-server."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from oxibonsai.sampling import TokenLogprobs
from oxibonsai.server.choice import Choice
from oxibonsai.tokenizer import Tokenizer


@dataclass(frozen=True)
class ShownToken:
    """A token whose bytes are part of the text that was sent.

    Attributes:
        data: Its bytes, cut where a stop string cut the text.
        logprobs: Its own and those of the most likely tokens; None for the first token of a text.
    """

    data: bytes
    logprobs: TokenLogprobs | None


class ShownTokens:
    """Gives out the tokens of a choice as far as its text has been sent.

    The bytes of all tokens given out, joined, are those of the text: what marks its end is left out.
    """

    def __init__(self, choice: Choice, tokenizer: Tokenizer) -> None:
        self._choice = choice
        self._tokenizer = tokenizer
        self._next = 0
        self._given = 0  # bytes

    def take(self) -> list[ShownToken]:
        """The tokens of the text that is new since the last call."""
        tokens = []
        records = self._choice.sequence.logprobs
        visible = self._choice.sequence.options.visible
        shown = self._choice.shown_bytes
        while self._next < len(records):
            record = records[self._next]
            hidden = record.token in self._tokenizer.special_ids - visible
            data = b"" if hidden else self._tokenizer.token_bytes(record.token)
            if self._given + len(data) > shown:
                if not self._choice.ended or self._given == shown:
                    break
                data = data[: shown - self._given]
            self._next += 1
            self._given += len(data)
            if data:
                tokens.append(ShownToken(data, record))
        return tokens


def chat_form(tokens: list[ShownToken], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Items of ``choices[].logprobs.content``, and of llama-server's ``completion_probabilities``."""
    return [
        {
            **_named(t.logprobs.token, t.data),
            "logprob": _finite(t.logprobs.logprob),
            "top_logprobs": [
                {**_named(token, tokenizer.token_bytes(token)), "logprob": _finite(logprob)}
                for token, logprob in t.logprobs.top
            ],
        }
        for t in tokens
        if t.logprobs is not None
    ]


def drawn_form(tokens: list[ShownToken], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """The same as llama-server has it with ``post_sampling_probs``: probabilities, no logarithms."""
    return [
        {
            **_named(t.logprobs.token, t.data),
            "prob": math.exp(t.logprobs.logprob),
            "top_probs": [
                {**_named(token, tokenizer.token_bytes(token)), "prob": math.exp(logprob)}
                for token, logprob in t.logprobs.top
            ],
        }
        for t in tokens
        if t.logprobs is not None
    ]


def completion_form(
    tokens: list[ShownToken], tokenizer: Tokenizer, offset: int, top: int
) -> dict[str, Any]:
    """``choices[].logprobs`` of ``/v1/completions``.

    Args:
        tokens: Those to list.
        tokenizer: Of the model.
        offset: Where the text of the first one begins, in characters.
        top: Whether, and how many, most likely tokens were asked for.
    """
    names = [_text(t.data) for t in tokens]
    offsets = []
    for name in names:
        offsets.append(offset)
        offset += len(name)
    return {
        "tokens": names,
        "token_logprobs": [
            None if t.logprobs is None else _finite(t.logprobs.logprob) for t in tokens
        ],
        "top_logprobs": [_ranked(t, tokenizer) for t in tokens] if top else None,
        "text_offset": offsets,
    }


def _ranked(token: ShownToken, tokenizer: Tokenizer) -> dict[str, float] | None:
    if token.logprobs is None:
        return None
    return {_text(tokenizer.token_bytes(i)): _finite(p) for i, p in token.logprobs.top}


def _named(token: int, data: bytes) -> dict[str, Any]:
    return {"id": token, "token": _text(data), "bytes": list(data)}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _finite(logprob: float) -> float:
    """JSON has no infinity; OpenAI's stand-in for a probability of 0 is -9999."""
    return max(float(logprob), -9999.0)
