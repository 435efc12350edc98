"""Small random drafters of architecture ``eagle3``, and what torch makes of them.

A folder has the same tensors as a file, under the names and in the order of those who train drafters.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import drafter_files
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
HEADS, KV_HEADS, DIM, FF = 4, 2, 32, 160
_EPS, _THETA = 1e-5, 10000.0

_OUTSIDE = {
    "token_embd": "embed_tokens", "enc.output_norm": "input_norm", "fc": "fc", "output_norm": "norm",
    "output": "lm_head",
}  # fmt: skip
_LAYER = {
    "attn_norm": "input_layernorm", "attn_norm_2": "hidden_norm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip


@dataclass
class Drafter:
    """A drafter of some kind.

    Attributes:
        hidden: Columns.
        target_hidden: Columns of the model's hidden states.
        vocabulary: The model's tokens.
        target_layers: The model's layers whose inputs it reads.
        layers_key: What llama.cpp calls them; older files have another key.
        norm_before_fc: Whether the hidden states are normalised before they are projected.
        norm_before_residual: Whether the layer adds to the normalised state.
        ids: The model's ids of the tokens that it can propose; None: all.
        own_table: Whether it has a token table.
        tensors: By their names.
    """

    hidden: int
    target_hidden: int
    vocabulary: int
    target_layers: tuple[int, ...] = (0, 1, 3)
    layers_key: str = "target_layers"
    norm_before_fc: bool = False
    norm_before_residual: bool = False
    ids: npt.NDArray[np.int64] | None = None
    own_table: bool = False
    tensors: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    def draw(self, seed: int = 3) -> Drafter:
        """Draw the tensors where there are none yet."""
        self.tensors = self.tensors or self._drawn(np.random.default_rng(seed))
        return self

    def write(self, path: Path, seed: int = 3, **keys: tuple[Any, str]) -> Path:
        """Draw the tensors and write the file, with further keys of the architecture."""
        self.draw(seed)
        numbers = {
            "context_length": 512, "embedding_length": self.hidden, "block_count": 1,
            "feed_forward_length": FF, "attention.head_count": HEADS,
            "attention.head_count_kv": KV_HEADS, "attention.key_length": DIM,
            "attention.value_length": DIM, "rope.dimension_count": DIM,
            "target_hidden_size": self.target_hidden, "vocab_size": self.vocabulary,
        }  # fmt: skip
        named: dict[str, tuple[Any, str]] = {k: (v, "u32") for k, v in numbers.items()}
        named |= {
            "attention.layer_norm_rms_epsilon": (_EPS, "f32"),
            "rope.freq_base": (_THETA, "f32"),
            self.layers_key: (list(self.target_layers), "arr[i32]"),
            "norm_before_residual": (self.norm_before_residual, "bool"),
            "norm_before_fc": (self.norm_before_fc, "bool"),
        }
        named |= keys
        return drafter_files.write(path, "eagle3", named, self.tensors)

    def parameters(self, layer: str = "midlayer") -> dict[str, npt.NDArray[Any]]:
        """The tensors as a folder has them, once they are drawn: halves of heads, offsets of ids."""
        found: dict[str, npt.NDArray[Any]] = {}
        for name, values in self.tensors.items():
            bare = name.removesuffix(".weight")
            if name == "d2t":
                found["d2t"] = values - np.arange(len(values))
                found["t2d"] = np.isin(np.arange(self.vocabulary), values)
                continue
            if bare in ("blk.0.attn_q", "blk.0.attn_k"):
                heads = values.reshape(-1, DIM, values.shape[1])
                values = np.concatenate([heads[:, 0::2], heads[:, 1::2]], axis=1)
                values = values.reshape(-1, values.shape[-1])
            own = _OUTSIDE.get(bare) or f"{layer}.{_LAYER[bare.removeprefix('blk.0.')]}"
            found[f"{own}.weight"] = np.ascontiguousarray(values)
        return found

    def config_json(self) -> dict[str, Any]:
        """``config.json`` as EAGLE's own drafters have it."""
        proposed = self.vocabulary if self.ids is None else len(self.ids)
        return {
            "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu",
            "hidden_size": self.hidden, "intermediate_size": FF, "num_hidden_layers": 1,
            "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": DIM,
            "max_position_embeddings": 512, "rms_norm_eps": _EPS, "rope_theta": _THETA,
            "vocab_size": self.vocabulary, "draft_vocab_size": proposed,
            "target_hidden_size": self.target_hidden, "norm_before_fc": self.norm_before_fc,
            "norm_before_residual": self.norm_before_residual,
            "eagle_aux_hidden_state_layer_ids": list(self.target_layers),
        }  # fmt: skip

    def write_folder(
        self, folder: Path, config: dict[str, Any] | None = None, layer: str = "midlayer"
    ) -> Path:
        """Write the folder, with other fields than usual; None takes one away."""
        from safetensors.numpy import save_file

        folder.mkdir(exist_ok=True)
        fields = self.config_json() | (config or {})
        stated = {key: value for key, value in fields.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(stated))
        save_file(self.parameters(layer), folder / "model.safetensors")
        return folder

    def _drawn(self, random: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
        hidden, q, kv = self.hidden, HEADS * DIM, KV_HEADS * DIM
        features = len(self.target_layers) * self.target_hidden
        proposed = self.vocabulary if self.ids is None else len(self.ids)
        shapes: dict[str, tuple[int, ...]] = {
            "fc.weight": (hidden, features), "output_norm.weight": (hidden,),
            "output.weight": (proposed, hidden), "blk.0.attn_norm.weight": (hidden,),
            "blk.0.attn_norm_2.weight": (hidden,), "blk.0.attn_q.weight": (q, 2 * hidden),
            "blk.0.attn_k.weight": (kv, 2 * hidden), "blk.0.attn_v.weight": (kv, 2 * hidden),
            "blk.0.attn_output.weight": (hidden, q), "blk.0.ffn_norm.weight": (hidden,),
            "blk.0.ffn_gate.weight": (FF, hidden), "blk.0.ffn_up.weight": (FF, hidden),
            "blk.0.ffn_down.weight": (hidden, FF),
        }  # fmt: skip
        if self.norm_before_fc:
            shapes["enc.output_norm.weight"] = (features,)
        if self.own_table:
            shapes["token_embd.weight"] = (self.vocabulary, hidden)
        tensors: dict[str, npt.NDArray[Any]] = {}
        for name, shape in shapes.items():
            if len(shape) == 1:
                values = random.normal(1.0, 0.2, shape)
            else:
                values = random.normal(0.0, 1.3 / np.sqrt(shape[-1]), shape)
            tensors[name] = values.astype(np.float32)
        if self.ids is not None:
            tensors["d2t"] = self.ids.astype(np.int64)
        return tensors


def reference(
    d: Drafter,
    states: Floats,
    tokens: list[int],
    table: Floats,
    count: int,
    then: list[int] | None = None,
) -> tuple[Floats, list[int]]:
    """Propose greedily behind a text, computed densely.

    Args:
        d: Whose file has been written.
        states: float32 [n, target_layers * target_hidden], of the text's tokens but the last one.
        tokens: The text without its first token: each is read with the state of the one before, n.
        table: The model's token table, [vocabulary, target_hidden].
        count: Tokens to propose.
        then: Tokens that are read as the proposed ones; None: the likeliest ones.

    Returns:
        Logits of each proposed token, [count, vocabulary], and the tokens.
    """
    import torch

    w = {name: torch.from_numpy(values) for name, values in d.tensors.items()}
    own_table = w.get("token_embd.weight", torch.from_numpy(table))

    def norm(x: Any, name: str) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + _EPS) * w[f"{name}.weight"]

    def rotate(x: Any) -> Any:  # pairs of neighbours
        angles = torch.arange(len(x))[:, None] * _THETA ** (-torch.arange(0, DIM, 2) / DIM)[None]
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)

    features = torch.from_numpy(states)
    if d.norm_before_fc:
        features = norm(features, "enc.output_norm")
    state = features @ w["fc.weight"].T
    logits, read = [], list(tokens)
    for i in range(count):
        n = len(read)
        normed = norm(state, "blk.0.attn_norm_2")
        x = torch.cat([norm(own_table[read], "blk.0.attn_norm"), normed], dim=-1)
        q = rotate((x @ w["blk.0.attn_q.weight"].T).reshape(n, HEADS, DIM))
        k = rotate((x @ w["blk.0.attn_k.weight"].T).reshape(n, KV_HEADS, DIM))
        v = (x @ w["blk.0.attn_v.weight"].T).reshape(n, KV_HEADS, DIM)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, dim=1) for t in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * DIM**-0.5
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
        a = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).reshape(n, -1)
        h = (normed if d.norm_before_residual else state) + a @ w["blk.0.attn_output.weight"].T
        x = norm(h, "blk.0.ffn_norm")
        gated = torch.nn.functional.silu(x @ w["blk.0.ffn_gate.weight"].T)
        h = h + (gated * (x @ w["blk.0.ffn_up.weight"].T)) @ w["blk.0.ffn_down.weight"].T
        row = torch.full((d.vocabulary,), -1e30)
        ids = torch.arange(d.vocabulary) if d.ids is None else torch.from_numpy(d.ids)
        row[ids] = norm(h[-1:], "output_norm")[0] @ w["output.weight"].T
        logits.append(row)
        read.append(int(row.argmax()) if then is None else then[i])
        state = torch.cat([state, h[-1:]])
    return torch.stack(logits).numpy(), read[-count:]
