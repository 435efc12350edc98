"""Small random models whose last layer predicts a further token, and what transformers makes of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dense_models
import expert_models
import numpy as np
import numpy.typing as npt
import recurrent_models
from dense_models import random_values

import gguf_copy
from oxibonsai.convert.language_model import convert

Floats = npt.NDArray[np.float32]

_BY_NAME: dict[str, Any] = {c.name: c for c in expert_models.CASES}
_QWEN = {"num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2}
_QWEN_HEAD = {
    "eh_proj": "fc",
    "enorm": "pre_fc_norm_embedding",
    "hnorm": "pre_fc_norm_hidden",
    "shared_head_norm": "norm",
}
NAMES = ("glm4moe", "deepseek2-v3", "qwen35", "qwen35moe", "qwen3next")


@dataclass
class Drafting:
    """A model of transformers, whose last layer the file names as one that drafts.

    Attributes:
        path: The file.
        model: With that layer among its own.
        head: enorm, hnorm, shared_head_norm [hidden] and eh_proj [hidden, 2 * hidden].
    """

    path: Path
    model: Any
    head: dict[str, Floats]


def make(name: str, folder: Path) -> Drafting:
    """The folder, the file, and the layer's own tensors."""
    if name in _BY_NAME:
        model = dense_models.save(_BY_NAME[name], folder / "model")
    else:
        case = next(c for c in recurrent_models.CASES if c.name == name)
        case = recurrent_models.Case(case.name, case.kind, {**case.options, **_QWEN}, (), case.hub)
        model = case.save(folder / "model")
    convert(folder / "model", folder / "plain.gguf", dtype="f32")
    hidden, layers = model.config.hidden_size, model.config.num_hidden_layers
    shapes = {
        "eh_proj": (hidden, 2 * hidden),
        **dict.fromkeys(("enorm", "hnorm", "shared_head_norm"), (hidden,)),
    }
    head = {part: random_values(f"{part}.weight", shape) for part, shape in shapes.items()}
    path = folder / f"{name}.gguf"
    architecture = name.partition("-")[0]
    gguf_copy.copy(
        folder / "plain.gguf",
        path,
        keys={f"{architecture}.nextn_predict_layers": (1, "u32")},
        more={f"blk.{layers - 1}.nextn.{part}.weight": v for part, v in head.items()},
    )
    return Drafting(path, model, head)


def save_as_published(drafting: Drafting, folder: Path) -> None:
    """The folder with the drafting layer behind the model's own, as GLM and DeepSeek publish it, or
    beside them, as Qwen does.
    """
    from safetensors.numpy import load_file, save_file

    source = drafting.path.parent / "model"
    folder.mkdir()
    config = json.loads((source / "config.json").read_text())
    layers = config["num_hidden_layers"] - 1
    config |= {"num_hidden_layers": layers, "num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))
    b, held = f"model.layers.{layers}", load_file(source / "model.safetensors")
    names = {**dict.fromkeys(drafting.head), "shared_head_norm": f"{b}.shared_head.norm.weight"}
    own = {names[part] or f"{b}.{part}.weight": v for part, v in drafting.head.items()}
    if config["model_type"].startswith("qwen"):
        config["layer_types"] = config["layer_types"][:layers]
        (folder / "config.json").write_text(json.dumps(config))
        held = {name.replace(f"{b}.", "mtp.layers.0."): v for name, v in held.items()}
        # Norms hold their distance from 1.
        own = {
            f"mtp.{published}.weight": drafting.head[part] - np.float32("norm" in published)
            for part, published in _QWEN_HEAD.items()
        }
    save_file({**held, **own}, folder / "model.safetensors")


def reference(drafting: Drafting, ids: list[int]) -> tuple[Floats, Floats]:
    """Logits of the model without its last layer, [n, vocabulary], and of that layer, [n - 1, ...]."""
    import torch

    model, inner = drafting.model, drafting.model.model
    layers, norm, kinds = inner.layers, inner.norm, getattr(model.config, "layer_types", None)
    count = len(layers)
    head = {k: torch.from_numpy(v) for k, v in drafting.head.items()}
    eps = model.config.rms_norm_eps

    def normed(x: Any, part: str) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * head[part]

    def run(first: int, end: int, **inputs: Any) -> Any:
        inner.layers = layers[first:end]
        model.config.num_hidden_layers = end - first
        if kinds is not None:
            model.config.layer_types = kinds[first:end]
        return inner(**inputs, use_cache=False).last_hidden_state

    with torch.no_grad():
        text = torch.tensor([ids])
        states = run(0, count - 1, input_ids=text)
        logits = model.lm_head(states)[0].numpy()
        tokens = inner.embed_tokens(text)[:, 1:]
        both = torch.cat([normed(tokens, "enorm"), normed(states[:, :-1], "hnorm")], dim=-1)
        inner.norm = torch.nn.Identity()
        x = run(count - 1, count, inputs_embeds=both @ head["eh_proj"].T)
        further = model.lm_head(normed(x, "shared_head_norm"))[0].numpy()
    inner.layers, inner.norm = layers, norm
    model.config.num_hidden_layers = count
    if kinds is not None:
        model.config.layer_types = kinds
    return logits, further
