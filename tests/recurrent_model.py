"""Two toy architectures with recurrent state: convolutions beside attention, and convolutions alone.

The first convolution looks back over more than a page, so that a state which is a token early or late
shows in the logits for a long time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tiny_model
from oxibonsai import SamplingParams, _core
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import constant, field
from oxibonsai.engine import Engine, Lookahead, Sequence
from oxibonsai.graph import Builder, RopeConfig, Value

HIDDEN, FF, HEAD_DIM, HEADS, KV_HEADS, CONTEXT = 64, 96, 16, 4, 2, 512
TAPS = (80, 4)
_EPS = 1e-6

IDS = [int(i) for i in np.random.default_rng(3).integers(0, 256, 200)]
DRAWN = SamplingParams(
    temperature=1, top_k=0, top_p=0.98, seed=11, max_tokens=80, ignore_eos=True, logprobs=True
)
GREEDY = replace(DRAWN, temperature=0)
Load = Callable[..., Engine]


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of both."""

    rms_norm_eps: float = constant(_EPS)
    rope: RopeConfig = field(Rope(("default",)))


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value, *, attends: bool) -> Value:
    """A convolution; attention behind the first where the model has it, a feed-forward part at last."""
    taps = TAPS[i]
    x = g.rms_norm(h, w.vector(f"blk.{i}.norm.weight", HIDDEN), _EPS)
    weight = w.vector(f"blk.{i}.conv.weight", HIDDEN * taps).reshape(HIDDEN, taps)
    h = g.add(h, g.conv1d(x, weight, w.vector(f"blk.{i}.conv.bias", HIDDEN)))
    if i > 0:
        gate, up = g.linear(
            h, w.matrix("blk.1.ffn_gate", FF, HIDDEN), w.matrix("blk.1.ffn_up", FF, HIDDEN)
        )
        (h,) = g.linear(g.swiglu(gate, up), w.matrix("blk.1.ffn_down", HIDDEN, FF), add=h)
    elif attends:
        kv = KV_HEADS * HEAD_DIM
        q, k, v = g.linear(
            h,
            w.matrix("blk.0.attn_q", HIDDEN, HIDDEN),
            w.matrix("blk.0.attn_k", kv, HIDDEN),
            w.matrix("blk.0.attn_v", kv, HIDDEN),
        )
        q, k = g.rope(q, c.rope, HEAD_DIM), g.rope(k, c.rope, HEAD_DIM)
        a = g.attention(q, k, v, layer=0, head_dim=HEAD_DIM, scale=c.attention_scale)
        h = g.add(h, a)
    return h


def _toy(name: str, *, attends: bool) -> Family[Config]:
    """A family of files alone."""
    return Family(
        name, (), "", "a toy", Config, lambda c: iter(()), partial(layer, attends=attends)
    )


FAMILIES = {
    "toyhybrid": _toy("toyhybrid", attends=True),
    "toyconv": _toy("toyconv", attends=False),
}


def write(path: Path, architecture: str, *, seed: int = 1) -> Path:
    """A model of this architecture with random weights, all of them live."""
    random = np.random.default_rng(seed)

    def normal(*shape: int, scale: float) -> np.ndarray[Any, np.dtype[np.float32]]:
        return (random.standard_normal(shape) * scale).astype(np.float32)

    tensors = {"token_embd.weight": normal(tiny_model.VOCABULARY, HIDDEN, scale=1.0)}
    for i, taps in enumerate(TAPS):
        tensors[f"blk.{i}.norm.weight"] = 1 + normal(HIDDEN, scale=0.3)
        tensors[f"blk.{i}.conv.weight"] = normal(HIDDEN * taps, scale=taps**-0.5)
        tensors[f"blk.{i}.conv.bias"] = normal(HIDDEN, scale=0.2)
    if architecture == "toyhybrid":
        tensors["blk.0.attn_q.weight"] = normal(HIDDEN, HIDDEN, scale=0.2)
        for name in ("k", "v"):
            tensors[f"blk.0.attn_{name}.weight"] = normal(KV_HEADS * HEAD_DIM, HIDDEN, scale=0.2)
    for name in ("gate", "up"):
        tensors[f"blk.1.ffn_{name}.weight"] = normal(FF, HIDDEN, scale=0.2)
    tensors["blk.1.ffn_down.weight"] = normal(HIDDEN, FF, scale=0.2)
    tensors["output_norm.weight"] = 1 + normal(HIDDEN, scale=0.3)
    # Small, so that several tokens are likely.
    tensors["output.weight"] = normal(tiny_model.VOCABULARY, HIDDEN, scale=0.15)
    keys: dict[str, tuple[Any, str]] = {"general.architecture": (architecture, "str")}
    numbers = {
        "context_length": CONTEXT,
        "embedding_length": HIDDEN,
        "block_count": len(TAPS),
        "feed_forward_length": FF,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
    }
    keys |= {f"{architecture}.{key}": (value, "u32") for key, value in numbers.items()}
    keys[f"{architecture}.rope.freq_base"] = (1e4, "f32")
    writer = _core.GgufWriter(path.open("wb"))
    for key, entry in (keys | tiny_model.tokenizer_keys()).items():
        writer.add_metadata(key, *entry)
    for name, values in tensors.items():
        writer.add_tensor(name, values.shape, 0, values.nbytes)
    writer.write_header()
    for values in tensors.values():
        writer.write_tensor(values.view(np.uint8).reshape(-1))
    writer.close()
    return path


def run(engine: Engine, *prompts: list[int], params: SamplingParams = DRAWN) -> list[Sequence]:
    """Runs prompts side by side to the end."""
    sequences = [engine.submit(p, params) for p in prompts]
    finish(engine, *sequences)
    return sequences


def finish(engine: Engine, *sequences: Sequence) -> None:
    """Steps until all have ended; then nothing is held."""
    while not all(s.finished for s in sequences):
        engine.step()
    assert_all_given_back(engine)


def assert_all_given_back(engine: Engine) -> None:
    """No page and no slot is held."""
    assert engine.cache.used_bytes == 0
    assert engine.cache.slots is not None
    assert engine.cache.slots.used == 0


def told(sequence: Sequence) -> tuple[object, ...]:
    """What has to be the same however a sequence runs."""
    assert sequence.error is None
    return sequence.generated, sequence.logprobs


class FixedDraft:
    """Proposes what it was told, right or wrong."""

    def __init__(self, text: list[int]) -> None:
        self.lookahead = Lookahead(8)
        self.shared = self.reader = None
        self._text = text

    def propose(self, sequence: Sequence, most: int) -> list[int]:
        """The next of its tokens."""
        done = sequence.num_generated
        return self._text[done : done + min(most, 8)]

    def close(self) -> None:
        """Holds nothing."""
