"""Log-probabilities of answers and prompts, as OpenAI's two APIs and llama-server write them."""

from __future__ import annotations

import codecs
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from oxibonsai.engine import Engine
from oxibonsai.sampling.sampler import TokenLogprobs, token_logprobs
from oxibonsai.server.response_choice import Choice
from oxibonsai.tokenizer import Tokenizer


@dataclass(frozen=True)
class ShownToken:
    """A token that is part of the returned text.

    Attributes:
        data: Its bytes, truncated where a stop string truncated the text.
        logprobs: Its log-probability and those of the top tokens; None for the first token of a text.
    """

    data: bytes
    logprobs: TokenLogprobs | None


class ShownTokens:
    """Yields the tokens of a choice as far as its text has been read.

    The bytes of these tokens, joined, decode to the text: tokens that mark its end are left out.
    """

    def __init__(self, choice: Choice, tokenizer: Tokenizer) -> None:
        self._choice = choice
        self._tokenizer = tokenizer
        self._next = 0
        self._given = 0  # complete characters in the tokens so far
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self) -> list[ShownToken]:
        """Return the tokens of the text that was read since the last call."""
        tokens = []
        records = self._choice.sequence.logprobs
        visible = self._choice.sequence.options.visible
        shown = self._choice.shown_characters
        while self._next < len(records):
            record = records[self._next]
            hidden = record.token in self._tokenizer.special_ids - visible
            data = b"" if hidden else self._tokenizer.token_bytes(record.token)
            before = self._decoder.getstate()
            whole = len(self._decoder.decode(data))
            begun = (
                1 if self._decoder.getstate()[0] else 0
            )  # a character of which this token has the first bytes
            if self._given + whole + begun > shown:
                whole = shown - self._given
                self._decoder.setstate(before)
                if not self._choice.ended or whole == 0:
                    break
                data = self._beginning(data, whole)
            self._next += 1
            self._given += whole
            if data:
                tokens.append(ShownToken(data, record))
        return tokens

    def _beginning(self, data: bytes, characters: int) -> bytes:
        """Return the bytes up to the end of the given number of characters."""
        for i in range(len(data)):
            characters -= len(self._decoder.decode(data[i : i + 1]))
            if characters <= 0:
                return data[: i + 1]
        return data


class TextOffsets:
    """The offset of each token in the text, in characters."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._next = 0

    def of(self, data: bytes) -> int:
        """Return the offset of the next token; a token that continues a character has that character's."""
        offset = self._next
        self._next += len(self._decoder.decode(data))
        return offset


def chat_form(tokens: list[ShownToken], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Return items of ``choices[].logprobs.content`` and of llama-server's ``completion_probabilities``."""
    return [
        {
            **_named(t.logprobs.token, t.data),
            "logprob": finite(t.logprobs.logprob),
            "top_logprobs": [
                {**_named(token, tokenizer.token_bytes(token)), "logprob": finite(logprob)}
                for token, logprob in t.logprobs.top
            ],
        }
        for t in tokens
        if t.logprobs is not None
    ]


def drawn_form(tokens: list[ShownToken], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Return ``completion_probabilities`` with ``post_sampling_probs``: probabilities, not logarithms."""
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
    tokens: list[ShownToken], tokenizer: Tokenizer, offsets: TextOffsets, top: int
) -> dict[str, Any]:
    """Return ``choices[].logprobs`` of ``/v1/completions``.

    Args:
        tokens: The tokens to list.
        tokenizer: The model's tokenizer.
        offsets: The state after the preceding tokens.
        top: Number of top tokens that were requested.
    """
    return {
        "tokens": [_escaped(t.data) for t in tokens],
        "token_logprobs": [
            None if t.logprobs is None else finite(t.logprobs.logprob) for t in tokens
        ],
        "top_logprobs": [_ranked(t, tokenizer) for t in tokens] if top else None,
        "text_offset": [offsets.of(t.data) for t in tokens],
    }


def _ranked(token: ShownToken, tokenizer: Tokenizer) -> dict[str, float] | None:
    if token.logprobs is None:
        return None
    ranked: dict[str, float] = {}
    for i, logprob in token.logprobs.top:  # of tokens with equal text the most likely one is listed
        ranked.setdefault(_escaped(tokenizer.token_bytes(i)), finite(logprob))
    return ranked


def _named(token: int, data: bytes) -> dict[str, Any]:
    return {"id": token, "token": _text(data), "bytes": list(data)}


def _escaped(data: bytes) -> str:
    r"""Return the text, or for a partial character OpenAI's form ``bytes:\xe2\x80``."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def finite(logprob: float) -> float:
    """Return a log-probability for JSON; OpenAI writes a probability of 0 as -9999."""
    return max(float(logprob), -9999.0)


def prompt_tokens(engine: Engine, ids: list[int], top: int) -> list[ShownToken]:
    """Return log-probabilities of each token of a prompt, given the tokens before it.

    A BOS token is left out. The first token of a prompt without BOS has no probability.

    Args:
        engine: Runs the prompt in small chunks, between the steps of other requests.
        ids: The prompt.
        top: Number of top tokens to report for each.
    """
    tokenizer = engine.tokenizer
    shown: list[ShownToken] = []
    if ids[0] != tokenizer.bos_id:
        shown.append(ShownToken(tokenizer.token_bytes(ids[0]), None))
    position = 1
    for rows in engine.iter_logits(ids):
        for row in rows[: len(ids) - position]:
            record = token_logprobs(row, ids[position], top)
            shown.append(ShownToken(tokenizer.token_bytes(ids[position]), record))
            position += 1
    return shown


def ranked_tokens(engine: Engine, ids: list[int], top: int) -> list[dict[str, Any] | None]:
    """Return vLLM's ``prompt_logprobs``: for each token, log-probabilities by id of it and the top tokens.

    Args:
        engine: As in :func:`prompt_tokens`.
        ids: The prompt.
        top: Number of top tokens to report for each.

    Returns:
        One entry for each token; None for the first one.
    """
    ranked: list[dict[str, Any] | None] = [None]
    for rows in engine.iter_logits(ids):
        for row in rows[: len(ids) - len(ranked)]:
            token = ids[len(ranked)]
            record = token_logprobs(row, token, top)
            rank = 1 + int(np.count_nonzero(row > row[token]))
            best = [(i, logprob, place) for place, (i, logprob) in enumerate(record.top, 1)]
            ranked.append(
                {
                    str(i): {
                        "logprob": finite(logprob),
                        "rank": place,
                        "decoded_token": engine.tokenizer.token_bytes(i).decode("utf-8", "replace"),
                    }
                    for i, logprob, place in [*best, (token, record.logprob, rank)]
                }
            )
    return ranked
