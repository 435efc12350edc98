"""Continues a prompt, or measures how fast that goes."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

from oxibonsai.distributed.device import RankDevice, RankPlan
from oxibonsai.distributed.group import Group
from oxibonsai.distributed.session import Choice, serve_rank, start
from oxibonsai.engine import Engine
from oxibonsai.engine.loading import load
from oxibonsai.sampling import SamplingParams


def run(choice: Choice, kv_type: str | None, prompt: str, params: SamplingParams) -> None:
    """Print the text that continues a prompt, on rank 0."""
    group, plan = start(choice)
    if group.rank != 0:
        serve_rank(choice, group, plan)
    else:
        with group.shared_work():
            engine = _engine(choice, kv_type, plan)
            for piece in engine.generate(prompt, params):
                print(piece, end="", flush=True)
        print()
        plan.leader.stop()
    group.leave()


def bench(choice: Choice, kv_type: str | None, prompt_tokens: int, tokens: int) -> None:
    """Print, on rank 0, one line of JSON: speeds, and what this process has sent."""
    group, plan = start(choice)
    if group.rank != 0:
        serve_rank(choice, group, plan)
    else:
        with group.shared_work():
            figures = _measure(group, _engine(choice, kv_type, plan), prompt_tokens, tokens)
        print(json.dumps(figures))
        plan.leader.stop()
    group.leave()


def _engine(choice: Choice, kv_type: str | None, plan: RankPlan) -> Engine:
    return load(
        choice.model,
        device=plan,
        quant_type=choice.quant_type,
        lora=choice.lora,
        parity=choice.parity,
        ctx_size=choice.ctx_size,
        kv_type=kv_type,
        mmproj=False,
    )


def _measure(group: Group, engine: Engine, prompt_tokens: int, tokens: int) -> dict[str, object]:
    vocabulary = engine.model.config.vocab_size
    prompt = [(7 * i + 3) % vocabulary for i in range(prompt_tokens)]
    params = SamplingParams(max_tokens=tokens + 1, temperature=0.0, ignore_eos=True)
    stream = engine.generate_tokens(prompt, params)
    group.reset_traffic()
    began = time.perf_counter()
    next(stream)
    first = time.perf_counter()
    of_prompt = group.reset_traffic()
    count = sum(1 for _ in stream)
    seconds = time.perf_counter() - first
    of_text = group.reset_traffic()
    device = engine.model.device
    assert isinstance(device, RankDevice)
    return {
        "tensor": group.layout.tensor,
        "pipeline": group.layout.pipeline,
        "prompt_tokens": prompt_tokens,
        "prompt_tokens_per_second": prompt_tokens / (first - began),
        "tokens": count,
        "tokens_per_second": count / seconds,
        "own_weight_bytes": device.own_bytes,
        "sent_in_prompt": asdict(of_prompt),
        "sent_in_text": asdict(of_text),
    }
