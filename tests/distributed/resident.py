"""Prints how much memory a model takes in each process of a group, beyond its modules.

``own`` is what no other process and no file has, ``peak`` the most with pages of the mapped file.

Usage under torchrun: resident.py TENSOR PIPELINE MODEL.gguf
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import oxibonsai
from oxibonsai import SamplingParams
from oxibonsai.distributed import Identity, Link, RankPlan, follow, join, verify
from oxibonsai.loading import open_model
from oxibonsai.models import load_model

PARAMS = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
PROMPT = range(3, 67)
CONTEXT = 128


def held(name: str) -> int:
    """A field of the process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def main(tensor: str, pipeline: str, model: str) -> None:
    group = join(int(tensor), int(pipeline), Link("lo", 60.0, 120.0))
    checkpoint = open_model(model)
    verify(group, Identity("1", checkpoint.fingerprint(), "", ""), "secret")
    plan = RankPlan(group, 1)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    own, mapped = held("RssAnon"), held("VmRSS")
    if group.rank == 0:
        engine = oxibonsai.load(
            model, device=plan, ctx_size=CONTEXT, parallel=1, parity="off", mmproj=False
        )
        assert len(list(engine.generate_tokens(list(PROMPT), PARAMS))) == PARAMS.max_tokens
        plan.leader.stop()
    else:
        loaded = load_model(checkpoint, plan)  # held until the numbers are printed
        follow(group, loaded)
    print(json.dumps({"own": held("RssAnon") - own, "peak": held("VmHWM") - mapped}), flush=True)
    group.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
