"""Two models on the same texts: perplexity, bits per byte, and divergence where their tokens are equal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from oxibonsai.engine import Engine
from oxibonsai.evaluate.divergence import Divergence, compare_rows, summarize
from oxibonsai.evaluate.perplexity import (
    Perplexity,
    log_of_sum,
    negative_log_likelihood,
    scored_rows,
)
from oxibonsai.evaluate.statistics import Estimate, Values, difference, exponential, mean, ratio
from oxibonsai.evaluate.windows import Window, cut_windows, text_tokens

Progress = Callable[[int, int], None]  # windows done, and in all


@dataclass(frozen=True)
class TextScores:
    """How well a model predicts the texts.

    Attributes:
        nll: Negative log-likelihood of every scored token, in nats.
        token_bytes: Bytes that each of them stands for.
        windows: Windows that they are from.
    """

    nll: Values
    token_bytes: Values
    windows: int

    @property
    def perplexity(self) -> Perplexity:
        """The perplexity of a token."""
        nll = mean(self.nll)
        return Perplexity(exponential(nll), nll, len(self.nll), self.windows)

    @property
    def bits_per_byte(self) -> Estimate:
        """The bits of a byte of the text, which don't depend on how a tokenizer cuts it."""
        return ratio(self.nll / math.log(2.0), self.token_bytes)


@dataclass(frozen=True)
class Comparison:
    """Results of two models.

    Attributes:
        a: The first one's.
        b: The second one's.
        kl: Kullback-Leibler divergence of b from a at every scored position, nats; None: the models
            have other tokens.
        divergence: Of b, with a as its base; None as there.
        differing: Why there is no divergence; None: there is one.
    """

    a: TextScores
    b: TextScores
    kl: Values | None
    divergence: Divergence | None
    differing: str | None

    @property
    def bits_per_byte_difference(self) -> Estimate:
        """Bits per byte of b less those of a: of paired scores where the tokens are the same."""
        if self.kl is not None:
            bits = (self.b.nll - self.a.nll) / math.log(2.0)
            return ratio(bits, self.a.token_bytes)
        return difference(self.b.bits_per_byte, self.a.bits_per_byte, correlation=0.0)


def compare_models(
    a: Engine,
    b: Engine,
    texts: Sequence[str],
    ctx_size: int,
    chunks: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Score the same texts with two models.

    Args:
        a: A model whose context holds a window.
        b: An engine of its own, with another model or the same.
        texts: At least one, of at least two windows each.
        ctx_size: Tokens of a window, as of :func:`cut_windows`.
        chunks: Windows of each text at most; None: all.
        progress: Told how many windows are done.

    Raises:
        RequestError: A number is out of range, or a text is too short.
        UnsupportedError: Perplexity is not defined for a model's tokenizer.
        FormatError: A model computes something that is no number.
    """
    tokens_a, tokens_b = ([text_tokens(e.tokenizer, t) for t in texts] for e in (a, b))
    windows_a = _windows(a, tokens_a, ctx_size, chunks)
    differing = differing_tokens(a, b, tokens_a, tokens_b)
    if differing is None:
        return _compare_positions(a, b, windows_a, progress)
    windows_b = _windows(b, tokens_b, ctx_size, chunks)
    total = len(windows_a) + len(windows_b)
    done = 0

    def score(engine: Engine, windows: Sequence[Window]) -> TextScores:
        nonlocal done
        nll = []
        for window in windows:
            nll += [negative_log_likelihood(*row) for row in scored_rows(engine, window)]
            done += 1
            if progress is not None:
                progress(done, total)
        return _scores(engine, windows, nll)

    return Comparison(
        score(a, windows_a), score(b, windows_b), kl=None, divergence=None, differing=differing
    )


def differing_tokens(
    a: Engine, b: Engine, tokens_a: Sequence[Sequence[int]], tokens_b: Sequence[Sequence[int]]
) -> str | None:
    """Return why predictions of two models can't be set side by side, token by token; None: they can.

    Args:
        a: A model.
        b: Another.
        tokens_a: The first one's tokens of each text.
        tokens_b: The second one's.
    """
    sizes = (
        ("tokens", a.tokenizer.vocab_size, b.tokenizer.vocab_size),
        ("logits", a.model.config.vocab_size, b.model.config.vocab_size),
    )
    for what, size_a, size_b in sizes:
        if size_a != size_b:
            return f"the vocabularies differ: A has {size_a:,} {what}, B {size_b:,}"
    texts = zip(a.tokenizer.vocabulary.texts, b.tokenizer.vocabulary.texts, strict=True)
    for token, (text_a, text_b) in enumerate(texts):
        if text_a != text_b:
            return f"the vocabularies differ: token {token} is {text_a!r} in A, {text_b!r} in B"
    for number, (found_a, found_b) in enumerate(zip(tokens_a, tokens_b, strict=True), 1):
        if found_a != found_b:
            pairs = zip(found_a, found_b, strict=False)
            first = next((i for i, (x, y) in enumerate(pairs) if x != y), len(found_a))
            return f"the tokenizers differ: text {number} is cut otherwise from token {first} on"
    return None


def _windows(
    engine: Engine, tokens: Sequence[Sequence[int]], ctx_size: int, chunks: int | None
) -> list[Window]:
    bos = engine.tokenizer.vocabulary.leading_bos
    return [w for text in tokens for w in cut_windows(text, ctx_size, bos, chunks=chunks)]


def _scores(engine: Engine, windows: Sequence[Window], nll: Sequence[float]) -> TextScores:
    sizes = [len(engine.tokenizer.token_bytes(t)) for w in windows for t in w.targets]
    return TextScores(np.array(nll), np.array(sizes, dtype=np.float64), len(windows))


def _compare_positions(
    a: Engine, b: Engine, windows: Sequence[Window], progress: Progress | None
) -> Comparison:
    positions = []
    for done, window in enumerate(windows, 1):
        rows = zip(scored_rows(a, window), scored_rows(b, window), strict=True)
        for (row_a, target), (row_b, _) in rows:
            nll_a = negative_log_likelihood(row_a, target)
            base = row_a - np.float32(log_of_sum(row_a))
            nll_b, _, kl, same = compare_rows(row_b, base, target)
            positions.append((nll_b, nll_a, kl, same))
        if progress is not None:
            progress(done, len(windows))
    return Comparison(
        _scores(a, windows, [p[1] for p in positions]),
        _scores(b, windows, [p[0] for p in positions]),
        kl=np.array([p[2] for p in positions]),
        divergence=summarize(positions, len(windows)),
        differing=None,
    )
