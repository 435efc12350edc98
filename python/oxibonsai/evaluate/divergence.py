"""How far a model's predictions are from another's, kept in a base file: llama-perplexity's figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError
from oxibonsai.evaluate.kl_base import KlBase
from oxibonsai.evaluate.perplexity import Row, log_of_sum, scored_rows
from oxibonsai.evaluate.statistics import (
    Estimate,
    correlation,
    difference,
    exponential,
    mean,
    percentiles,
    root,
)

# Tokens that the base gives less than this are left out of a divergence: the file does not tell them
# apart from those that it cannot hold.
_MIN_LOG_PROB = -16.0
_KL_PERCENTS = (100, 99.9, 99, 95, 90, 50, 10, 5, 1, 0.1, 0)
_DELTA_PERCENTS = (100, 99.9, 99, 95, 90, 75, 50, 25, 10, 5, 1, 0.1, 0)

Progress = Callable[[int, float], None]  # windows done, the mean divergence so far


@dataclass(frozen=True)
class Divergence:
    """Results of a comparison; differences are this model minus the base, probabilities 0 to 1.

    Attributes:
        ppl: This model's perplexity of the base's text.
        base_ppl: The base's.
        log_ratio: ``log(ppl / base_ppl)``.
        ratio: ``ppl / base_ppl``.
        difference: ``ppl - base_ppl``.
        correlation: Of the two models' log-likelihoods.
        kl: Mean Kullback-Leibler divergence from the base, nats.
        kl_percentiles: Of single positions, by percent: 100 the maximum, 50 the median.
        delta_p: Mean difference of the probability of the text's own token.
        delta_p_percentiles: Of single positions, by percent.
        delta_p_rms: Root mean square of that difference.
        same_top: Share of positions where both find the same token most likely.
        tokens: Positions compared.
        windows: Windows that they are from.
    """

    ppl: Estimate
    base_ppl: Estimate
    log_ratio: Estimate
    ratio: Estimate
    difference: Estimate
    correlation: float
    kl: Estimate
    kl_percentiles: dict[str, float]
    delta_p: Estimate
    delta_p_percentiles: dict[str, float]
    delta_p_rms: Estimate
    same_top: Estimate
    tokens: int
    windows: int


def measure_divergence(
    engine: Engine,
    base: KlBase,
    bos: int | None,
    chunks: int | None = None,
    progress: Progress | None = None,
) -> Divergence:
    """Compare a model with a base on the base's own tokens.

    Args:
        engine: A model whose context holds a window of the base.
        base: The other model's predictions.
        bos: What replaces the first token of every window; None: nothing does.
        chunks: Windows at most; None: all.
        progress: Told how many windows are done, and the mean divergence so far.

    Raises:
        RequestError: The model's vocabulary has another size than the base's.
        FormatError: The base holds no log-probabilities.
    """
    vocabulary = engine.model.config.vocab_size
    if vocabulary != base.vocab_size:
        raise RequestError(
            f"{base.path} is of a model with {base.vocab_size} tokens, this one has {vocabulary}: "
            "compare models with the same vocabulary"
        )
    count = min(base.chunks, chunks or base.chunks)
    positions: list[tuple[float, float, float, bool]] = []
    for chunk in range(count):
        rows = zip(scored_rows(engine, base.window(chunk, bos)), base.log_probs(chunk), strict=True)
        for (row, target), base_row in rows:
            positions.append(compare_rows(row, base_row, target))
        if progress is not None:
            progress(chunk + 1, float(np.mean([p[2] for p in positions])))
    return summarize(positions, count)


def compare_rows(
    row: Row, base_log_probs: npt.NDArray[np.float32], target: int
) -> tuple[float, float, float, bool]:
    """Compare the rows of one position.

    Args:
        row: This model's logits.
        base_log_probs: The base's log-probabilities.
        target: The token that follows in the text.

    Returns:
        Negative log-likelihood of the target, the base's own, the divergence of the base's
        distribution from this one, and whether both find the same token most likely.
    """
    total = log_of_sum(row)
    # log(p_base / p) over the tokens that count
    ratios = base_log_probs - (row - np.float32(total))
    weights = np.where(base_log_probs > _MIN_LOG_PROB, np.exp(base_log_probs), np.float32(0))
    divergence = float((weights * ratios).sum(dtype=np.float64))
    same = int(row.argmax()) == int(base_log_probs.argmax())
    return total - float(row[target]), -float(base_log_probs[target]), divergence, same


def summarize(positions: list[tuple[float, float, float, bool]], windows: int) -> Divergence:
    """Return the figures of all positions.

    Args:
        positions: What :func:`compare_rows` gives for each.
        windows: Windows that they are from.
    """
    nll, base_nll, kl = (np.array([p[i] for p in positions], dtype=np.float64) for i in range(3))
    log_ratio = mean(nll - base_nll)
    ppl, base_ppl = exponential(mean(nll)), exponential(mean(base_nll))
    delta = np.exp(-nll) - np.exp(-base_nll)
    return Divergence(
        ppl=ppl,
        base_ppl=base_ppl,
        log_ratio=log_ratio,
        ratio=exponential(log_ratio),
        difference=difference(ppl, base_ppl, correlation(nll, base_nll)),
        correlation=correlation(nll, base_nll),
        kl=mean(kl),
        kl_percentiles=percentiles(kl, _KL_PERCENTS),
        delta_p=mean(delta),
        delta_p_percentiles=percentiles(delta, _DELTA_PERCENTS),
        delta_p_rms=root(mean(delta**2)),
        # The mean of zeros and ones has the binomial error.
        same_top=mean(np.array([p[3] for p in positions], dtype=np.float64)),
        tokens=len(positions),
        windows=windows,
    )
