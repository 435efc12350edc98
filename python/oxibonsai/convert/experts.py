"""Names, keys and shapes that the conversions of models with experts share."""

from __future__ import annotations

import re
from collections.abc import Collection

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Shapes
from oxibonsai.errors import FormatError

# The parts of a layer with experts that are one parameter each, by Hugging Face's names.
LAYER = {k: v for k, v in decoder.LAYER.items() if not k.startswith("mlp.")}
ROUTER = {"mlp.gate": "ffn_gate_inp"}
DENSE = {k: v for k, v in decoder.LAYER.items() if k.startswith("mlp.")}
STACKS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
SHARED = ("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp")


# Values of expert_gating_func.
SOFTMAX, SIGMOID = 1, 2
# What joins the scores when experts are chosen.
SELECTION_BIAS = {"mlp.gate.e_score_correction_bias": "exp_probs_b.bias"}


# The parts of a layer that predicts a further token, beside those of any layer.
DRAFTING = {
    "eh_proj": "nextn.eh_proj",
    "enorm": "nextn.enorm",
    "hnorm": "nextn.hnorm",
    "embed_tokens": "nextn.embed_tokens",
    "shared_head.norm": "nextn.shared_head_norm",
    "shared_head.head": "nextn.shared_head_head",
}


def drafting_keys(folder: ModelFolder, architecture: str) -> Metadata:
    """How many layers past the model's own predict further tokens, where the folder has them."""
    layers = folder.count("num_hidden_layers")
    if not folder.count_or_zero("num_nextn_predict_layers"):
        return {}
    numbers = (re.match(r"model\.layers\.([0-9]{1,4})\.", name) for name in folder.parameters)
    count = max((int(n[1]) + 1 for n in numbers if n is not None), default=layers) - layers
    if count <= 0:
        return {}
    return {
        f"{architecture}.block_count": (layers + count, "u32"),
        f"{architecture}.nextn_predict_layers": (count, "u32"),
    }


def is_drafting(folder: ModelFolder, parameter: str) -> bool:
    """Whether it belongs to a layer past the model's own, which predicts further tokens."""
    found = re.match(r"model\.layers\.([0-9]{1,4})\.", parameter)
    return found is not None and int(found[1]) >= folder.count("num_hidden_layers")


def is_matrix(tensor: str) -> bool:
    """Routers decide which experts run, so they stay f32, as does the gate of a shared expert."""
    parts = ("ffn_gate_inp", "attn_sinks")
    return decoder.is_matrix(tensor) and not any(p in tensor for p in parts)


def count(folder: ModelFolder) -> int:
    """Return the number of experts, by either of its names."""
    local = folder.config.get("num_local_experts") is not None
    return folder.count("num_local_experts" if local else "num_experts")


def shared_width(folder: ModelFolder) -> int:
    """Return the width of all shared experts together; 0 if there are none."""
    return folder.count_or_zero("n_shared_experts") * folder.count("moe_intermediate_size")


def shared_keys(folder: ModelFolder, architecture: str) -> Metadata:
    """How many experts are shared by all tokens."""
    shared = folder.count_or_zero("n_shared_experts")
    return {f"{architecture}.expert_shared_count": (shared, "u32")}


def group_keys(folder: ModelFolder, architecture: str) -> Metadata:
    """How many groups experts form, and how many of them are kept."""
    if folder.config.get("n_group") is None:
        return {}
    return {
        f"{architecture}.expert_group_count": (folder.count("n_group"), "u32"),
        f"{architecture}.expert_group_used_count": (folder.count("topk_group"), "u32"),
    }


def shared_names(module: str) -> dict[str, str]:
    """Names of the shared expert's projections.

    Args:
        module: Hugging Face's name of it within a layer.
    """
    return {
        f"{module}.gate_proj": "ffn_gate_shexp",
        f"{module}.up_proj": "ffn_up_shexp",
        f"{module}.down_proj": "ffn_down_shexp",
    }


def expert_keys(
    folder: ModelFolder,
    architecture: str,
    experts: str | None = None,
    used: str = "num_experts_per_tok",
    ff: str | None = "moe_intermediate_size",
) -> Metadata:
    """How many experts there are, how many a token has, and their width.

    Args:
        folder: With ``config.json``.
        architecture: GGUF's name.
        experts: What ``config.json`` calls their number; None: one of the usual names.
        used: The number of those of a token.
        ff: Their width; None: the feed-forward length's own key says it.
    """
    total = count(folder) if experts is None else folder.count(experts)
    counts = {"expert_count": total, "expert_used_count": folder.count(used)}
    if ff is not None:
        counts["expert_feed_forward_length"] = folder.count(ff)
    if counts["expert_used_count"] > counts["expert_count"]:
        raise FormatError(
            f"{folder.path / 'config.json'}: {used} {counts['expert_used_count']} is above the "
            f"{total} experts"
        )
    return {f"{architecture}.{k}": (v, "u32") for k, v in counts.items()}


def shapes(
    folder: ModelFolder,
    layer_names: Collection[str],
    biased: Collection[str] = (),
    *,
    experts: int,
    ff: int,
    shared_ff: int = 0,
    dense: int = 0,
    tied: bool = False,
    special: dict[str, tuple[int, ...]] | None = None,
) -> Shapes:
    """Shapes of all tensors that must be there, by GGUF's name.

    Args:
        folder: With ``config.json``.
        layer_names: Parts of a layer that are no experts, by GGUF's name.
        biased: Those that must have a bias.
        experts: Their number.
        ff: The width of one.
        shared_ff: That of the shared one; 0: there is none.
        dense: The first layers, which have no experts.
        tied: Whether the table is the output matrix too, where the configuration doesn't say.
        special: Shapes of parts that are not as in most architectures.
    """
    hidden = folder.count("hidden_size")
    sizes: dict[str, tuple[int, ...]] = {
        "ffn_gate_inp": (experts, hidden),
        "ffn_gate_exps": (experts, ff, hidden),
        "ffn_up_exps": (experts, ff, hidden),
        "ffn_down_exps": (experts, hidden, ff),
        "ffn_gate_shexp": (shared_ff, hidden),
        "ffn_up_shexp": (shared_ff, hidden),
        "ffn_down_shexp": (hidden, shared_ff),
        **(special or {}),
    }
    parts = ["ffn_gate_inp", *STACKS, *(SHARED if shared_ff else ())]
    names = [n for n in layer_names if n not in sizes or n in (special or {})]
    found = decoder.shapes(folder, [*names, *parts], biased, tied=tied, special=sizes)
    for i in range(min(dense, folder.count("num_hidden_layers"))):
        for part in parts:
            del found[f"blk.{i}.{part}.weight"]
        ff_dense = folder.count("intermediate_size")
        for part in ("ffn_gate", "ffn_up"):
            found[f"blk.{i}.{part}.weight"] = (ff_dense, hidden)
        found[f"blk.{i}.ffn_down.weight"] = (hidden, ff_dense)
    return found
