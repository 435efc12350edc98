"""Perplexity of a text, in llama-perplexity's definition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai.engine import Engine
from oxibonsai.errors import FormatError
from oxibonsai.evaluate.kl_base import KlBaseWriter
from oxibonsai.evaluate.statistics import Estimate, exponential, mean
from oxibonsai.evaluate.windows import Window

Row = npt.NDArray[np.float32]  # [vocabulary]
Progress = Callable[[int, float], None]  # windows done, the estimate so far

_BLOCK_VALUES = 1 << 22  # logits held at a time: 16 MiB


@dataclass(frozen=True)
class Perplexity:
    """Results of a measurement.

    Attributes:
        ppl: ``exp`` of the mean negative log-likelihood.
        nll: That mean, in nats.
        tokens: Tokens that were scored.
        windows: Windows that they are from.
    """

    ppl: Estimate
    nll: Estimate
    tokens: int
    windows: int


def measure_perplexity(
    engine: Engine,
    windows: Sequence[Window],
    writer: KlBaseWriter | None = None,
    progress: Progress | None = None,
) -> Perplexity:
    """Score every window.

    Args:
        engine: A model whose context holds a window.
        windows: At least one, from :func:`cut_windows`.
        writer: Is given the log-probabilities behind every score.
        progress: Told how many windows are done, and the perplexity so far.

    Raises:
        FormatError: The model computes something that is no number.
    """
    scores: list[float] = []
    for done, window in enumerate(windows, 1):
        for row, target in scored_rows(engine, window):
            scores.append(negative_log_likelihood(row, target))
            if writer is not None:
                writer.add(row)
        if progress is not None:
            progress(done, float(np.exp(np.mean(scores))))
    nll = mean(np.array(scores))
    return Perplexity(exponential(nll), nll, len(scores), len(windows))


def scored_rows(engine: Engine, window: Window) -> Iterator[tuple[Row, int]]:
    """Yield the logits of every scored position of a window, with the token that follows it in the text."""
    size = max(1, _BLOCK_VALUES // engine.model.config.vocab_size)
    rows = (
        row for block in engine.iter_logits(window.inputs[:-1], size, window.first) for row in block
    )
    for row, target in zip(rows, window.targets, strict=True):
        check_finite(row)
        yield row, target


def check_finite(row: Row) -> None:
    """Raise FormatError where the logits are no finite numbers."""
    if not np.isfinite(row.max()):
        raise FormatError(
            "the model computes logits that are no finite numbers: its file is damaged"
        )


def negative_log_likelihood(row: Row, target: int) -> float:
    """Return ``-log(softmax(row)[target])`` in nats."""
    return log_of_sum(row) - float(row[target])


def log_of_sum(row: Row) -> float:
    """Return ``log(sum(exp(row)))``, summed in double precision."""
    top = row.max()
    return float(top) + float(np.log(np.exp(row - top).sum(dtype=np.float64)))
