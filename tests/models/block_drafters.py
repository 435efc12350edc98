"""Small random drafters of architecture ``dflash``, and what torch makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import drafter_files
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
LAYERS, HEADS, KV_HEADS, DIM, FF = 2, 4, 2, 32, 96
RANK, TOP_K, TAPS, GROUP = 16, 6, 2, 16
_EPS, _THETA = 1e-6, 10000.0


@dataclass
class Drafter:
    """A drafter of some kind.

    Attributes:
        kind: ``dflash``, ``dspark`` or ``dflash2``.
        hidden: Columns.
        vocabulary: The model's tokens.
        target_layers: The model's layers whose inputs it reads.
        anchored: Whether the last token's row proposes, too.
        window: Of all layers but the first; 0: none has one.
        block: Rows of a block.
        causal: Whether rows of a block see only those before them.
        ids: The model's ids of the tokens that it can propose; None: all.
        own_vocabulary: Whether it has a table and an output matrix.
        tensors: By their names.
    """

    kind: str
    hidden: int
    vocabulary: int
    target_layers: tuple[int, ...] = (1, 2)
    anchored: bool = True
    window: int = 0
    block: int = 6
    causal: bool = False
    ids: npt.NDArray[np.int64] | None = None
    own_vocabulary: bool = False
    tensors: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    @property
    def mask(self) -> int:
        """The token that stands for those to propose."""
        return self.vocabulary - 1

    @property
    def first_wanted(self) -> int:
        """The first row of a block that proposes."""
        return 0 if self.kind == "dspark" and self.anchored else 1

    def write(self, path: Path, seed: int = 3, **keys: tuple[Any, str]) -> Path:
        """Draw the tensors and write the file, with further keys of the architecture."""
        self.tensors = self._drawn(np.random.default_rng(seed))
        numbers = {
            "context_length": 512, "embedding_length": self.hidden, "block_count": LAYERS,
            "feed_forward_length": FF, "attention.head_count": HEADS,
            "attention.head_count_kv": KV_HEADS, "attention.key_length": DIM,
            "attention.value_length": DIM, "block_size": self.block,
        }  # fmt: skip
        if self.window:
            numbers["attention.sliding_window"] = self.window
        if self.kind == "dflash2":
            numbers |= {"conv_kernel_size": TAPS, "conv_group_size": GROUP,
                        "selector_rank": RANK, "selector_top_k": TOP_K}  # fmt: skip
        named: dict[str, tuple[Any, str]] = {k: (v, "u32") for k, v in numbers.items()}
        named |= {
            "attention.layer_norm_rms_epsilon": (_EPS, "f32"),
            "rope.freq_base": (_THETA, "f32"),
            "target_layers": (list(self.target_layers), "arr[i32]"),
            "attention.causal": (self.causal, "bool"),
        }
        if self.kind == "dspark":
            named |= {
                "sample_from_anchor": (self.anchored, "bool"),
                "has_confidence_head": (True, "bool"),
            }
        if self.window:
            local = [i > 0 for i in range(LAYERS)]
            named["attention.sliding_window_pattern"] = (local, "arr[bool]")
        named |= keys
        named = {"tokenizer.ggml.mask_token_id": (self.mask, "u32"), **named}
        return drafter_files.write(path, "dflash", named, self.tensors)

    def _drawn(self, random: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
        hidden, q, kv = self.hidden, HEADS * DIM, KV_HEADS * DIM
        shapes: dict[str, tuple[int, ...]] = {
            "fc.weight": (hidden, len(self.target_layers) * hidden),
            "enc.output_norm.weight": (hidden,),
            "output_norm.weight": (hidden,),
        }
        for i in range(LAYERS):
            layer: dict[str, tuple[int, ...]] = {
                "attn_norm": (hidden,), "attn_q": (q, hidden), "attn_k": (kv, hidden),
                "attn_v": (kv, hidden), "attn_output": (hidden, q), "attn_q_norm": (DIM,),
                "attn_k_norm": (DIM,), "ffn_norm": (hidden,), "ffn_gate": (FF, hidden),
                "ffn_up": (FF, hidden), "ffn_down": (hidden, FF),
            }  # fmt: skip
            shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in layer.items()}
            if self.kind == "dflash2":
                rows = 2 * TAPS * (hidden // GROUP)
                for part in ("attn", "ffn"):
                    shapes[f"blk.{i}.{part}_conv_base"] = (2, TAPS, hidden)
                    shapes[f"blk.{i}.{part}_conv_proj.weight"] = (rows, hidden)
        proposed = self.vocabulary if self.ids is None else len(self.ids)
        if self.kind == "dspark":
            shapes |= {
                "markov_w1.weight": (self.vocabulary, RANK),
                "markov_w2.weight": (proposed, RANK),
                "conf_proj.weight": (1, hidden + RANK),
                "conf_proj.bias": (1,),
            }
        if self.kind == "dflash2":
            shapes |= {
                "selector_hidden.weight": (RANK, hidden),
                "selector_predecessor.weight": (self.vocabulary, RANK),
                "selector_successor.weight": (self.vocabulary, RANK),
            }
        if self.own_vocabulary:
            shapes["token_embd.weight"] = (self.vocabulary, hidden)
        if self.own_vocabulary or self.ids is not None:
            shapes["output.weight"] = (proposed, hidden)
        tensors: dict[str, npt.NDArray[Any]] = {}
        for name, shape in shapes.items():
            if len(shape) == 1:
                values = random.normal(0.0 if "bias" in name else 1.0, 0.2, shape)
            elif "markov" in name or "selector_p" in name or "selector_s" in name:
                values = random.normal(0.0, 0.8, shape)
            else:
                values = random.normal(0.0, 1.3 / np.sqrt(shape[-1]), shape)
            tensors[name] = values.astype(np.float32)
        if self.ids is not None:
            tensors["d2t"] = self.ids.astype(np.int64)
        return tensors


@dataclass(frozen=True)
class Block:
    """What torch makes of a block.

    Attributes:
        logits: float32 [rows that propose, vocabulary], without biases of the Markov head.
        tokens: What is proposed greedily.
        confidence: Of each token; empty where the drafter estimates none.
    """

    logits: Floats
    tokens: list[int]
    confidence: list[float]


def reference(
    d: Drafter, states: Floats, last: int, rows: int, table: Floats, head: Floats
) -> Block:
    """A block of so many rows behind a text, computed densely.

    Args:
        d: Whose file has been written.
        states: float32 [tokens but the last one, target_layers * hidden].
        last: The last token.
        rows: Of the block.
        table: The model's token table, [vocabulary, hidden].
        head: Its output matrix.
    """
    import torch

    w = {name: torch.from_numpy(values) for name, values in d.tensors.items()}
    n = len(states)
    own_table = w.get("token_embd.weight", torch.from_numpy(table))
    own_head = w.get("output.weight", torch.from_numpy(head))

    def norm(x: Any, weight: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + _EPS) * weight

    def rotate(x: Any, positions: Any) -> Any:
        angles = positions[:, None] * _THETA ** (-torch.arange(0, DIM, 2) / DIM)[None]
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)

    def convolve(x: Any, of_groups: Any, base: Any, side: int) -> Any:
        groups = d.hidden // GROUP
        by_group = of_groups.reshape(len(x), 2, TAPS, groups)[:, side]
        total = torch.zeros_like(x)
        for tap in range(TAPS):
            weight = by_group[:, tap].repeat_interleave(GROUP, dim=-1) + base[side, tap]
            earlier = torch.cat([torch.zeros(tap, d.hidden), x[: len(x) - tap]])
            total = total + weight * earlier
        return total

    positions = torch.arange(n + rows, dtype=torch.float32)
    context = norm(torch.from_numpy(states) @ w["fc.weight"].T, w["enc.output_norm.weight"])
    h = own_table[[last, *[d.mask] * (rows - 1)]]
    for i in range(LAYERS):
        of = {k.split(".", 2)[2].removesuffix(".weight"): v for k, v in w.items()
              if k.startswith(f"blk.{i}.")}  # fmt: skip
        x = norm(h, of["attn_norm"])
        if d.kind == "dflash2":
            dynamic = x @ of["attn_conv_proj"].T
            x = convolve(x, dynamic, of["attn_conv_base"], 0)
        both = torch.cat([context, x])
        q = norm((x @ of["attn_q"].T).reshape(rows, HEADS, DIM), of["attn_q_norm"])
        k = norm((both @ of["attn_k"].T).reshape(n + rows, KV_HEADS, DIM), of["attn_k_norm"])
        v = (both @ of["attn_v"].T).reshape(n + rows, KV_HEADS, DIM)
        q, k = rotate(q, positions[n:]), rotate(k, positions)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, dim=1) for t in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * DIM**-0.5
        distance = positions[n:, None] - positions[None]
        seen = distance >= 0 if d.causal else torch.ones_like(distance, dtype=torch.bool)
        if d.window and i > 0:
            seen = seen & (distance < d.window)
        scores = scores.masked_fill(~seen, -torch.inf)
        a = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).reshape(rows, -1)
        a = a @ of["attn_output"].T
        if d.kind == "dflash2":
            a = convolve(a, dynamic, of["attn_conv_base"], 1)
        h = h + a
        x = norm(h, of["ffn_norm"])
        if d.kind == "dflash2":
            dynamic = x @ of["ffn_conv_proj"].T
            x = convolve(x, dynamic, of["ffn_conv_base"], 0)
        x = (torch.nn.functional.silu(x @ of["ffn_gate"].T) * (x @ of["ffn_up"].T)) @ of[
            "ffn_down"
        ].T
        if d.kind == "dflash2":
            x = convolve(x, dynamic, of["ffn_conv_base"], 1)
        h = h + x
    h = norm(h, w["output_norm.weight"])[d.first_wanted :]
    few = h @ own_head.T
    ids = torch.arange(d.vocabulary) if d.ids is None else torch.from_numpy(d.ids)
    logits = torch.full((len(h), d.vocabulary), -1e30)
    logits[:, ids] = few
    tokens, confidence, before = [], [], last
    for row, state in zip(logits, h, strict=True):
        if d.kind == "dspark":
            of_token = w["markov_w1.weight"][before]
            bias = torch.zeros(d.vocabulary)
            bias[ids] = w["markov_w2.weight"] @ of_token
            row = row + bias
            sure = w["conf_proj.weight"][0] @ torch.cat([state, of_token]) + w["conf_proj.bias"][0]
            confidence.append(float(sure.sigmoid()))
        if d.kind == "dflash2":
            gate = w["selector_hidden.weight"] @ state
            best = row.topk(TOP_K).indices
            pairs = w["selector_successor.weight"][best] @ (
                w["selector_predecessor.weight"][before] * gate
            )
            before = int(best[(row[best] + pairs).argmax()])
        else:
            before = int(row.argmax())
        tokens.append(before)
    return Block(logits.numpy(), tokens, confidence)
