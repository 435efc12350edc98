"""Runs oxibonsai and llama.cpp in turn on the same file and threads, and writes both speeds.

    python bench/compare_llama_cpp.py MODEL.gguf [-p 512 -n 128 -d 1 -r 5 -t N]

Each engine is a process that holds its model; they take turns, A B A B, so that whatever else the
machine does meets both. The memory's read bandwidth is measured in the same rounds, and ratios and
shares are of a round: on a shared machine the bandwidth changes by half within seconds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from comparison_report import write_report
from oxibonsai import _core
from oxibonsai.cli.bench import machine, read_bandwidth
from oxibonsai.devices import default_threads
from oxibonsai.errors import OxiBonsaiError
from oxibonsai.sources import resolve
from rounds import Rounds, in_turn, spread
from worker import Worker, WorkerError

HERE = Path(__file__).parent
BUSY_WAIT_MS = 50.0  # of processor time: above this, the waiting engine disturbs the other
_BANDWIDTH = "bandwidth"
_SHARES = ("share_of_bandwidth", "llama_cpp_share_of_bandwidth")


def compare_rates(test: str, ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """One row of the report, in tokens per second; the ratio is that of each round."""
    return {
        "test": test,
        "oxibonsai": spread(ours),
        "llama_cpp": spread(theirs),
        "ratio": spread([a / b for a, b in zip(ours, theirs, strict=True)]),
    }


def measure(
    ours: Worker, theirs: Worker, options: argparse.Namespace
) -> tuple[list[dict[str, Any]], list[float]]:
    """Rows of the prompt and the generation test, and bytes per second of the memory by round."""
    rows = []
    bandwidths = []
    pool = _core.ThreadPool(options.threads)
    tests: tuple[tuple[str, str, dict[str, int]], ...] = (
        ("prompt", f"pp{options.p}", {"tokens": options.p}),
        ("generation", generation_test(options), {"tokens": options.n, "depth": options.d}),
    )
    for method, test, settings in tests:
        if settings["tokens"] == 0:
            continue
        print(f"{test}: 1 + {options.r} rounds", file=sys.stderr)
        # The bandwidth comes last: llama.cpp's threads still poll for some 10 ms after their work,
        # which the best of several sweeps over the memory does not mind.
        measures: dict[str, Callable[[], float]] = {
            ours.name: partial(ours.ask, method, **settings),
            theirs.name: partial(theirs.ask, method, **settings),
            _BANDWIDTH: partial(read_bandwidth, pool),
        }
        rounds = in_turn(measures, options.r)
        row = compare_rates(test, rounds.of(ours.name), rounds.of(theirs.name))
        row |= {"turns_repeated": rounds.repeated, "most_stolen": round(rounds.most_stolen, 4)}
        if method == "generation":
            # llama.cpp reads the same bytes where it has the same model.
            engines = (ours, theirs) if options.peer_model == options.model else (ours,)
            bytes_per_token = ours.ask("bytes_per_token")
            row |= shares_of_bandwidth(rounds, [e.name for e in engines], bytes_per_token)
        rows.append(row)
        bandwidths += rounds.of(_BANDWIDTH)
    return rows, bandwidths


def generation_test(options: argparse.Namespace) -> str:
    """As llama-bench calls it: the tokens, and those before them where it is not one."""
    return f"tg{options.n}" + (f" @ d{options.d}" if options.d != 1 else "")


def shares_of_bandwidth(
    rounds: Rounds, engines: Sequence[str], bytes_per_token: int
) -> dict[str, Any]:
    """What each engine reads, beside what the memory gave in the same round; ours comes first.

    Generation reads the weights once per token; a prompt does not, and gets no share.
    """
    row: dict[str, Any] = {"weight_bytes_per_token": bytes_per_token}
    for engine, key in zip(engines, _SHARES, strict=False):
        rates = zip(rounds.of(engine), rounds.of(_BANDWIDTH), strict=True)
        row[key] = round(statistics.median(r * bytes_per_token / read for r, read in rates), 4)
    return row


def command_line(options: argparse.Namespace) -> str:
    """What to type to measure the same; files by name only, since paths are one machine's own."""
    parts = ["python bench/compare_llama_cpp.py", options.model.name]
    depth = ("d",) if options.d != 1 else ()
    parts += [f"-{key} {getattr(options, key)}" for key in ("p", "n", *depth, "r")]
    parts.append(f"-t {options.threads}")
    if options.peer_model != options.model:
        parts.append(f"--peer-model {options.peer_model.name}")
    if options.quant_type:
        parts.append(f"--quant-type {options.quant_type}")
    return " ".join(parts)


