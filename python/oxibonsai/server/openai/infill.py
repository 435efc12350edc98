"""Prompts of fill-in-the-middle: a text between two others, for ``/infill`` and ``suffix``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from oxibonsai.errors import UnsupportedError
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.inputs import PromptLimit, read_text
from oxibonsai.tokenizer import Tokenizer
from oxibonsai.tokenizer.infill_tokens import InfillTokens

# What stands before the files of a prompt; llama-server's words, for the same tokens.
_REPOSITORY, _FILE = "myproject\n", "filename\n"
_SNIPPET = "\n\n--- snippet ---\n\n"


def infill_tokens(tokenizer: Tokenizer) -> InfillTokens:
    """Return the tokens of fill-in-the-middle.

    Raises:
        UnsupportedError: The model has none.
    """
    tokens = tokenizer.vocabulary.infill
    if tokens is None:
        raise UnsupportedError(
            "this model has no tokens for fill-in-the-middle: serve one for code completion, or send the "
            "text before the gap as a prompt, without a suffix"
        )
    return tokens


def infill_prompt(
    tokenizer: Tokenizer,
    prefix: str,
    suffix: str,
    limit: PromptLimit,
    *,
    prompt: list[int] | None = None,
    files: Iterable[tuple[str, str]] = (),
) -> list[int]:
    """Return the ids of a prompt whose answer stands between two texts.

    Args:
        tokenizer: Of the model.
        prefix: The text before the gap.
        suffix: The text after it.
        limit: What fits into the context.
        prompt: Ids that follow the prefix.
        files: Names and texts of other files that the model should know of.

    Raises:
        UnsupportedError, TooLongError: The model has no such tokens, or the prompt is too long.
    """
    tokens = infill_tokens(tokenizer)

    def ids(text: str) -> list[int]:
        return read_text(text, tokenizer, limit, add_special=False, parse_special=False)

    extra: list[int] = []
    if tokens.repository is not None:
        extra += [tokens.repository, *ids(_REPOSITORY)]
    for name, text in files:
        head = ids(_SNIPPET) if tokens.file is None else [tokens.file, *ids(f"{name}\n")]
        extra += [*head, *ids(text)]
    if tokens.file is not None:
        extra += [tokens.file, *ids(_FILE)]
    bos = tokenizer.vocabulary.leading_bos
    first = [] if bos is None else [bos]
    before = [tokens.prefix, *ids(prefix), *(prompt or [])]
    after = [tokens.suffix, *ids(suffix)]
    whole = [*extra, *first, *before, *after, tokens.middle]
    limit.check_count(len(whole))
    return whole


def infill_params(params: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
    """Return parameters with which an answer ends where another file would begin."""
    ends = infill_tokens(tokenizer).ends
    return replace(params, stop_token_ids=(*params.stop_token_ids, *sorted(ends)))
