"""Generation beside busy processes: oxibonsai and llama.cpp on all threads and on one.

    python bench/busy.py MODEL.gguf [-n 64 -r 5 -t N --busy 0,1,2] [--peer-python PYTHON | --no-peer]

The engines take turns, each in a process of its own, while so many others compute without a pause. A
thread that waits for one whose core was taken shows here, and nowhere on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from oxibonsai.cli.bench import machine
from oxibonsai.devices import default_threads
from oxibonsai.errors import OxiBonsaiError
from oxibonsai.sources import resolve
from rounds import in_turn, spread
from worker import Worker, WorkerError

HERE = Path(__file__).parent
OURS, THEIRS = "oxibonsai", "llama.cpp"
# Ends with the process that has started it, however that ends.
BUSY = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many processes that compute until the end of the block."""
    with ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def start(stack: ExitStack, options: argparse.Namespace) -> dict[tuple[str, int], Worker]:
    """A worker for each engine and number of threads, its model loaded."""
    commands = {OURS: [sys.executable, str(HERE / "worker_oxibonsai.py")]}
    if options.peer:
        commands[THEIRS] = [options.peer_python, str(HERE / "worker_llama_cpp.py")]
    workers: dict[tuple[str, int], Worker] = {}
    model = str(options.model)
    ids: list[int] = []
    for engine, command in commands.items():
        for threads in dict.fromkeys((options.threads, 1)):
            worker = stack.enter_context(Worker(f"{engine}, {threads} threads", command))
            common = {"model": model, "threads": threads, "ctx_size": options.n + 2}
            if engine == OURS:
                worker.ask("make", quant_type="", **common)
                ids = ids or worker.ask("prompt_ids", tokens=1)
            else:
                worker.ask("make", ids=ids, **common)
            workers[engine, threads] = worker
    return workers


def measure(
    workers: dict[tuple[str, int], Worker], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """A row for each number of busy processes: tokens per second by engine and threads."""
    rows = []
    for busy in options.busy:
        print(f"{busy} busy processes: 1 + {options.r} rounds", file=sys.stderr)
        measures = {
            w.name: partial(w.ask, "generation", tokens=options.n) for w in workers.values()
        }
        with busy_processes(busy):
            rounds = in_turn(measures, options.r)
        for (engine, threads), worker in workers.items():
            rate = spread(rounds.of(worker.name))
            rows.append({"busy": busy, "engine": engine, "threads": threads, **rate})
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: a line for each number of busy processes, a column for each engine."""
    columns = list(dict.fromkeys((r["engine"], r["threads"]) for r in rows))
    titles = [f"{engine}, {n} {'thread' if n == 1 else 'threads'}" for engine, n in columns]
    lines = [f"| busy | {' | '.join(titles)} |", f"| --- |{' --- |' * len(columns)}"]
    for busy in dict.fromkeys(r["busy"] for r in rows):
        found = {(r["engine"], r["threads"]): r for r in rows if r["busy"] == busy}
        cells = [
            f"{found[c]['median']:.1f} ({found[c]['min']:.1f} to {found[c]['max']:.1f})"
            for c in columns
        ]
        lines.append(f"| {busy} | {' | '.join(cells)} |")
    return "\n".join(lines)


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Options, with the model's file found and the threads decided."""
    parser = argparse.ArgumentParser(description="Time generation beside busy processes.")
    parser.add_argument("model", help="a GGUF file, or what else oxibonsai takes for one")
    parser.add_argument("-n", type=int, default=64, help="tokens to generate")
    parser.add_argument("-r", type=int, default=5, help="rounds that count, after one that doesn't")
    parser.add_argument("-t", "--threads", type=int, default=default_threads(), help="beside one")
    parser.add_argument("--busy", default="0,1,2", help="numbers of busy processes, with commas")
    parser.add_argument(
        "--peer-python", default=sys.executable, help="interpreter that has llama-cpp-python"
    )
    parser.add_argument("--no-peer", dest="peer", action="store_false", help="oxibonsai alone")
    parser.add_argument("--json", type=Path, help="file for the result")
    options = parser.parse_args(arguments)
    if min(options.n, options.r, options.threads) < 1:
        parser.error("-n, -r and -t must be at least 1")
    numbers = options.busy.split(",")
    if not all(number.isdecimal() for number in numbers):
        parser.error("--busy takes numbers separated by commas, such as 0,1,2")
    options.busy = [int(number) for number in numbers]
    options.model = resolve(options.model)
    return options


def main() -> None:
    try:
        options = parse_options()
        with ExitStack() as stack:
            rows = measure(start(stack, options), options)
    except (WorkerError, OxiBonsaiError) as error:
        sys.exit(f"busy.py: {error}")
    print(table(rows))
    if options.json:
        report = {
            "model": options.model.name,
            "machine": machine(options.threads),
            "tokens": options.n,
            "repetitions": options.r,
            "rows": rows,
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
