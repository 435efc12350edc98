"""PLaMo 2 as its authors describe it, computed in float64 from a folder's own parameters.

llama.cpp does not run models whose first layer is one of Mamba, as the published ones are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
_HEAD_EPSILON = 1e-6


def logits(folder: Path, ids: list[int]) -> Doubles:
    """Of each token: [n, vocabulary]."""
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    held = load_file(folder / "model.safetensors")
    weights = {name: values.astype(np.float64) for name, values in held.items()}
    table = weights["model.embed_tokens.weight"]
    h = table[ids]
    for i in range(config["num_hidden_layers"]):
        prefix = f"model.layers.layers.{i}."
        own = {n.removeprefix(prefix): v for n, v in weights.items() if n.startswith(prefix)}
        mix = _attention if "mixer.qkv_proj.weight" in own else _mamba
        x = _norm(h, 1.0 + own["pre_mixer_norm.weight"], config["rms_norm_eps"])
        h = h + _norm(
            mix(config, own, x), 0.2 + own["post_mixer_norm.weight"], config["rms_norm_eps"]
        )
        x = _norm(h, 1.0 + own["pre_mlp_norm.weight"], config["rms_norm_eps"])
        gate, up = np.split(x @ own["mlp.gate_up_proj.weight"].T, 2, axis=-1)
        x = (_silu(gate) * up) @ own["mlp.down_proj.weight"].T
        h = h + _norm(x, 5.0**-1.5 + own["post_mlp_norm.weight"], config["rms_norm_eps"])
    found: Doubles = _norm(h, 1.0 + weights["model.norm.weight"], config["rms_norm_eps"]) @ table.T
    return found


def _norm(x: Doubles, weight: Doubles, epsilon: float) -> Doubles:
    found: Doubles = x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight
    return found


def _silu(x: Doubles) -> Doubles:
    found: Doubles = x / (1.0 + np.exp(-x))
    return found


def _attention(config: dict[str, Any], own: dict[str, Doubles], x: Doubles) -> Doubles:
    """A query sees itself and the ``attention_window_size`` keys before it."""
    width, heads = config["hidden_size_per_head"], config["num_attention_heads"]
    kv = config["num_key_value_heads"]
    qkv = (x @ own["mixer.qkv_proj.weight"].T).reshape(len(x), heads + 2 * kv, width)
    q, k, v = np.split(qkv, [heads, heads + kv], axis=1)
    q = _turned(config, _norm(q, own["mixer.q_weight"], _HEAD_EPSILON))
    k = _turned(config, _norm(k, own["mixer.k_weight"], _HEAD_EPSILON))
    k, v = (np.repeat(part, heads // kv, axis=1) for part in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) / width**0.5
    distance = np.subtract.outer(np.arange(len(x)), np.arange(len(x)))
    seen = (distance >= 0) & (distance <= config["attention_window_size"])
    shares = np.where(seen, np.exp(scores - scores.max(-1, keepdims=True)), 0.0)
    shares /= shares.sum(-1, keepdims=True)
    found: Doubles = np.einsum("hij,jhd->ihd", shares, v).reshape(len(x), -1)
    return found @ own["mixer.o_proj.weight"].T


def _turned(config: dict[str, Any], x: Doubles) -> Doubles:
    """The first half of a head's values turns with the second."""
    half = x.shape[-1] // 2
    frequencies = config["rope_theta"] ** (-np.arange(half) / half)
    angles = np.outer(np.arange(len(x)), frequencies)[:, None]
    first, second = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _mamba(config: dict[str, Any], own: dict[str, Doubles], x: Doubles) -> Doubles:
    """Each head has its gate, then its input, in one projection."""
    heads, state = config["mamba_num_heads"], config["mamba_d_state"]
    both = (x @ own["mixer.in_proj.weight"].T).reshape(len(x), heads, 2, -1)
    gate, x = both[:, :, 0], both[:, :, 1].reshape(len(x), -1)
    taps = own["mixer.conv1d.weight"][:, 0]
    padded = np.concatenate([np.zeros((taps.shape[1] - 1, x.shape[1])), x])
    x = _silu(sum(padded[j : j + len(x)] * taps[:, j] for j in range(taps.shape[1])))
    b, c, dt = np.split(x @ own["mixer.bcdt_proj.weight"].T, [state, 2 * state], axis=-1)
    b = _norm(b, own["mixer.B_norm_weight"], config["rms_norm_eps"])
    c = _norm(c, own["mixer.C_norm_weight"], config["rms_norm_eps"])
    dt = _norm(dt, own["mixer.dt_norm_weight"], config["rms_norm_eps"])
    dt = np.logaddexp(0.0, dt @ own["mixer.dt_proj.weight"].T + own["mixer.dt_bias"])
    decay = np.exp(-dt * np.exp(own["mixer.A_log"]))
    values = x.reshape(len(x), heads, -1)
    memory = np.zeros((heads, values.shape[-1], state))
    rows = []
    for t in range(len(x)):
        added = (dt[t, :, None] * values[t])[:, :, None] * b[t]
        memory = memory * decay[t, :, None, None] + added
        rows.append(memory @ c[t] + own["mixer.D"][:, None] * values[t])
    y = np.stack(rows) * _silu(gate)
    return y.reshape(len(x), -1) @ own["mixer.out_proj.weight"].T
