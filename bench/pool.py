"""One engine with several slots beside several engines over the same weights.

    python bench/pool.py --model MODEL --streams 4 --tokens 64

Every stream generates at the same time. One engine reads the weights once a step for all of them;
several engines read them once each. Prints tokens per second of both, measured in turn.
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from oxibonsai.engine import EnginePool
from oxibonsai.sampling import SamplingParams


def main() -> None:
    """Reads the arguments, measures, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    streams = options.streams
    pools = {
        f"1 engine, {streams} slots": EnginePool.from_pretrained(
            options.model, parallel=streams, ctx_size=512
        ),
        f"{streams} engines, 1 slot": EnginePool.from_pretrained(
            options.model, replicas=streams, parallel=1, ctx_size=512
        ),
    }
    rates: dict[str, list[float]] = {name: [] for name in pools}
    for _ in range(options.rounds):
        for name, pool in pools.items():
            rates[name].append(measure(pool, streams, options.tokens))
    for name, found in rates.items():
        print(f"{name:24} {statistics.median(found):8.1f} tok/s")
    for pool in pools.values():
        pool.close()


def measure(pool: EnginePool, streams: int, tokens: int) -> float:
    """Tokens per second of all streams together."""

    def stream(i: int) -> int:
        with pool.permit() as engine:
            params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
            prompt = [(i * 31 + j * 7) % engine.model.config.vocab_size for j in range(8)]
            return len(list(engine.generate_tokens(prompt, params)))

    with ThreadPoolExecutor(streams) as threads:
        started = time.perf_counter()
        total = sum(threads.map(stream, range(streams)))
        return total / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
