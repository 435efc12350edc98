"""DeepSeek V2 and V3, Mistral 4: names and keys; the matrices of keys and of values apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.float_types import Floats
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import Piece, expert_pieces
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.rope import read_rope, rope_keys, yarn_keys
from oxibonsai.convert.stacked_experts import stacked_pieces, with_fused_stacks
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError, UnsupportedError

_LAYER = {
    **experts.LAYER,
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    **experts.DENSE,
    **experts.ROUTER,
    **experts.shared_names("mlp.shared_experts"),
    **experts.DRAFTING,
}
_ALSO = (
    *("mscale", "mscale_all_dim", "beta_fast", "beta_slow"),
    *("llama_4_scaling_beta", "max_position_embeddings", "partial_rotary_factor"),
)
_KV_B = re.compile(r"model\.layers\.([0-9]{1,4})\.self_attn\.kv_b_proj\.weight")
tensor_name = decoder.namer("DeepSeek", _LAYER, extra=experts.SELECTION_BIAS)


def pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Experts, and what makes keys and values of the latent vector: a matrix for each head.

    That of the keys is transposed, since it is multiplied with queries.
    """
    found = _KV_B.fullmatch(parameter)
    if found is None:
        return expert_pieces(folder, parameter) or stacked_pieces(folder, parameter)
    heads, rank = folder.count("num_attention_heads"), folder.count("kv_lora_rank")
    nope, value = folder.count("qk_nope_head_dim"), folder.count("v_head_dim")

    def by_head(values: Floats) -> Floats:
        if values.shape != (heads * (nope + value), rank):
            raise FormatError(
                f"{folder.path}: {parameter} has shape {values.shape}, but config.json asks for "
                f"({heads * (nope + value)}, {rank})"
            )
        return values.reshape(heads, nope + value, rank)

    b = f"blk.{int(found[1])}"
    return (
        Piece(f"{b}.attn_k_b.weight", part=lambda v: by_head(v)[:, :nope].swapaxes(1, 2)),
        Piece(f"{b}.attn_v_b.weight", part=lambda v: by_head(v)[:, nope:]),
    )


def metadata(folder: ModelFolder, a: str = "deepseek2") -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    folder.require("rope_interleave", True)
    folder.require("moe_layer_freq", 1)
    sigmoid = folder.config.get("model_type") == "deepseek_v3"
    folder.require("scoring_func", None, "sigmoid" if sigmoid else "softmax")
    folder.require("topk_method", None, "noaux_tc", "greedy", "group_limited_greedy")
    rank, rope_dim = folder.count("kv_lora_rank"), folder.count("qk_rope_head_dim")
    counts = {
        "attention.head_count_kv": 1,
        "attention.key_length": rank + rope_dim,
        "attention.value_length": rank,
        "attention.key_length_mla": folder.count("qk_nope_head_dim") + rope_dim,
        "attention.value_length_mla": folder.count("v_head_dim"),
        "attention.kv_lora_rank": rank,
        "rope.dimension_count": rope_dim,
        "leading_dense_block_count": folder.count_or_zero("first_k_dense_replace"),
        "expert_gating_func": experts.SIGMOID if sigmoid else experts.SOFTMAX,
    }
    if folder.config.get("q_lora_rank") is not None:
        counts["attention.q_lora_rank"] = folder.count("q_lora_rank")
    keys: Metadata = {f"{a}.{k}": (v, "u32") for k, v in counts.items()}
    if folder.config.get("norm_topk_prob") is True:
        keys[f"{a}.expert_weights_norm"] = (True, "bool")
    groups = {}
    if folder.config.get("topk_method") != "greedy":
        groups = experts.group_keys(folder, a)
    return {
        **decoder.dimension_keys(folder, a),
        **experts.expert_keys(folder, a, "n_routed_experts"),
        **experts.shared_keys(folder, a),
        **groups,
        **decoder.scale_key(folder, f"{a}.expert_weights_scale", "routed_scaling_factor"),
        **keys,
        **experts.drafting_keys(folder, a),
        **_rope_keys(folder, a),
        **tokenizer_keys(folder),
    }


def _rope_keys(folder: ModelFolder, a: str) -> Metadata:
    """YaRN's factor of the scores is a key of its own; cos and sin keep their size."""
    kinds = ("default", "yarn")
    rope = read_rope(folder, kinds, also=_ALSO)
    keys = rope_keys(a, *rope) | yarn_keys(folder, a)
    given = folder.config.get("rope_parameters") or folder.config.get("rope_scaling") or {}
    scores = given.get("mscale_all_dim")
    if rope[0] == "yarn" and scores is not None:
        number = isinstance(scores, int | float) and not isinstance(scores, bool)
        if given.get("mscale", scores) != scores or not number or not 0 < scores < 100:
            raise UnsupportedError(
                f"{folder.path / 'config.json'}: mscale {given.get('mscale')!r} and mscale_all_dim "
                f"{scores!r} differ, which convert lacks"
            )
        keys[f"{a}.rope.scaling.yarn_log_multiplier"] = (0.1 * scores, "f32")
    return keys


def _shapes(folder: ModelFolder) -> Shapes:
    hidden, heads = folder.count("hidden_size"), folder.count("num_attention_heads")
    rank, rope_dim = folder.count("kv_lora_rank"), folder.count("qk_rope_head_dim")
    nope, value = folder.count("qk_nope_head_dim"), folder.count("v_head_dim")
    special: dict[str, tuple[int, ...]] = {
        "attn_kv_a_mqa": (rank + rope_dim, hidden),
        "attn_kv_a_norm": (rank,),
        "attn_k_b": (heads, rank, nope),
        "attn_v_b": (heads, value, rank),
        "attn_output": (hidden, heads * value),
        "attn_q": (heads * (nope + rope_dim), hidden),
    }
    names = ["attn_norm", "ffn_norm", *special]
    if folder.config.get("q_lora_rank") is not None:
        q_rank = folder.count("q_lora_rank")
        names.remove("attn_q")
        names += ("attn_q_a", "attn_q_a_norm", "attn_q_b")
        special["attn_q_a"] = (q_rank, hidden)
        special["attn_q_a_norm"] = (q_rank,)
        special["attn_q_b"] = (heads * (nope + rope_dim), q_rank)
    return experts.shapes(
        folder,
        names,
        experts=folder.count("n_routed_experts"),
        ff=folder.count("moe_intermediate_size"),
        shared_ff=experts.shared_width(folder),
        dense=folder.count_or_zero("first_k_dense_replace"),
        special=special,
    )


def _metadata_mistral4(folder: ModelFolder) -> Metadata:
    """Return the keys of Mistral 4, with the growth of queries along the text."""
    keys = metadata(folder, "mistral4")
    rope = folder.config.get("rope_parameters") or {}
    growth = rope.get("llama_4_scaling_beta")
    if growth is None:
        return keys
    number = isinstance(growth, int | float) and not isinstance(growth, bool)
    if not number or not 0 <= growth < 100:
        raise FormatError(
            f"{folder.path / 'config.json'}: llama_4_scaling_beta is {growth!r}, no growth"
        )
    return {**keys, "mistral4.attention.temperature_scale": (float(growth), "f32")}


DEEPSEEK2 = Recipe(
    "deepseek2",
    metadata,
    tensor_name,
    experts.is_matrix,
    shapes=_shapes,
    pieces=pieces,
)


def _fused_shapes(folder: ModelFolder) -> Shapes:
    return with_fused_stacks(_shapes(folder))


MISTRAL4 = replace(
    DEEPSEEK2, architecture="mistral4", metadata=_metadata_mistral4, shapes=_fused_shapes
)
