"""Whole texts: several samples from one prompt, and the best of many."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass, replace

from oxibonsai.engine.engine import Engine
from oxibonsai.engine.sequence import Options, Sequence
from oxibonsai.errors import RequestError
from oxibonsai.sampling import SamplingParams
from oxibonsai.sampling.sampler import TokenLogprobs

MOST_SAMPLES = 128


@dataclass(frozen=True)
class Completion:
    """A finished text.

    Attributes:
        text: What was generated; empty where the model has no tokenizer.
        tokens: Its ids, an end-of-text id included.
        finish_reason: ``"stop"`` or ``"length"``.
        seed: Of its draws.
        logprobs: Of each token, where the parameters ask for them.
    """

    text: str
    tokens: list[int]
    finish_reason: str
    seed: int
    logprobs: list[TokenLogprobs]

    @classmethod
    def of(cls, sequence: Sequence) -> Completion:
        """Return a finished sequence as a completion."""
        return cls(
            sequence.text,
            sequence.generated,
            sequence.finish_reason or "cancelled",
            sequence.sampler.seed,
            sequence.logprobs,
        )


def submit_samples(
    engine: Engine,
    prompt: Items[int],
    params: SamplingParams,
    options: Options | None = None,
    *,
    n: int = 1,
) -> list[Sequence]:
    """Take in n samples of one prompt, which is computed once.

    Sample i draws with the seed of the first one plus i (modulo 2**64), so each of them is the text
    that its seed gives alone.

    Raises:
        RequestError: n is not from 1 to 128, or the prompt or parameters are refused.
    """
    if not 1 <= n <= MOST_SAMPLES:
        raise RequestError(f"n is {n}; it must be from 1 to {MOST_SAMPLES}")
    first = engine.submit(prompt, params, options)
    samples = [first]
    for i in range(1, n):
        seed = (first.sampler.seed + i) % 2**64
        own = replace(params, seed=seed)
        samples.append(engine.submit(prompt, own, options, parent=first))
    return samples


def best_samples(samples: Items[Sequence], n: int) -> list[Sequence]:
    """Return the n samples with the highest mean log-probability of a token, the best first."""
    return sorted(samples, key=lambda s: s.mean_logprob, reverse=True)[:n]


def complete(
    engine: Engine,
    prompt: str | Items[int],
    params: SamplingParams,
    options: Options | None = None,
    *,
    n: int = 1,
    best_of: int | None = None,
) -> list[Completion]:
    """Run a prompt to the end, n times.

    Args:
        engine: Runs it.
        prompt: Text, taken as it stands, or token ids.
        params: How to choose tokens.
        options: What else the sequences do.
        n: Samples wanted.
        best_of: Samples made; those n with the highest mean log-probability of a token are
            returned, the best first. None: n, in the order of their seeds.

    Raises:
        RequestError: best_of is less than n, or the prompt or parameters are refused.
    """
    if best_of is not None and best_of < n:
        raise RequestError(f"best_of is {best_of}, less than n, which is {n}")
    ids = engine.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    if best_of is not None:
        params = replace(params, logprobs=True)
    samples = submit_samples(engine, ids, params, options, n=best_of or n)
    try:
        for s in samples:
            while not s.finished:
                engine.advance(s)
            s.raise_error()
    finally:
        for s in samples:
            engine.cancel(s)
    if best_of is not None:
        samples = best_samples(samples, n)
    return [Completion.of(s) for s in samples]