def engine_facts(worker: Worker) -> dict[str, Any]:
    """What the engine says of itself, and how quietly it waited."""
    busy = 1000 * worker.idle_cpu_seconds / worker.waits
    if busy > BUSY_WAIT_MS:
        print(f"{worker.name} burned {busy:.0f} ms in each of its waits", file=sys.stderr)
    facts: dict[str, Any] = worker.ask("facts")
    return {**facts, "idle_cpu_ms_per_wait": round(busy, 2)}


def compare(ours: Worker, theirs: Worker, options: argparse.Namespace) -> dict[str, Any]:
    """Loads both models, measures, and returns the report."""
    # The prompt and its answer; or what is before generation, the first token and n more.
    positions = max(options.p + 1, options.d + options.n + 1)
    common = {"threads": options.threads, "ctx_size": positions}
    ours.ask("make", model=str(options.model), quant_type=options.quant_type, **common)
    ids = ours.ask("prompt_ids", tokens=max(options.p, options.d))
    theirs.ask("make", model=str(options.peer_model), ids=ids, **common)
    rows, bandwidths = measure(ours, theirs, options)
    read = spread([b / 1e9 for b in bandwidths])
    return {
        "command": command_line(options),
        "model": options.model.name,
        "peer_model": options.peer_model.name,
        "machine": machine(options.threads),
        "read_gb_s": read,
        "repetitions": options.r,
        "oxibonsai": engine_facts(ours),
        "llama_cpp": engine_facts(theirs),
        "rows": rows,
    }


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Options, with the model's file found and the threads decided."""
    parser = argparse.ArgumentParser(description="Time oxibonsai and llama.cpp in turn.")
    parser.add_argument("model", help="a GGUF file, or what else oxibonsai takes for one")
    parser.add_argument("-p", type=int, default=512, help="tokens of the prompt; 0: no such test")
    parser.add_argument("-n", type=int, default=128, help="tokens to generate; 0: no such test")
    parser.add_argument("-d", type=int, default=1, help="tokens of context before generation")
    parser.add_argument("-r", type=int, default=5, help="rounds that count, after one that doesn't")
    parser.add_argument("-t", "--threads", type=int, default=default_threads(), help="of both")
    parser.add_argument("--quant-type", default="", help="as in oxibonsai bench")
    parser.add_argument(
        "--peer-python", default=sys.executable, help="interpreter that has llama-cpp-python"
    )
    parser.add_argument("--peer-model", help="the same weights in a type that llama.cpp knows")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder of the report")
    options = parser.parse_args(arguments)
    if min(options.p, options.n) < 0 or options.p + options.n == 0:
        parser.error("-p and -n must be 0 or more, and not both 0")
    if min(options.d, options.r, options.threads) < 1:
        parser.error("-d, -r and -t must be at least 1")
    options.model = resolve(options.model)
    options.peer_model = resolve(options.peer_model) if options.peer_model else options.model
    return options


def main() -> None:
    try:
        options = parse_options()
        our_command = [sys.executable, str(HERE / "worker_oxibonsai.py")]
        their_command = [options.peer_python, str(HERE / "worker_llama_cpp.py")]
        with Worker("oxibonsai", our_command) as ours, Worker("llama.cpp", their_command) as theirs:
            report = compare(ours, theirs, options)
    except (WorkerError, OxiBonsaiError) as error:
        sys.exit(f"compare_llama_cpp.py: {error}")
    print(write_report(report, options.out))


if __name__ == "__main__":
    main()
