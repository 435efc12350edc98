"""What HTTP takes from the engine: the same texts from an engine in this process and from a server.

    python bench/http_cost.py --model MODEL --streams 8 --tokens 256 --rounds 7

Both hold the model and take turns. The engine steps its sequences and makes their text; the server
streams the same texts as chat chunks to a client that only looks for bytes fifty times a second, since
it runs on the same cores. Pieces of text are counted while all streams run, from the last one's first
piece to the first one's last: how prompts are let in is the scheduler's business. Prints the pieces per
second of both and the share that HTTP costs.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import statistics
import time
from urllib.parse import urlsplit

import oxibonsai
import served
from oxibonsai.chat import ChatRequest, prepare
from oxibonsai.devices import default_threads
from oxibonsai.sources import resolve

_READ_SECONDS = 0.02
_PROMPT = "Tell me a long story about the number {}."


def main() -> None:
    """Reads the arguments, measures in turn, prints medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("-t", "--threads", type=int, default=default_threads())
    options = parser.parse_args()
    model, streams, ctx_size = resolve(options.model, progress=False), options.streams, 512
    engine = oxibonsai.load(model, threads=options.threads, parallel=streams, ctx_size=ctx_size)
    port = served.free_port()
    command = served.oxibonsai_command(
        model, port, streams=streams, ctx_size=ctx_size, threads=options.threads
    )
    rates: dict[str, list[float]] = {"engine": [], "server": []}
    with served.serving("oxibonsai", command, port, {"ignore_eos": True}) as server:
        for i in range(options.rounds + 1):
            first = i * streams
            alone = engine_rate(engine, first, streams, options.tokens)
            over_http = server_rate(server, first, streams, options.tokens)
            if i > 0:  # the first round warms both up
                rates["engine"].append(alone)
                rates["server"].append(over_http)
    medians = {name: statistics.median(found) for name, found in rates.items()}
    for name, found in rates.items():
        print(f"{name:8} {medians[name]:8.1f} pieces/s   ({min(found):.1f} to {max(found):.1f})")
    shares = [1 - b / a for a, b in zip(rates["engine"], rates["server"], strict=True)]
    print(f"HTTP costs {100 * statistics.median(shares):.1f} % (median of the rounds)")


def engine_rate(engine: oxibonsai.Engine, first: int, streams: int, tokens: int) -> float:
    """Pieces per second of sequences that run at the same time in this process."""
    params = oxibonsai.SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    running = []
    for i in range(streams):
        messages = [{"role": "user", "content": _PROMPT.format(first + i)}]
        running.append(engine.submit(prepare(engine, ChatRequest(messages)).ids, params))
    arrivals: list[list[float]] = [[] for _ in running]
    while any(s.finish_reason is None for s in running):
        engine.step()
        now = time.perf_counter()
        for s, times in zip(running, arrivals, strict=True):
            assert s.text_output is not None
            times += [now] * (len(s.text_output.pieces) - len(times))
    return rate_while_all_run(arrivals)


def server_rate(server: served.Served, first: int, streams: int, tokens: int) -> float:
    """Pieces per second of streams that a client reads at the same time.

    Raises:
        RuntimeError: An answer is not whole.
    """
    address = urlsplit(server.url)
    received: dict[socket.socket, list[tuple[float, bytes]]] = {}
    with selectors.DefaultSelector() as selector:
        for i in range(streams):
            connection = socket.create_connection((address.hostname, address.port))
            connection.sendall(_request(server, _PROMPT.format(first + i), tokens))
            received[connection] = []
            selector.register(connection, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                connection = key.fileobj  # type: ignore[assignment]
                piece = connection.recv(65536)
                received[connection].append((time.perf_counter(), piece))
                if not piece:
                    selector.unregister(connection)
                    connection.close()
            time.sleep(_READ_SECONDS)
    for parts in received.values():
        answer = b"".join(piece for _, piece in parts)
        if f'"completion_tokens":{tokens}'.encode() not in answer.replace(b" ", b""):
            raise RuntimeError(f"an answer is not whole: {bytes(answer[-500:])!r}")
    return rate_while_all_run(
        [
            [at for at, piece in parts for _ in range(piece.count(b'"delta":{"content":"'))]
            for parts in received.values()
        ]
    )


def rate_while_all_run(arrivals: list[list[float]]) -> float:
    """Pieces per second between the last stream's first piece and the first stream's last one."""
    begin, end = max(times[0] for times in arrivals), min(times[-1] for times in arrivals)
    count = sum(begin < at <= end for times in arrivals for at in times)
    return count / (end - begin)


def _request(server: served.Served, prompt: str, tokens: int) -> bytes:
    body = {
        "model": served.ALIAS,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        **server.body,
    }
    content = json.dumps(body).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


if __name__ == "__main__":
    main()
