"""A process that is killed at any moment loses nothing that it had acknowledged."""

from __future__ import annotations

import hashlib
import os
import random
import sqlite3
import time
from pathlib import Path

import pytest
from store_writer import digest, write_until_killed

from forked import PROCESSES
from oxibonsai.server.stores import Store


def run_and_kill(url: str, folder: Path, seed: int, seconds: float) -> list[list[str]]:
    """Lets a writer work, kills it, and returns what it said."""
    reader, pipe = PROCESSES.Pipe(duplex=False)
    writer = PROCESSES.Process(target=write_until_killed, args=(url, folder, seed, pipe))
    writer.start()
    pipe.close()
    with os.fdopen(os.dup(reader.fileno()), "rb") as lines:
        reader.close()
        said = [lines.readline()]
        time.sleep(seconds)
        writer.kill()
        said += lines.readlines()
    writer.join()
    assert said[0] == b"open\n"
    return [line.decode().split() for line in said[1:]]


def check_all(store: Store, owner: str, said: list[list[str]]) -> None:
    deleting = {words[1] for words in said if words[0] == "deleting"}
    for kind, object_id, proof in [w for w in said if w[0] not in ("deleting",)]:
        if kind == "file":
            with store.files.open(owner, object_id) as file:
                assert digest(file.read()) == proof
        elif kind == "response" and object_id not in deleting:
            body = store.responses.get(owner, object_id)
            assert digest(body["text"].encode()) == proof == body["digest"]
        elif kind == "message":
            assert store.messages.get(owner, object_id)["n"] == int(proof)


def check_no_object_is_torn(store: Store, owner: str) -> None:
    """Also of those that were never acknowledged."""
    page = store.responses.list(owner, limit=100)
    for body in page.data:
        assert digest(body["text"].encode()) == body["digest"]
    for body in store.files.list(owner, limit=100).data:
        with store.files.open(owner, body["id"]) as file:
            assert len(file.read()) == body["bytes"]


def kill_again_and_again(url: str, folder: Path, times: int) -> None:
    rng = random.Random(7)
    said: dict[int, list[list[str]]] = {}
    for seed in range(times):
        said[seed] = run_and_kill(url, folder, seed, rng.uniform(0, 0.3))
        if url.startswith("sqlite"):
            with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            connection.close()
        store = Store(url, folder)
        store.files.sweep()
        # What earlier writers kept must outlive the later ones' ends.
        for earlier in range(max(0, seed - 3), seed + 1):
            check_all(store, f"owner-{earlier}", said[earlier])
            check_no_object_is_torn(store, f"owner-{earlier}")
        store.close()
    assert sum(len(words) for words in said.values()) >= times  # writers did write


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    kill_again_and_again(f"sqlite:///{tmp_path / 'store.sqlite'}", tmp_path / "files", 10)
    digests = [p.name for p in (tmp_path / "files").glob("??/*")]
    assert digests
    for name in digests:
        content = (tmp_path / "files" / name[:2] / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == name


@pytest.mark.release
def test_nothing_acknowledged_is_lost_in_a_hundred_kills(store_url: str, tmp_path: Path) -> None:
    kill_again_and_again(store_url, tmp_path / "files", 100)
