"""What the decoder-only architectures share: names of parameters, dimensions, shapes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Shapes
from oxibonsai.errors import FormatError, UnsupportedError

FIXED = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
# The parts of a layer that all have, by Hugging Face's names.
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
_LEFT_OUT = ".self_attn.rotary_emb.inv_freq"  # old checkpoints hold what theta says


def namer(
    family: str, layer_names: Mapping[str, str], biased: Collection[str] = ()
) -> Callable[[str], str | None]:
    """GGUF's name of a parameter, for one family's names.

    Args:
        family: For errors.
        layer_names: GGUF's name of each part of a layer.
        biased: Parts, by GGUF's name, that may have a bias.
    """

    def name(parameter: str) -> str | None:
        if parameter.endswith(_LEFT_OUT):
            return None
        module, _, kind = parameter.rpartition(".")
        layer = re.fullmatch(r"model\.layers\.([0-9]{1,4})\.(.+)", module)
        if layer is not None and (part := layer_names.get(layer[2])) is not None:
            if kind == "weight" or (kind == "bias" and part in biased):
                return f"blk.{int(layer[1])}.{part}.{kind}"
        elif kind == "weight" and module in FIXED:
            return f"{FIXED[module]}.weight"
        raise UnsupportedError(
            f"the model has the parameter {parameter}, which is none of {family}'s"
        )

    return name


def is_matrix(tensor: str) -> bool:
    """Weights of linear layers and of the token table."""
    return tensor.endswith(".weight") and "norm" not in tensor


def head_dim(folder: ModelFolder) -> int:
    """Stated, or the hidden size shared out among the heads."""
    if folder.config.get("head_dim") is not None:
        return folder.count("head_dim")
    hidden, heads = folder.count("hidden_size"), folder.count("num_attention_heads")
    if hidden % heads != 0:
        raise FormatError(
            f"{folder.path / 'config.json'}: hidden_size {hidden} is no multiple of {heads} heads"
        )
    return hidden // heads


def kv_heads(folder: ModelFolder) -> int:
    """Stated, or as many as heads."""
    stated = folder.config.get("num_key_value_heads") is not None
    return folder.count("num_key_value_heads" if stated else "num_attention_heads")


def dimension_keys(folder: ModelFolder, architecture: str) -> Metadata:
    """The dimensions that all have."""
    width = head_dim(folder)
    counts = {
        "block_count": folder.count("num_hidden_layers"),
        "context_length": folder.count("max_position_embeddings"),
        "embedding_length": folder.count("hidden_size"),
        "feed_forward_length": folder.count("intermediate_size"),
        "attention.head_count": folder.count("num_attention_heads"),
        "attention.head_count_kv": kv_heads(folder),
        "attention.key_length": width,
        "attention.value_length": width,
        "vocab_size": folder.count("vocab_size"),
    }
    keys: Metadata = {f"{architecture}.{k}": (v, "u32") for k, v in counts.items()}
    epsilon = (folder.real("rms_norm_eps", 1e-6), "f32")
    return keys | {f"{architecture}.attention.layer_norm_rms_epsilon": epsilon}


def shapes(
    folder: ModelFolder,
    layer_names: Collection[str],
    biased: Collection[str] = (),
    *,
    tied: bool = False,
) -> Shapes:
    """Shapes of all tensors that must be there, by GGUF's name.

    Args:
        folder: With ``config.json``.
        layer_names: Parts of a layer, by GGUF's name.
        biased: Those that must have a bias.
        tied: Whether the table is the output matrix too, where the configuration doesn't say.
    """
    hidden, ff = folder.count("hidden_size"), folder.count("intermediate_size")
    width, vocabulary = head_dim(folder), folder.count("vocab_size")
    q, kv = width * folder.count("num_attention_heads"), width * kv_heads(folder)
    matrices = {
        "attn_q": (q, hidden),
        "attn_k": (kv, hidden),
        "attn_v": (kv, hidden),
        "attn_output": (hidden, q),
        "ffn_gate": (ff, hidden),
        "ffn_up": (ff, hidden),
        "ffn_down": (hidden, ff),
    }
    found: Shapes = {"token_embd.weight": (vocabulary, hidden), "output_norm.weight": (hidden,)}
    if folder.config.get("tie_word_embeddings", tied) is False:
        found["output.weight"] = (vocabulary, hidden)
    for i in range(folder.count("num_hidden_layers")):
        for part in layer_names:
            norm = (width,) if part in HEAD_NORMS.values() else (hidden,)
            found[f"blk.{i}.{part}.weight"] = matrices.get(part, norm)
        for part in biased:
            found[f"blk.{i}.{part}.bias"] = matrices[part][:1]
    return found
