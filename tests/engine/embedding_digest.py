"""Prints the SHA-256 of each model's embeddings; run in a process of its own for each CPU tier.

Usage: embedding_digest.py IDS.json MODEL.gguf ...
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.engine.embedding import Embedder
from oxibonsai.engine.pooling import POOLINGS
from oxibonsai.models import load_model


def digest(path: str, texts: list[list[int]]) -> str:
    embedder = Embedder(load_model(Checkpoint(Path(path)), _core.CpuDevice(2)), None)
    found = hashlib.sha256()
    for pooling in POOLINGS:
        found.update(embedder.embed(texts, pooling=pooling).tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    ids = json.loads(Path(sys.argv[1]).read_text())
    digests = [digest(path, ids) for path in sys.argv[2:]]
    print(json.dumps({"tier": _core.cpu.name(), "digests": digests}))
