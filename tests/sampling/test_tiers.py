"""The same tokens and the same log-probabilities from every tier, to the last bit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from oxibonsai import _core

PROGRAM = """
import hashlib, struct
import numpy as np
from oxibonsai import SamplingParams
from oxibonsai.sampling.sampler import Sampler, token_logprobs
digest = hashlib.sha256()
random = np.random.default_rng(0)
rows = [random.integers(-4000, 4000, 5003).astype(np.float32) / np.float32(512) for _ in range(20)]
off = dict(temperature=1.0, top_k=0, top_p=1.0, seed=9)
for fields in (
    {}, {"temperature": 0.7}, {"top_p": 0.9}, {"min_p": 0.01}, {"typical_p": 0.8}, {"top_a": 0.5},
    {"eta_cutoff": 0.001}, {"epsilon_cutoff": 0.0005}, {"dynatemp_range": 0.5}, {"top_k": 40},
    {"xtc_probability": 0.5, "xtc_threshold": 0.001}, {"dry_multiplier": 0.8},
    {"repetition_penalty": 1.1, "frequency_penalty": 0.3}, {"mirostat": 1}, {"mirostat": 2},
):
    sampler = Sampler(SamplingParams(**{**off, **fields}))
    history = [1, 2, 3, 1, 2]
    for t, logits in enumerate(rows):
        history.append(sampler.choose(logits, history, t))
        report = token_logprobs(logits, history[-1], 5)
        digest.update(struct.pack("<id", history[-1], report.logprob))
    digest.update(struct.pack("<d", sampler.state()["mirostat_mu"]))
print(digest.hexdigest())
"""
RECORDED = "f96bd9153ec90eeac465b6929f76f5c3e165afc5be5a455c8bb932e410002978"


@pytest.mark.parametrize("tier", _core.cpu.tiers())
def test_every_tier_gives_the_recorded_tokens(tier: str) -> None:
    environment = {**os.environ, "OXIBONSAI_ISA": tier}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == RECORDED
