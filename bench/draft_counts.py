"""Counts how many drafted tokens are accepted here and by llama.cpp's `llama-speculative-simple`.

    python bench/draft_counts.py MODEL.gguf --kind draft-simple --draft-model SMALL.gguf --peer PROGRAM

Both continue the same prompts greedily, with drafts of the same length, of which none is cut for its
probability. The target of llama.cpp is built of its sources; llama-cpp-python's sdist has them:

    cmake -B build -DLLAMA_BUILD_EXAMPLES=ON && cmake --build build --target llama-speculative-simple

Of each prompt, as many tokens are counted as llama.cpp gives; it drafts the first one, too. With drafts its
text is now and then another one than without, mostly with recurrent models, and so are its drafts: the sums
of the prompts with the same text come last. Of n-grams with recurrent models it counts accepted tokens as
drafted once more, which makes all drafts right.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import oxibonsai
from oxibonsai import SamplingParams
from oxibonsai.devices import default_threads
from oxibonsai.engine import Engine, Options
from oxibonsai.engine.sequence import Speculate
from oxibonsai.engine.speculation.methods import NGRAM, choose_speculation
from oxibonsai.engine.speculation.ngram import NgramSpeculator
from oxibonsai.sources import resolve
from oxibonsai.tokenizer.vocabulary import UNUSED

PROMPTS = (
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is",
    "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve,",
    "def add(a, b):\n    return a + b\n\ndef subtract(a, b):\n    return a - b\n\ndef multiply(a, b):\n",
    "Once upon a time there was a small village at the foot of a mountain, where",
    "To bake bread you need flour, water, salt and yeast. First",
    "The lamp in the kitchen is on. The lamp in the hall is off. The lamp in the",
    "Question: Why is the sky blue?\nAnswer:",
    "Monday: work. Tuesday: work. Wednesday: sport. Thursday: work. Friday: friends.\nMonday:",
)

# A thread of its own writes llama.cpp's log, and now and then the program ends before the last lines.
_TRIES = 5


@dataclass(frozen=True)
class Counts:
    """What one program did with one prompt.

    Attributes:
        generated: Tokens of the text.
        drafted: Tokens that were proposed.
        accepted: Those that became part of the text.
    """

    generated: int
    drafted: int
    accepted: int

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.generated + other.generated,
            self.drafted + other.drafted,
            self.accepted + other.accepted,
        )


def count_theirs(prompt: str, args: argparse.Namespace) -> tuple[Counts, str]:
    """Run llama.cpp's program; return its counts and what it prints of the text."""
    options = {
        "-m": args.model, "-p": prompt, "-n": args.tokens, "-c": args.ctx_size, "-t": args.threads,
        "--temp": 0, "-lv": 4, "-fa": "off", "--spec-type": args.kind,
        "--spec-draft-n-max": args.length, "--spec-draft-n-min": 0, "--spec-draft-p-min": 0,
        "--spec-ngram-simple-size-n": args.ngram, "--spec-ngram-simple-size-m": args.length,
        # Texts then differ only where two tokens are all but equally likely.
        "-ctk": "f32", "-ctv": "f32", "--spec-draft-type-k": "f32", "--spec-draft-type-v": "f32",
    }  # fmt: skip
    command = [args.peer, "--ignore-eos", *(str(x) for pair in options.items() for x in pair)]
    if args.draft_model:
        command += ["-md", args.draft_model]
    for _ in range(_TRIES):
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            raise RuntimeError(f"{args.peer} failed:\n{done.stderr[-2000:]}")
        said = dict(re.findall(r"(n_predict|n_drafted|n_accept) *= *(\d+)", done.stderr))
        if len(said) == 3:
            names = ("n_predict", "n_drafted", "n_accept")
            return Counts(*(int(said[name]) for name in names)), _visible(done.stdout)
    raise RuntimeError(f"{args.peer} does not say what it counted:\n{done.stderr[-2000:]}")


def _visible(text: str) -> str:
    """Return the characters that both programs print alike."""
    return re.sub("[^!-~]", "", text)


def count_ours(
    engine: Engine, speculate: Speculate, prompt: str, generated: int
) -> tuple[Counts, str]:
    """Generate as many tokens here; return the counts and the text."""
    params = SamplingParams(temperature=0, max_tokens=generated, ignore_eos=True)
    ids = engine.tokenizer.encode(prompt)
    sequence = engine.submit(ids, params, Options(speculate=speculate))
    while not sequence.finished:
        engine.step()
    assert sequence.speculator is not None
    lookahead = sequence.speculator.lookahead
    counts = Counts(sequence.num_generated, lookahead.proposed, lookahead.accepted)
    types = engine.tokenizer.vocabulary.types
    printed = [i for i in sequence.generated if types[i] != UNUSED]
    return counts, _visible(engine.tokenizer.decode(printed, skip_special=False))


def speculator(engine: Engine, args: argparse.Namespace) -> Speculate:
    """Return what makes drafts in llama.cpp's way.

    Its n-grams have one length, and of what followed one at least as many tokens are proposed.
    """
    if args.kind == NGRAM:
        n = args.ngram
        return partial(NgramSpeculator, longest=n, shortest=n, length=args.length, least=n)
    chosen = choose_speculation(
        engine, args.kind, args.draft_model, length=args.length, threshold=0.0
    )
    assert chosen.make is not None
    return chosen.make


def main() -> None:
    """Print a line for each prompt, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--peer", required=True, help="llama-speculative-simple")
    parser.add_argument("--kind", default="draft-simple", help="as --spec-type of both")
    parser.add_argument("--draft-model")
    parser.add_argument("--length", type=int, default=4, help="tokens of a draft")
    parser.add_argument("--ngram", type=int, default=3, help="tokens that must match")
    parser.add_argument("--prompts", type=Path, help="a file with one in each line")
    parser.add_argument("-n", "--tokens", type=int, default=128)
    parser.add_argument("-c", "--ctx-size", type=int, default=1024)
    parser.add_argument("-t", "--threads", type=int, default=default_threads())
    args = parser.parse_args()
    args.model = str(resolve(args.model, progress=False))
    if args.draft_model:
        args.draft_model = str(resolve(args.draft_model, progress=False))
    prompts = args.prompts.read_text().splitlines() if args.prompts else PROMPTS
    engine = oxibonsai.load(
        args.model, threads=args.threads, ctx_size=args.ctx_size, parallel=1, kv_type="f32",
        prefix_cache=False, parity="off",
    )  # fmt: skip
    speculate = speculator(engine, args)
    all_ours, all_theirs, same_ours, same_theirs = [Counts(0, 0, 0)] * 4
    for prompt in prompts:
        theirs, text = count_theirs(prompt, args)
        ours, own_text = count_ours(engine, speculate, prompt, theirs.generated)
        same = text.endswith(own_text)
        print(f"{ours} {theirs} {'same' if same else 'other'} text {prompt[:40]!r}", flush=True)
        all_ours, all_theirs = all_ours + ours, all_theirs + theirs
        if same:
            same_ours, same_theirs = same_ours + ours, same_theirs + theirs
    print_sums("all texts", all_ours, all_theirs)
    print_sums("same texts", same_ours, same_theirs)


def print_sums(what: str, ours: Counts, theirs: Counts) -> None:
    """Print the sums of both programs and their ratio."""
    for name, total in (("oxibonsai", ours), ("llama.cpp", theirs)):
        print(
            f"{what}, {name}: {total.accepted} of {total.drafted} accepted, {total.generated} tokens"
        )
    print(f"{what}: accepted here / there {ours.accepted / max(theirs.accepted, 1):.4f}")


if __name__ == "__main__":
    main()
