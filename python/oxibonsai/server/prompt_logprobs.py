"""Log-probabilities of a prompt's own tokens."""

from __future__ import annotations

from oxibonsai.engine import Engine
from oxibonsai.sampling import token_logprobs
from oxibonsai.server.logprobs import ShownToken


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
