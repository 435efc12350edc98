"""Log-probabilities of a prompt's own tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from oxibonsai.engine import Engine
from oxibonsai.sampling import token_logprobs
from oxibonsai.server.openai.logprobs import ShownToken, finite


def prompt_tokens(engine: Engine, ids: list[int], top: int) -> list[ShownToken]:
    """Each token of a prompt, given those before it.

    The bos that the server put first is left out. The first token of a prompt without it has no
    probability.

    Args:
        engine: Runs the prompt, a few rows at a time between the steps of other requests.
        ids: The prompt.
        top: Most likely tokens to report beside each.
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
    """``prompt_logprobs`` as vLLM has it: for each token, by id, its own and the most likely ones.

    Args:
        engine: As of :func:`prompt_tokens`.
        ids: The prompt.
        top: Most likely tokens beside each.

    Returns:
        None for the first token, which nothing stands before.
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
