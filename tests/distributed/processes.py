"""Starts groups of processes as torchrun does, on the loopback interface."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SECRET = "OXIBONSAI_GROUP_SECRET"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def environment(rank: int, world: int, port: int, more: Mapping[str, str] = {}) -> dict[str, str]:
    """Of a rank, as torchrun sets it."""
    own = {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        SECRET: "a test",
        "OXIBONSAI_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    return {**os.environ, **own, **more}


def start(
    arguments: Sequence[str | Path],
    world: int,
    more: Mapping[int, Mapping[str, str]] = {},
    others: Mapping[int, Sequence[str | Path]] = {},
) -> list[subprocess.Popen[str]]:
    """The ranks of a group: a Python program each, some with other variables or arguments."""
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, *map(str, others.get(rank, arguments))],
            env=environment(rank, world, port, more.get(rank, {})),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]


def finish(ranks: list[subprocess.Popen[str]], timeout: float) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each; none is left behind."""
    try:
        texts = [p.communicate(timeout=timeout) for p in ranks]
        return [(p.returncode, *text) for p, text in zip(ranks, texts, strict=True)]
    finally:
        end(ranks)


def end(ranks: list[subprocess.Popen[str]]) -> None:
    """Kills what still runs, and closes the pipes."""
    for p in ranks:
        p.kill()
        p.wait()
        for pipe in (p.stdout, p.stderr):
            if pipe is not None:
                pipe.close()
