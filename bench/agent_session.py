"""An agent's session with tools: prompt tokens read and time to the first token, turn by turn.

    python bench/agent_session.py MODEL.gguf [--turns 30 --system 4000 --result 300 --answer 64]
        [--edit-from TURN] [--evict-at TURN] [--restart-at TURN] [--server-options "..."]

The client sends the whole conversation each time: a system prompt, a task, then answers and results of
tools. It sends back what the model says, but no reasoning. Of an edited turn the result is sent twice, the
second time with another text. Before a turn another text may take the pages of the session, or the server
may end and start again. Then llama-cpp-python has the same session, without what a server of ours alone can
do, unless --no-peer is given.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import served
from oxibonsai.devices import default_threads
from oxibonsai.loadtest.prompts import made_up
from oxibonsai.sources import resolve

OURS = "oxibonsai"


@dataclass(frozen=True)
class Turn:
    """One request.

    Attributes:
        number: Of the turn; twice where it was edited.
        prompt: Tokens of the prompt, as the server says.
        read: Those that were not found in its cache; None where it does not say.
        new: Those by which the prompt is longer than that of the turn before.
        ttft_s: Seconds to the first token.
    """

    number: int
    prompt: int
    read: int | None
    new: int
    ttft_s: float


def ask(
    server: served.Served, messages: list[dict[str, Any]], answer: int
) -> tuple[str, Any, float]:
    """Return an answer's text without reasoning, its usage, and the seconds to the first token."""
    body = {
        "model": served.ALIAS, "messages": messages, "max_tokens": answer, "temperature": 0,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    request = urllib.request.Request(
        f"{server.url}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    text, usage, first = "", None, None
    sent = time.perf_counter()
    with closing(urllib.request.urlopen(request)) as stream:
        for chunk in _chunks(stream):
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                delta = choice["delta"]
                if first is None and (delta.get("content") or delta.get("reasoning_content")):
                    first = time.perf_counter() - sent
                text += delta.get("content") or ""
    return text, usage, time.perf_counter() - sent if first is None else first


def _chunks(stream: Any) -> Iterator[dict[str, Any]]:
    for line in stream:
        data = line.decode().removeprefix("data: ").strip()
        if data.startswith("{"):
            yield json.loads(data)


class Session:
    """A server that may be started again while it is asked.

    Args:
        name: Whose it is.
        command: Starts it.
        port: That it listens on.
    """

    def __init__(self, name: str, command: list[str], port: int) -> None:
        self._started: tuple[str, list[str], int, dict[str, Any]] = (name, command, port, {})
        self._stack = ExitStack()
        self.server = self._start()

    def _start(self) -> served.Served:
        return self._stack.enter_context(served.serving(*self._started))

    def restart(self) -> None:
        """End the server in order, and start it again."""
        self.close()
        self.server = self._start()

    def evict(self, tokens: int) -> None:
        """Have another text of so many tokens read."""
        words = made_up(tokens, 9)(0)[0]["content"]
        ask(self.server, [{"role": "user", "content": words}], 1)

    def close(self) -> None:
        """End the server."""
        self._stack.close()


def run(session: Session, args: argparse.Namespace) -> list[Turn]:
    """Run a session; the same for every server, as far as it can."""
    words = made_up(args.system, 1)(0)[0]["content"]
    messages = [{"role": "system", "content": words}, {"role": "user", "content": "Do the task."}]
    turns: list[Turn] = []
    before = 0
    for number in range(args.turns):
        if 0 < number == args.evict_at:
            session.evict(args.filler)
        if 0 < number == args.restart_at:
            session.restart()
        edits = 0 < args.edit_from <= number
        for edited in range(1 + edits):
            if number > 0:
                result = made_up(args.result, 10 + 2 * number + edited)(0)[0]["content"]
                messages.append(
                    {"role": "user", "content": f"<tool_response>{result}</tool_response>"}
                )
            text, usage, ttft = ask(session.server, messages, args.answer)
            prompt = 0 if usage is None else usage["prompt_tokens"]
            details = None if usage is None else usage.get("prompt_tokens_details")
            read = None if details is None else prompt - details["cached_tokens"]
            turns.append(Turn(number, prompt, read, prompt - before, ttft))
            if edited < edits:
                messages.pop()
        before = prompt
        messages.append({"role": "assistant", "content": text})
    return turns


def summary(turns: list[Turn]) -> dict[str, Any]:
    """Totals behind the first turn, which nothing can spare."""
    later = turns[1:]
    read = [t.read for t in later if t.read is not None]
    new = sum(t.new for t in later)
    return {
        "new_tokens": new,
        "read_tokens": sum(read) if read else None,
        "read_per_new": round(sum(read) / new, 3) if read else None,
        "ttft_s_first": round(turns[0].ttft_s, 3),
        "ttft_s_p50": round(statistics.median(t.ttft_s for t in later), 3),
        "ttft_s_last": round(later[-1].ttft_s, 3),
        "turns": [asdict(t) for t in turns],
    }


def commands(path: Path, args: argparse.Namespace, folder: str) -> dict[str, tuple[list[str], int]]:
    """Return what starts each server, and its port."""
    port = served.free_port()
    ours = served.oxibonsai_command(
        path, port, streams=1, ctx_size=args.ctx_size, threads=args.threads
    )
    # What a restart goes on from lies there.
    ours += ["--slot-save-path", folder, *shlex.split(args.server_options)]
    found = {OURS: (ours, port)}
    if not args.no_peer:
        port = served.free_port()
        theirs = served.llama_cpp_command(
            args.peer_python, path, port, ctx_size=args.ctx_size, threads=args.threads
        )
        found["llama.cpp"] = (theirs, port)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--system", type=int, default=4000, help="tokens of the system prompt")
    parser.add_argument("--result", type=int, default=300, help="tokens of a tool's result")
    parser.add_argument("--answer", type=int, default=64, help="tokens of an answer at most")
    parser.add_argument("--edit-from", type=int, default=0, help="first turn sent twice; 0: none")
    parser.add_argument("--evict-at", type=int, default=0, help="turn before which a text is read")
    parser.add_argument("--filler", type=int, default=8192, help="tokens of that text")
    parser.add_argument("--restart-at", type=int, default=0, help="turn before which ours restarts")
    parser.add_argument("--server-options", default="", help="further ones of our server")
    parser.add_argument("--ctx-size", type=int, default=32768)
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--peer-python", default="python")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    path = resolve(args.model, progress=False)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (command, port) in commands(path, args, folder).items():
            if name != OURS:
                args.restart_at = 0
            try:
                with closing(Session(name, command, port)) as session:
                    results[name] = summary(run(session, args))
            except RuntimeError as e:
                results[name] = {"error": str(e).strip().splitlines()[-1]}
            told = {k: v for k, v in results[name].items() if k != "turns"}
            print(f"{name}: {json.dumps(told)}", flush=True)
    if args.out is not None:
        args.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
