"""Microseconds that choosing one token takes, for settings and sizes of vocabularies.

The logits are those of a peaked distribution, as a language model's are: most of the mass on a few
dozen tokens above a broad floor. ``--flat`` takes the hardest case, all tokens about as likely.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import numpy.typing as npt

from oxibonsai.known_models import FAMILIES, Recommendation
from oxibonsai.sampling import PRESETS, SamplingParams
from oxibonsai.sampling.sampler import Sampler, token_logprobs

OFF = SamplingParams(temperature=1.0, top_k=0, top_p=1.0)
SETTINGS = {
    **PRESETS,
    **{family.name: Recommendation(family).params(None) for family in FAMILIES if family.thinking},
    "all of the usual": SamplingParams(
        temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, repetition_penalty=1.1,
        presence_penalty=0.5, frequency_penalty=0.2, logit_bias={5: 1.0},
    ),
    "dry + xtc + top_k": SamplingParams(
        dry_multiplier=0.8, xtc_probability=0.5, top_k=40, temperature=0.8
    ),
    "plain T 1": OFF,
    "top_p 0.95 alone": SamplingParams(temperature=0.8, top_k=0, top_p=0.95),
    "min_p 0.05 alone": SamplingParams(temperature=0.8, top_k=0, top_p=1.0, min_p=0.05),
    "typical 0.9": SamplingParams(temperature=1.0, top_k=0, top_p=1.0, typical_p=0.9),
    "eta 0.001": SamplingParams(temperature=1.0, top_k=0, top_p=1.0, eta_cutoff=0.001),
    "mirostat 1": SamplingParams(temperature=1.0, mirostat=1),
    "mirostat 2": SamplingParams(temperature=1.0, mirostat=2),
}  # fmt: skip


def make_logits(vocabulary: int, *, flat: bool) -> list[npt.NDArray[np.float32]]:
    random = np.random.default_rng(3)
    rows = []
    for _ in range(8):
        logits = random.normal(0.0, 0.01 if flat else 2.0, vocabulary)
        if not flat:
            logits[random.integers(0, vocabulary, 60)] += random.exponential(5.0, 60) + 8.0
        rows.append(logits.astype(np.float32))
    return rows


def microseconds(params: SamplingParams, rows: list[npt.NDArray[np.float32]], rounds: int) -> float:
    """The median over tokens, with a history of 2000 tokens of which 500 were generated."""
    sampler = Sampler(params)
    history = np.random.default_rng(4).integers(0, len(rows[0]), 2000).tolist()
    times = []
    for t in range(rounds):
        started = time.perf_counter()
        sampler.choose(rows[t % len(rows)], history, 500)
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flat", action="store_true")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[151_669, 262_144])
    arguments = parser.parse_args()
    print("setting".ljust(20), *(f"{v:>10}" for v in arguments.vocabulary), " us a token")
    sizes = [make_logits(v, flat=arguments.flat) for v in arguments.vocabulary]
    for name, params in SETTINGS.items():
        row = [microseconds(params, rows, arguments.rounds) for rows in sizes]
        print(name.ljust(20), *(f"{us:>10.0f}" for us in row))
    row = []
    for rows in sizes:
        started = time.perf_counter()
        for _ in range(arguments.rounds):
            token_logprobs(rows[0], 5, 20)
        row.append((time.perf_counter() - started) / arguments.rounds * 1e6)
    print("20 logprobs".ljust(20), *(f"{us:>10.0f}" for us in row))


if __name__ == "__main__":
    main()
