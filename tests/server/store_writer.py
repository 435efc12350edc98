"""Writes to a store until it is killed; says through a pipe what it was told is kept."""

from __future__ import annotations

import hashlib
import io
import os
import random
from multiprocessing.connection import Connection
from pathlib import Path

from oxibonsai.server.stores import Store


def write_until_killed(url: str, folder: Path, seed: int, pipe: Connection) -> None:
    """The work of one process."""

    def say(*words: str) -> None:
        # In one write, which a kill can't cut.
        os.write(pipe.fileno(), (" ".join(words) + "\n").encode())

    store = Store(url, folder)
    rng = random.Random(seed)
    owner = f"owner-{seed}"
    alive: dict[str, str] = {}
    say("open")
    while True:
        content = rng.randbytes(rng.randrange(1, 20_000))
        action = rng.randrange(4)
        if action == 0:
            say("file", store.files.upload(owner, {}, io.BytesIO(content))["id"], digest(content))
        elif action == 1:
            text = content.hex()
            kept = store.responses.create(owner, {"text": text, "digest": digest(text.encode())})
            alive[kept["id"]] = "response"
            say("response", kept["id"], kept["digest"])
        elif action == 2:
            thread = store.threads.create(owner, {})["id"]
            for n in range(3):
                message = store.messages.create(owner, {"n": n}, parent=thread)["id"]
                say("message", message, str(n))
        elif alive:
            gone = rng.choice(sorted(alive))
            del alive[gone]
            # Said before: whether a delete that nobody confirmed happened is open.
            say("deleting", gone, "")
            store.responses.delete(owner, gone)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
