"""What a model answers, as digests: in one process, or in several started by torchrun.

Usage under torchrun: answers.py TENSOR PIPELINE MODEL.gguf ...
"""

from __future__ import annotations

import hashlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import oxibonsai
from oxibonsai import SamplingParams
from oxibonsai.devices import DevicePlan
from oxibonsai.engine import Engine, MtpDraft, NgramSpeculator, Options, Sequence
from oxibonsai.engine.loading import replicate

DRAWN = SamplingParams(temperature=0.9, seed=5, max_tokens=20, ignore_eos=True)
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)


def answers(
    path: str | Path, device: DevicePlan | None = None, stages: int = 2
) -> dict[str, object]:
    """Logits of a prompt, and texts of sequences that share steps, pages and drafts.

    With several stages also of two engines, whose steps are on their way at the same time.
    """
    engine = oxibonsai.load(
        path, device=device, threads=1, ctx_size=256, parallel=3, parity="off", mmproj=False
    )
    vocabulary = min(engine.model.config.vocab_size, 200)
    ids = [int(i) for i in np.random.default_rng(3).integers(3, vocabulary, 150)]
    prompts = [ids[:70], ids[20:33], ids[:140]]
    texts = _run(engine, prompts, DRAWN)
    # The same beginnings again, now from the cache; then with drafts from the text itself.
    cached = _run(engine, prompts, DRAWN)
    assert any(s.num_cached > 0 for s in cached)
    repeated = ids[:9] * 6
    plain = _run(engine, [repeated], GREEDY)
    drafted = _run(engine, [repeated], GREEDY, Options(speculate=NgramSpeculator))
    further: list[Sequence] = []
    if engine.model.config.num_nextn_predict_layers:
        layer = MtpDraft(engine, threshold=0.0, length=2)  # whether they pay or not
        further = _run(engine, [ids[40:60]], GREEDY, Options(speculate=layer.speculator))
        assert further[0].speculator is not None
        assert further[0].speculator.lookahead.proposed > 10
    engines = [engine] * 2 if stages == 1 else replicate(engine, 2)
    with ThreadPoolExecutor(2) as threads:
        beside = list(threads.map(lambda e: _run(e, prompts, DRAWN), engines))
    logits = engine.logits(ids[:80])
    hidden = engine.embed([ids[:60], ids[:7]])
    return {
        "texts": [s.generated for s in texts],
        "cached": [s.generated for s in cached],
        "side_by_side": [[s.generated for s in of_one] for of_one in beside],
        "plain": plain[0].generated,
        "drafted": drafted[0].generated,
        "drafted_by_own_layer": [s.generated for s in further],
        "logits": hashlib.sha256(np.ascontiguousarray(logits).tobytes()).hexdigest(),
        "hidden": hashlib.sha256(np.ascontiguousarray(hidden).tobytes()).hexdigest(),
    }


def _run(
    engine: Engine, prompts: list[list[int]], params: SamplingParams, options: Options | None = None
) -> list[Sequence]:
    sequences = [engine.submit(p, params, options) for p in prompts]
    while not all(s.finished for s in sequences):
        engine.step()
    for s in sequences:
        s.raise_error()
    return sequences


def main(tensor: str, pipeline: str, *models: str) -> None:
    """One rank's part in all models, one after the other; rank 0 prints a line of JSON each."""
    from oxibonsai.distributed import Identity, Link, RankPlan, follow, join, verify
    from oxibonsai.distributed.device import RankDevice
    from oxibonsai.loading import open_model
    from oxibonsai.models import load_model

    group = join(int(tensor), int(pipeline), Link("lo", 60.0, 120.0))
    for model in models:
        checkpoint = open_model(model)
        verify(
            group, Identity("1", checkpoint.fingerprint(), f"{tensor} {pipeline}", "256"), "secret"
        )
        plan = RankPlan(group, 1)
        if group.rank == 0:
            print(json.dumps({"model": model, **answers(model, plan, int(pipeline))}), flush=True)
            plan.leader.stop()
            continue
        loaded = load_model(checkpoint, plan)
        assert isinstance(loaded.device, RankDevice)
        follow(group, loaded)
    group.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
