"""Which tokens of a text are scored, and what the model has seen before each: llama-perplexity's rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.tokenizer import Tokenizer

# With fewer there is nothing left to score: the first half of a window is context only, and its last
# token predicts nothing.
MIN_CTX_SIZE = 3


@dataclass(frozen=True)
class Window:
    """One pass of the model over a part of the text.

    Attributes:
        inputs: What the model reads; a bos stands in the first place where the tokenizer adds one.
        first: Position of the first input whose prediction counts; that of the last never does.
        targets: The tokens that follow inputs ``first``, ``first + 1`` ... in the text.
    """

    inputs: tuple[int, ...]
    first: int
    targets: tuple[int, ...]


def text_tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the tokens of a text as llama-perplexity takes them: one newline at the end is left out.

    Raises:
        UnsupportedError: The tokenizer ends every text with a token of its own.
    """
    if tokenizer.vocabulary.add_eos:
        raise UnsupportedError(
            "this model's tokenizer puts an end-of-text token after every text, for which "
            "perplexity over windows of a text is not defined"
        )
    return tokenizer.encode(text.removesuffix("\n"))


def cut_windows(
    tokens: Sequence[int],
    ctx_size: int,
    bos: int | None,
    *,
    chunks: int | None = None,
    stride: int | None = None,
) -> list[Window]:
    """Cut a text into windows.

    Without a stride, windows of ``ctx_size`` tokens lie side by side and the second half of each
    counts. With one, windows of ``ctx_size + stride // 2`` tokens begin every ``stride`` tokens, and
    the last ``stride`` tokens of each count.

    Args:
        tokens: The text, with the bos that the tokenizer puts before it.
        ctx_size: Tokens of a window, at least 3.
        bos: What replaces the first token of every window; None: nothing does.
        chunks: Windows at most; None: all.
        stride: Tokens from one window to the next, 1 to ``ctx_size - 1``; None: no overlap.

    Raises:
        RequestError: A number is out of range, or the text has fewer than ``2 * ctx_size`` tokens.
    """
    if ctx_size < MIN_CTX_SIZE:
        raise RequestError(f"the window is {ctx_size} tokens; it must be at least {MIN_CTX_SIZE}")
    if chunks is not None and chunks < 1:
        raise RequestError(f"chunks is {chunks}; it must be at least 1")
    if stride is not None and not 1 <= stride < ctx_size:
        raise RequestError(f"the stride is {stride}; it must be 1 to {ctx_size - 1}")
    if len(tokens) < 2 * ctx_size:
        raise RequestError(
            f"the text has {len(tokens)} tokens; windows of {ctx_size} need at least "
            f"{2 * ctx_size}: take a longer text or a smaller --ctx-size"
        )
    if stride is None:
        size, first, step = ctx_size, ctx_size // 2, ctx_size
        count = len(tokens) // ctx_size
    else:
        size, step = ctx_size + stride // 2, stride
        first = size - stride - 1
        count = -(-(len(tokens) - size) // stride)
    count = min(count, chunks or count)
    return [make_window(tokens[i * step : i * step + size], first, bos) for i in range(count)]


def make_window(tokens: Sequence[int], first: int, bos: int | None) -> Window:
    """Return the window over these tokens that counts from ``first`` on."""
    inputs = tuple(tokens) if bos is None else (bos, *tokens[1:])
    return Window(inputs, first, tuple(tokens[first + 1 :]))
