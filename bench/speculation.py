"""Whether speculation pays: speed and acceptance beside plain decoding, over a grid.

    python bench/speculation.py --model MODEL [--draft-model SMALL] [--tokens 96 --rounds 3] [--json OUT]

Each configuration generates the same texts (checked), in turn with plain decoding; the figures are
ratios of medians. Prompt lookup is tried on two kinds of work: free text, and text that repeats its
prompt (a document to be copied with small changes).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from oxibonsai.chat import model_template
from oxibonsai.engine import DraftModel, Engine, NgramSpeculator, Options, load
from oxibonsai.engine.sequence import Speculate
from oxibonsai.opening import open_model
from oxibonsai.sampling import SamplingParams

CONTEXT = 2048
LENGTHS = (1, 2, 4, 8)
THRESHOLDS = (0.5, 0.7, 0.85, 0.95)
FREE = "Tell me, in a few paragraphs, how a bicycle stays upright."
COPY = "Repeat this list exactly, word by word:\n" + "\n".join(
    f"{i}. The {a} {b} crosses the {c}."
    for i, (a, b, c) in enumerate(
        [
            ("quiet", "ferry", "bay"),
            ("old", "tram", "square"),
            ("small", "fox", "garden"),
            ("late", "train", "valley"),
            ("young", "rider", "bridge"),
        ],
        1,
    )
)


@dataclass
class Result:
    """One configuration on one prompt."""

    prompt: str
    kind: str
    length: int | None
    threshold: float | None
    accepted: float  # share of proposed tokens
    speed: float  # times plain decoding


def main() -> None:
    """Reads the arguments, measures the grid, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--draft-model")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    engine = _load(options.model)
    small = _load(options.draft_model) if options.draft_model else None
    results = []
    for name, text in (("free", FREE), ("copy", COPY)):
        ids = _prompt(engine, text)
        for length in (None, *LENGTHS):
            lookup = partial(NgramSpeculator, length=length)
            kinds: list[tuple[str, float | None, Speculate]] = [("ngram", None, lookup)]
            if small is not None:
                for share in THRESHOLDS:
                    draft = DraftModel(small, engine, threshold=share, length=length)
                    kinds.append(("draft", share, draft.speculator))
            for kind, threshold, speculate in kinds:
                accepted, speed = _measure(engine, ids, speculate, options.tokens, options.rounds)
                results.append(Result(name, kind, length, threshold, accepted, speed))
                print(
                    f"{name:5} {kind:6} length {length or 'adapted':>7} threshold "
                    f"{threshold or '-':>5}: accepted {accepted:5.1%}, speed {speed:.2f}",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in results], indent=1))


def _load(source: str) -> Engine:
    """With a context for the prompts here, or the model's where that is shorter."""
    limit = open_model(source).trained_context
    return load(source, ctx_size=CONTEXT if limit is None else min(CONTEXT, limit))


def _prompt(engine: Engine, text: str) -> list[int]:
    template = model_template(engine)
    if template is None:
        return engine.tokenizer.encode(text)
    rendered = template.render([{"role": "user", "content": text}])
    return engine.tokenizer.encode(rendered, add_special=False, parse_special=True)


def _measure(
    engine: Engine, ids: list[int], speculate: Speculate, tokens: int, rounds: int
) -> tuple[float, float]:
    """Share of accepted tokens, and the speed beside plain decoding in the same minutes."""
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    plain: list[float] = []
    guessed: list[float] = []
    for _ in range(rounds):
        seconds, text, _ = _run(engine, ids, params, Options())
        plain.append(seconds)
        seconds, same, accepted = _run(engine, ids, params, Options(speculate=speculate))
        guessed.append(seconds)
        if same != text:
            raise SystemExit("speculation has changed a text")
    return accepted, statistics.median(plain) / statistics.median(guessed)


def _run(
    engine: Engine, ids: list[int], params: SamplingParams, options: Options
) -> tuple[float, list[int], float]:
    sequence = engine.submit(ids, params, options)
    while sequence.num_generated == 0:
        engine.step()
    started = time.perf_counter()
    while not sequence.finished:
        engine.step()
    seconds = time.perf_counter() - started
    share = 0.0
    if sequence.speculator is not None and sequence.speculator.lookahead.proposed:
        lookahead = sequence.speculator.lookahead
        share = lookahead.accepted / lookahead.proposed
    return seconds, sequence.generated, share


if __name__ == "__main__":
    main()
