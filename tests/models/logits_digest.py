"""Prints the SHA-256 of each model's logits; run in a process of its own for each CPU tier.

Usage: logits_digest.py KV_TYPE IDS.json MODEL.gguf ...   (KV_TYPE may be "default")
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import oxibonsai
from oxibonsai import _core


def main(kv_type: str, ids_file: str, *models: str) -> None:
    ids = json.loads(Path(ids_file).read_text())
    chosen = None if kv_type == "default" else kv_type
    logits = (oxibonsai.load(m, kv_type=chosen).logits(ids) for m in models)
    digests = [hashlib.sha256(rows.tobytes()).hexdigest() for rows in logits]
    print(json.dumps({"tier": _core.cpu.name(), "digests": digests}))


if __name__ == "__main__":
    main(*sys.argv[1:])
