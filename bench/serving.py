"""Our server beside the one of llama-cpp-python, under the same load, as their clients see it.

    python bench/serving.py MODEL.gguf [--streams 1,4,8 --rounds 5] [--peer-python PYTHON]

Both hold the model and take turns, A B A B, at each number of streams. Prints medians over the rounds
and their ratios; then, of our server alone, what a long prompt costs the streams that run beside it,
and what a system prompt costs the second time. `--out` writes all of it as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import served
import serving_scenarios
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import default_threads
from oxibonsai.loadtest.client import ChatClient
from oxibonsai.loadtest.prompts import made_up
from oxibonsai.loadtest.run import run_levels
from oxibonsai.loadtest.schedule import ClosedLoop, Limit
from oxibonsai.loadtest.statistics import Figures, Objectives
from oxibonsai.sources import resolve

# What a measurement gives, and whether more of it is better.
_FIGURES = {"tok/s": True, "TTFT p50 ms": False, "ITL p99 ms": False}


def figures_of(figures: Figures) -> dict[str, float]:
    """The compared figures of one level.

    Raises:
        RuntimeError: A request failed, or no answer had two chunks.
    """
    if figures.errors or figures.ttft_ms is None or figures.itl_ms is None:
        raise RuntimeError(f"a measurement failed: {figures.errors or 'answers are too short'}")
    found = (figures.output_tokens_per_s, figures.ttft_ms.p50, figures.itl_ms.p99)
    return dict(zip(_FIGURES, found, strict=True))


def ratios(ours: Sequence[dict[str, float]], theirs: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Medians of both, and how many times better ours is."""
    rows = {}
    for name, more_is_better in _FIGURES.items():
        a = statistics.median(r[name] for r in ours)
        b = statistics.median(r[name] for r in theirs)
        times = a / b if more_is_better else b / a
        rows[name] = {
            "oxibonsai": round(a, 2),
            "peer": round(b, 2),
            "times_better": round(times, 3),
        }
    return rows


def measure(server: served.Served, streams: int, options: argparse.Namespace, seed: int) -> Figures:
    """One level of load on one server, after a request that warms it up."""

    async def run() -> Figures:
        async with ChatClient(server.url) as client:
            body = {"model": served.ALIAS, "temperature": 0, "max_tokens": options.tokens}
            levels = await run_levels(
                client,
                [ClosedLoop(streams)],
                limit=Limit(requests=streams * options.requests),
                prompts=made_up(options.prompt_tokens, seed),
                body={**body, **server.body},
                warmup=1,
                objectives=Objectives(),
            )
            return levels[0].figures

    return asyncio.run(run())


def compare(servers: Sequence[served.Served], options: argparse.Namespace) -> dict[str, Any]:
    """Rounds of both servers in turn, for each number of streams."""
    found: dict[str, Any] = {}
    for streams in options.streams:
        rounds: dict[str, list[dict[str, float]]] = {s.name: [] for s in servers}
        for i in range(options.rounds):
            for server in servers:
                seed = 1000 * streams + i
                rounds[server.name].append(figures_of(measure(server, streams, options, seed)))
        ours, theirs = (rounds[s.name] for s in servers)
        found[f"{streams} streams"] = {"rounds": rounds, "medians": ratios(ours, theirs)}
        for name, row in found[f"{streams} streams"]["medians"].items():
            print(
                f"{streams:3} streams  {name:12} {row['oxibonsai']:10.2f} {row['peer']:10.2f}"
                f"   {row['times_better']:.2f} times better"
            )
    return found


def end_token_bias(model: Path) -> dict[str, int]:
    """Keeps the peer, which has no ignore_eos, from ending an answer early."""
    token = Checkpoint(model).file.get("tokenizer.ggml.eos_token_id")
    return {} if token is None else {str(token): -100}


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the arguments, measures, prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", help="GGUF file, or pip:package")
    parser.add_argument(
        "--streams", type=lambda t: [int(n) for n in t.split(",")], default=[1, 4, 8]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=2, help="of each stream in a round")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("-n", "--tokens", type=int, default=64)
    parser.add_argument("-t", "--threads", type=int, default=default_threads())
    parser.add_argument("--long-prompt", type=int, default=4000, help="tokens; 0 leaves this out")
    parser.add_argument("--system-prompt", type=int, default=1000, help="tokens; 0 leaves this out")
    parser.add_argument(
        "--peer-python", default=sys.executable, help="has llama-cpp-python[server]"
    )
    parser.add_argument("--no-peer", action="store_true", help="measure our server alone")
    parser.add_argument("--out", type=Path, help="write a JSON file")
    options = parser.parse_args(arguments)
    model = resolve(options.model, progress=False)
    most = max(options.streams)
    report: dict[str, Any] = {"model": str(model.name), "threads": options.threads}
    with contextlib.ExitStack() as stack:
        ctx_size = max(2048, options.long_prompt * 3 // 2 + 512)
        port = served.free_port()
        command = served.oxibonsai_command(
            model, port, streams=max(most, 5), ctx_size=ctx_size, threads=options.threads
        )
        ours = stack.enter_context(served.serving("oxibonsai", command, port, {"ignore_eos": True}))
        report["start_s"] = round(ours.start_s, 2)
        print(f"first healthy answer after {ours.start_s:.2f} s")
        if not options.no_peer:
            port = served.free_port()
            command = served.llama_cpp_command(
                options.peer_python, model, port, ctx_size=2048, threads=options.threads
            )
            body = {"logit_bias": end_token_bias(model)}
            peer = stack.enter_context(served.serving("llama_cpp.server", command, port, body))
            report["compared"] = compare([ours, peer], options)
        if options.long_prompt:
            report["long_prompt"] = serving_scenarios.long_prompt(ours, options.long_prompt)
            print(json.dumps(report["long_prompt"]))
        if options.system_prompt:
            report["system_prompt"] = serving_scenarios.system_prompt(ours, options.system_prompt)
            print(json.dumps(report["system_prompt"]))
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
