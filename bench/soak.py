"""Many streams at once for minutes: no error, no mixed text, no growth of memory.

    python bench/soak.py MODEL [--streams 64 --seconds 180 --slots 16 --requests 48]

A server answers each of some requests alone first. Then so many clients send requests from among them,
one after the other, and every answer must be the same bytes as alone. Meanwhile the health route is
asked each second, and the memory of the server's processes is read. Exit status 1 where an answer
differs, a request fails or health takes more than 5 seconds.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import random
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

import served
from oxibonsai.devices import default_threads
from oxibonsai.sources import resolve

_PAGE_BYTES = 4096
_HEALTH_SECONDS = 5.0


@dataclass
class Found:
    """What went on: figures of one run.

    Attributes:
        answers: How many came whole and equal.
        tokens: How many tokens those had.
        differing: Numbers of requests that read otherwise than alone.
        errors: What failed, in words.
        health_s: How long the health route took, in seconds.
        memory: Seconds since the start and MiB resident, of the server's processes together.
    """

    answers: int = 0
    tokens: int = 0
    differing: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    health_s: list[float] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)

    @property
    def slope(self) -> float:
        """Growth of memory over the second half, in MiB a minute: by then every buffer exists."""
        half = self.memory[len(self.memory) // 2 :]
        if len(half) < 2:
            return float("nan")
        seconds, sizes = np.array(half).T
        return float(np.polyfit(seconds / 60, sizes, 1)[0])

    @property
    def good(self) -> bool:
        """Nothing failed, differed or was slow to say that it lives."""
        slow = max(self.health_s, default=0.0) > _HEALTH_SECONDS
        return self.answers > 0 and not (self.differing or self.errors or slow)


def main() -> None:
    """Reads the arguments, runs, prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", help="GGUF file, or pip:package")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--requests", type=int, default=48, help="different ones")
    parser.add_argument("--tokens", type=int, default=48, help="of the longest answer")
    parser.add_argument("-t", "--threads", type=int, default=default_threads())
    options = parser.parse_args()
    model, port = resolve(options.model, progress=False), served.free_port()
    command = served.oxibonsai_command(
        model, port, streams=options.slots, ctx_size=512, threads=options.threads
    )
    with served.serving("oxibonsai", command, port, {}) as server:
        alone = [answer(server, request(i, options.tokens)) for i in range(options.requests)]
        found = soak(server, alone, options.streams, options.seconds, options.tokens)
    report(found, options.seconds)
    sys.exit(0 if found.good else 1)


def request(number: int, tokens: int) -> dict[str, object]:
    """One of the different requests: greedy or drawn, short or long."""
    draw = random.Random(number)
    words = " ".join(
        draw.choices(["bird", "stone", "green", "seven", "sings", "why"], k=4 + number)
    )
    return {
        "model": served.ALIAS,
        "messages": [{"role": "user", "content": f"Tell me about: {words}?"}],
        "max_tokens": draw.randint(max(1, tokens // 4), tokens),
        "temperature": draw.choice([0.0, 0.7, 1.2]),
        "seed": number,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def answer(server: served.Served, body: dict[str, object]) -> tuple[str, int]:
    """Text and number of tokens of one stream.

    Raises:
        RuntimeError: The server refused it, or the stream is not whole.
    """
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=600)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    received = connection.getresponse()
    content = received.read().decode()
    connection.close()
    blocks = [b.removeprefix("data: ") for b in content.split("\n\n") if b.startswith("data: ")]
    if received.status != 200 or not blocks or blocks[-1] != "[DONE]":
        raise RuntimeError(f"status {received.status}: {content[-300:]}")
    chunks = [json.loads(b) for b in blocks[:-1]]
    deltas = [c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]]
    return "".join(deltas), chunks[-1]["usage"]["completion_tokens"]


def soak(
    server: served.Served,
    alone: list[tuple[str, int]],
    streams: int,
    seconds: float,
    tokens: int,
) -> Found:
    """Keeps so many streams going for so long, and then lets them end."""
    found, lock, end = Found(), threading.Lock(), time.monotonic() + seconds
    numbers = itertools.count()

    def client(_: int) -> None:
        while time.monotonic() < end:
            with lock:
                number = next(numbers) % len(alone)
            try:
                got = answer(server, request(number, tokens))
            except (OSError, http.client.HTTPException, RuntimeError, ValueError) as e:
                with lock:
                    found.errors.append(f"{type(e).__name__}: {e}")
                continue
            with lock:
                if got == alone[number]:
                    found.answers += 1
                    found.tokens += got[1]
                else:
                    found.differing.append(number)

    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(server, found, done))
    watcher.start()
    try:
        with ThreadPoolExecutor(streams) as pool:
            list(pool.map(client, range(streams)))
    finally:
        done.set()
        watcher.join()
    return found


def _watch(server: served.Served, found: Found, done: threading.Event) -> None:
    started = time.monotonic()
    health = server.url.removesuffix("/v1") + "/health"
    while not done.wait(1.0):
        asked = time.monotonic()
        try:
            urllib.request.urlopen(health, timeout=2 * _HEALTH_SECONDS).read()
        except OSError as e:
            found.errors.append(f"health: {e}")
        found.health_s.append(time.monotonic() - asked)
        found.memory.append((asked - started, _resident_mib(server.pid)))


def _resident_mib(pid: int) -> float:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    pages = 0
    for process in (str(pid), *children):
        pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * _PAGE_BYTES / 2**20


def report(found: Found, seconds: float) -> None:
    """Prints the figures."""
    print(f"answers   {found.answers} equal to alone, {len(found.differing)} that differ")
    print(f"errors    {len(found.errors)} {found.errors[:3] or ''}")
    print(f"speed     {found.tokens / seconds:.1f} tok/s")
    if found.memory:
        first, last = found.memory[0][1], found.memory[-1][1]
        print(f"memory    {first:.0f} to {last:.0f} MiB, slope {found.slope:+.2f} MiB a minute")
        print(f"health    {max(found.health_s) * 1e3:.0f} ms at most")


if __name__ == "__main__":
    main()
