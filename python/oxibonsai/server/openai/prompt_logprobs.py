"""Log-probabilities of a prompt's own tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from oxibonsai.engine import Engine
from oxibonsai.sampling import token_logprobs
from oxibonsai.server.openai.logprobs import ShownToken, finite


def prompt_tokens(engine: Engine, ids: list[int], top: int) -> list[ShownToken]:
    """Log-probabilities of each token of a prompt, given the tokens before it.

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
