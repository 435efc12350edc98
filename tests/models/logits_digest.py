"""Prints the SHA-256 of each model's logits; run in a process of its own for each CPU tier.

Usage: logits_digest.py IDS.json MODEL.gguf ...
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import oxibonsai
from oxibonsai import _core


def main(ids_file: str, *models: str) -> None:
    ids = json.loads(Path(ids_file).read_text())
    digests = [hashlib.sha256(oxibonsai.load(m).logits(ids).tobytes()).hexdigest() for m in models]
    print(json.dumps({"tier": _core.cpu.name(), "digests": digests}))


if __name__ == "__main__":
    main(*sys.argv[1:])
