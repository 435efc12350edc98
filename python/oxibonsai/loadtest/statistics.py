"""Figures of one level of load, by the definitions that serving benchmarks share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from oxibonsai.loadtest.client import Sample


@dataclass(frozen=True)
class Objectives:
    """Service levels that a good request meets, in seconds; None asks for nothing."""

    ttft: float | None = None
    tpot: float | None = None

    @property
    def stated(self) -> bool:
        """Whether there is anything to meet."""
        return self.ttft is not None or self.tpot is not None

    def met_by(self, sample: Sample) -> bool:
        """Return whether a request met all of them; an answer of one token has no TPOT to miss."""
        if sample.error is not None or sample.ttft is None:
            return False
        in_time = self.ttft is None or sample.ttft <= self.ttft
        return in_time and (self.tpot is None or sample.tpot is None or sample.tpot <= self.tpot)


@dataclass(frozen=True)
class Spread:
    """Mean and percentiles of a time, in milliseconds; percentiles interpolate linearly."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True)
class Figures:
    """One level of load. Latencies and throughput are of whole answers; errors stand apart.

    Attributes:
        requests: Whole answers and errors.
        errors: Number of requests by what went wrong.
        wall_s: From the first request sent to the last one ended, errors included.
        goodput_per_s: Requests per second that met all objectives; None where none was stated.
        counted_by_server: False where tokens are chunks, because an answer had no usage.
        prompt_tokens: Mean of a prompt, None where the server does not say.
        cached_share: Share of the prompts' tokens that the server had kept.
    """

    requests: int
    errors: dict[str, int]
    wall_s: float
    output_tokens: int
    output_tokens_per_s: float
    requests_per_s: float
    goodput_per_s: float | None
    counted_by_server: bool
    prompt_tokens: float | None
    cached_share: float | None
    ttft_ms: Spread | None
    itl_ms: Spread | None
    tpot_ms: Spread | None
    e2e_ms: Spread | None

    def as_dict(self) -> dict[str, object]:
        """Return the fields for JSON."""
        return asdict(self)


def spread(seconds: Iterable[float]) -> Spread | None:
    """Return the percentiles of times; None where there is nothing to describe."""
    values = np.fromiter(seconds, dtype=np.float64) * 1e3
    if not values.size:
        return None
    p50, p90, p99 = (float(x) for x in np.percentile(values, (50, 90, 99)))
    return Spread(float(values.mean()), p50, p90, p99, float(values.max()))


def summarize(samples: Sequence[Sample], objectives: Objectives) -> Figures:
    """Return the figures of the requests of one level.

    Raises:
        ValueError: There are no samples.
    """
    whole = [s for s in samples if s.error is None]
    wall = max(s.sent + s.duration for s in samples) - min(s.sent for s in samples)
    tokens = sum(s.output_tokens for s in whole)
    good = sum(map(objectives.met_by, samples))
    prompts = [s for s in whole if s.prompt_tokens is not None]
    prompt_tokens = sum(s.prompt_tokens or 0 for s in prompts)
    return Figures(
        requests=len(samples),
        errors=dict(Counter(s.error for s in samples if s.error is not None)),
        wall_s=wall,
        output_tokens=tokens,
        output_tokens_per_s=tokens / wall,
        requests_per_s=len(whole) / wall,
        goodput_per_s=good / wall if objectives.stated else None,
        counted_by_server=all(s.counted_by_server for s in whole),
        prompt_tokens=prompt_tokens / len(prompts) if prompts else None,
        cached_share=sum(s.cached_tokens for s in prompts) / prompt_tokens
        if prompt_tokens
        else None,
        ttft_ms=spread(s.ttft for s in whole if s.ttft is not None),
        itl_ms=spread(gap for s in whole for gap in s.gaps),
        tpot_ms=spread(s.tpot for s in whole if s.tpot is not None),
        e2e_ms=spread(s.duration for s in whole),
    )
