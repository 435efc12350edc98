"""Log-probabilities as the Responses API writes them."""

from __future__ import annotations

from oxibonsai.engine import Sequence
from oxibonsai.server.stores import Object
from oxibonsai.tokenizer import Tokenizer


def describe_logprobs(sequence: Sequence, tokenizer: Tokenizer) -> list[Object]:
    """An object for each generated token, with the most likely ones beside it."""
    return [
        {
            **_described(one.token, one.logprob, tokenizer),
            "top_logprobs": [_described(t, p, tokenizer) for t, p in one.top],
        }
        for one in sequence.logprobs
    ]


def _described(token: int, logprob: float, tokenizer: Tokenizer) -> Object:
    data = tokenizer.token_bytes(token)
    # JSON has no minus infinity; OpenAI writes so for what can't happen.
    return {
        "token": data.decode("utf-8", "replace"),
        "bytes": list(data),
        "logprob": max(logprob, -9999.0),
    }
