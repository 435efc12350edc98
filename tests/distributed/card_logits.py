"""What a model answers on one device, or on those of several processes started by torchrun.

Usage under torchrun: card_logits.py TENSOR PIPELINE DEVICE MODEL.gguf
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import oxibonsai
from oxibonsai import SamplingParams
from oxibonsai.devices import DevicePlan
from oxibonsai.distributed import follow
from oxibonsai.distributed.session import Choice, start
from oxibonsai.loading import open_model
from oxibonsai.models import load_model

PROMPT = [3 + 7 * i % 90 for i in range(12)]
PARAMS = SamplingParams(temperature=0.9, seed=5, max_tokens=6, ignore_eos=True)


def answers(model: str | Path, device: DevicePlan | None = None) -> dict[str, object]:
    engine = oxibonsai.load(
        model, device=device, threads=1, ctx_size=128, parallel=1, parity="off", mmproj=False
    )
    ids = list(engine.generate_tokens(PROMPT, PARAMS))
    digest = hashlib.sha256(engine.logits(PROMPT).tobytes()).hexdigest()
    return {"ids": ids, "logits": digest}


def main(tensor: str, pipeline: str, device: str, model: str) -> None:
    choice = Choice(model, int(tensor), int(pipeline), threads=1, device=device)
    group, plan = start(choice)
    if group.rank == 0:
        print(json.dumps(answers(model, plan)), flush=True)
        plan.leader.stop()
    else:
        loaded = load_model(open_model(model), plan)
        assert loaded.device.local.name == device  # type: ignore[attr-defined]
        follow(group, loaded)
    group.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
