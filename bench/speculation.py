"""What speculation brings, by how often a drafter is right and by how long its drafts are.

The drafter knows the text, each token with some probability, and costs nothing: what is measured is the
price of checking drafts. With ``--kinds``, real drafters of the model's file or of ``--draft-model``, too.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np

import oxibonsai
from oxibonsai import SamplingParams
from oxibonsai.engine import Engine, Lookahead, Options, Sequence
from oxibonsai.engine.sequence import Speculate
from oxibonsai.engine.speculation.methods import choose_speculation
from rounds import in_turn


class KnowingSpeculator:
    """Proposes a text that it was told, each token right with a probability."""

    def __init__(self, text: list[int], probability: float, length: int | None) -> None:
        self.lookahead = Lookahead(length)
        self.shared = self.reader = None
        wrong = np.random.default_rng(1).random(len(text)) >= probability
        self._text = [t ^ int(w) for t, w in zip(text, wrong, strict=True)]

    def propose(self, sequence: Sequence, most: int) -> list[int]:
        """Return the next of its tokens."""
        done = sequence.num_generated
        return self._text[done : done + most]

    def close(self) -> None:
        """Release nothing."""


@dataclass
class Texts:
    """Texts of one prompt, all the same, and the seconds of their decoding."""

    engine: Engine
    prompt: list[int]
    params: SamplingParams
    text: list[int]

    def tokens_a_second(self, speculate: Speculate | None) -> float:
        """Return the speed behind the first token."""
        sequence = self.engine.submit(self.prompt, self.params, Options(speculate=speculate))
        while sequence.num_generated == 0:
            self.engine.step()
        started, first = time.perf_counter(), sequence.num_generated
        while not sequence.finished:
            self.engine.step()
        seconds = time.perf_counter() - started
        if sequence.generated != self.text:
            raise RuntimeError("speculation has changed the text, which it never may")
        return (sequence.num_generated - first) / seconds


def main() -> None:
    """Print speeds as multiples of that without drafts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--draft-model")
    parser.add_argument(
        "--kinds", default="", help="as --spec-type; further ones after a semicolon"
    )
    parser.add_argument("--probabilities", default="0,0.5,0.8,0.95")
    parser.add_argument("--lengths", default="adapted,2,4,8")
    parser.add_argument("-p", "--prompt", type=int, default=128, help="tokens")
    parser.add_argument("-n", "--tokens", type=int, default=128)
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("-t", "--threads", type=int)
    given = parser.parse_args()
    engine = oxibonsai.load(
        given.model, threads=given.threads, parallel=1, prefix_cache=False, parity="off",
        ctx_size=given.prompt + given.tokens + 64,
    )  # fmt: skip
    vocabulary = engine.model.config.vocab_size
    prompt = np.random.default_rng(2).integers(0, vocabulary, given.prompt).tolist()
    params = SamplingParams(temperature=0, max_tokens=given.tokens, ignore_eos=True)
    texts = Texts(engine, prompt, params, list(engine.generate_tokens(prompt, params)))

    ways: dict[str, Speculate | None] = {"plain": None}
    for kinds in filter(None, given.kinds.split(";")):
        draft = given.draft_model if "draft-" in kinds else None
        ways[kinds] = choose_speculation(engine, kinds, draft).make
    for probability in map(float, filter(None, given.probabilities.split(","))):
        for length in given.lengths.split(","):
            number = None if length == "adapted" else int(length)

            def make(p: float = probability, n: int | None = number) -> KnowingSpeculator:
                return KnowingSpeculator(texts.text, p, n)

            ways[f"right {probability:.0%}, {length}"] = make
    measures = {name: partial(texts.tokens_a_second, way) for name, way in ways.items()}
    rounds = in_turn(measures, given.rounds)
    plain = rounds.of("plain")
    for name in ways:
        speeds = rounds.of(name)
        ratio = median(own / other for own, other in zip(speeds, plain, strict=True))
        print(f"{name:24} {median(speeds):8.2f} tok/s {ratio:6.2f}")


if __name__ == "__main__":
    main()
